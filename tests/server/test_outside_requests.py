"""What a server says to its clients outside of their requests, and hears of them."""

from typing import Any

import pytest
import structlog.testing
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Context, Revision, Server
from callboard.actors.server.client_pings import begin_pings
from callboard.actors.server.client_requests import MAX_ELICITATIONS
from callboard.actors.server.roots_reader import PAUSE, ClientRoots
from callboard.actors.server.session_tree import open_session
from callboard.server import InputRequired
from callboard.testing import Peer, Refusal, connect
from callboard.transports.memory import memory_pair

LEGACY = [revision for revision in Revision if revision.dialect.has_sessions]
R4, R5 = Revision("2025-11-25"), Revision("2026-07-28")
URL = "https://example.com/login"
BY_URL: dict[str, Any] = {"elicitation": {"url": {}}}
OPENED = {"elicitation/create": lambda _: {"action": "accept"}}
MOVED = {"method": "notifications/roots/list_changed"}


async def hear_for(client: Peer, seconds: float) -> None:
    """Answer what is asked for so long."""
    with trio.move_on_after(seconds):
        while True:
            await client._deal_with(await client.hear())


def login() -> Server:
    server, done = Server("login"), set[str]()

    @server.tool
    async def secret(ctx: Context) -> str | InputRequired:
        if "e1" not in done:
            return ctx.require_url("Log in first", URL, elicitation_id="e1")
        return "the answer"

    @server.resource("secret://notes")
    async def notes(ctx: Context) -> str | InputRequired:
        return ctx.require_url("Log in first", URL)

    @server.tool
    async def log_in(ctx: Context) -> bool:
        done.add("e1")
        return ctx.complete_elicitation("e1")

    return server


async def test_a_client_of_2025_11_25_is_told_which_page_to_open_and_when_it_is_done(autojump_clock: MockClock) -> None:
    async with connect(login(), R4, capabilities=BY_URL) as client:
        asked: list[tuple[str, dict[str, Any]]] = [
            ("tools/call", {"name": "secret"}),
            ("resources/read", {"uri": "secret://notes"}),
        ]
        for method, params in asked:
            with pytest.raises(Refusal) as refused:
                await client.request(method, **params)
            assert refused.value.code == -32042
            [page] = refused.value.data["elicitations"]
            assert (page["mode"], page["url"], page["message"]) == ("url", URL, "Log in first")
            assert page["elicitationId"]
        assert (await client.call("log_in"))["content"][0]["text"] == "true"
        [told] = client.notifications("notifications/elicitation/complete")
        assert told == {"elicitationId": "e1"}
        assert (await client.call("secret"))["content"][0]["text"] == "the answer"
        assert (await client.call("log_in"))["content"][0]["text"] == "false"  # it was told


async def test_a_modern_client_is_asked_to_open_the_page_and_tries_again(autojump_clock: MockClock) -> None:
    server = login()

    async with connect(server, R5, answers=OPENED, capabilities=BY_URL) as client:
        asked = await client.request("tools/call", name="secret", arguments={})
        [page] = asked["inputRequests"].values()
        assert (page["params"]["mode"], page["params"]["url"]) == ("url", URL)
        assert "elicitationId" not in page["params"]
        assert (await client.call("log_in"))["content"][0]["text"] == "false"  # there is no such notification
        result = await client.request("tools/call", name="secret", arguments={}, **client.answered(asked))
        assert result["content"][0]["text"] == "the answer"
        assert client.notifications("notifications/elicitation/complete") == []


@pytest.mark.parametrize("revision", [*LEGACY, R5], ids=str)
async def test_a_client_that_opens_no_pages_is_not_sent_to_one(revision: Revision, autojump_clock: MockClock) -> None:
    async with connect(login(), revision, capabilities={}) as client:
        if revision in LEGACY:
            result = await client.call("secret")
            assert result["isError"]
            assert URL not in str(result)
        else:
            with pytest.raises(Refusal) as refused:
                await client.call("secret")
            assert refused.value.data == {"requiredCapabilities": {"elicitation": {"url": {}}}}


async def test_a_page_that_a_question_leads_to_can_be_done_with(autojump_clock: MockClock) -> None:
    server = Server("asking")

    @server.tool
    async def ask(ctx: Context) -> str:
        await ctx.elicit_url("Open it", URL, elicitation_id="e9")
        assert server.complete_elicitation("e9")
        assert not server.complete_elicitation("other")
        return "done"

    async with connect(server, R4, answers=OPENED, capabilities=BY_URL) as client:
        assert (await client.call("ask"))["content"][0]["text"] == "done"
        [told] = client.notifications("notifications/elicitation/complete")
        assert told == {"elicitationId": "e9"}


async def test_the_oldest_of_too_many_pages_are_forgotten(autojump_clock: MockClock) -> None:
    server = Server("asking")

    @server.tool
    async def ask(ctx: Context) -> str:
        for number in range(MAX_ELICITATIONS + 1):
            ctx.elicit_url("Open it", URL, elicitation_id=f"e{number}")
        assert not server.complete_elicitation("e0")
        assert server.complete_elicitation("e1")
        return "done"

    async with connect(server, R4, capabilities=BY_URL) as client:
        assert (await client.call("ask"))["content"][0]["text"] == "done"


@pytest.mark.parametrize("revision", [*LEGACY, R5], ids=str)
async def test_a_log_message_outside_a_request_reaches_sessions_that_want_its_level(
    revision: Revision, autojump_clock: MockClock
) -> None:
    server = Server("logging", offers=["logging", "tools"])
    async with connect(server, revision) as client:
        await wait_all_tasks_blocked()  # the session is ready
        await server.log("info", {"disk": "half full"}, logger="disk")
        await server.log("debug", "too much")
        if revision in LEGACY:
            await client.request("logging/setLevel", level="error")
        await server.log("warning", "not any more")
        await server.log("error", "disk full")
        await wait_all_tasks_blocked()
        await client.request("tools/list")
        told = client.notifications("notifications/message")
        expected = [
            {"level": "info", "data": {"disk": "half full"}, "logger": "disk"},
            {"level": "error", "data": "disk full"},
        ]
        assert told == (expected if revision in LEGACY else [])


async def test_a_server_without_log_messages_sends_none(autojump_clock: MockClock) -> None:
    server = Server("quiet", offers=["tools"])
    async with connect(server, R4) as client:
        await wait_all_tasks_blocked()
        await server.log("error", "x")
        await client.request("tools/list")
        assert client.notifications("notifications/message") == []


@pytest.mark.parametrize("revision", LEGACY, ids=str)
async def test_the_author_hears_of_changed_roots_once_a_second_at_most(
    revision: Revision, autojump_clock: MockClock
) -> None:
    server, heard = Server("rooted"), list[tuple[float, ClientRoots]]()

    @server.on_roots_changed
    async def moved(roots: ClientRoots) -> None:
        heard.append((trio.current_time(), roots))
        raise ValueError("the author's own fault")

    roots = {"roots": [{"uri": "file:///home/ada"}]}
    answers = {"roots/list": lambda _: roots}
    async with connect(server, revision, answers=answers, capabilities={"roots": {"listChanged": True}}) as client:
        with structlog.testing.capture_logs() as logs:
            for _ in range(3):
                await client.say(MOVED)
            await hear_for(client, 3 * PAUSE)
            await client.request("ping")
        assert [round(at - heard[0][0], 6) for at, _ in heard] == [0, PAUSE]
        assert {root.uri for _, one in heard for root in one.roots} == {"file:///home/ada"}
        assert heard[0][1].session is heard[1][1].session
        assert {line["event"] for line in logs} == {"roots_listener_failed"}
        await client.say(MOVED)
        await hear_for(client, PAUSE / 2)
        assert len(heard) == 3


async def test_a_client_without_roots_is_not_asked_for_them(autojump_clock: MockClock) -> None:
    server, heard = Server("rooted"), list[ClientRoots]()

    @server.on_roots_changed
    async def moved(roots: ClientRoots) -> None:
        heard.append(roots)

    async with connect(server, R4, capabilities={}) as client:
        await client.say(MOVED)
        await client.request("ping")
    assert heard == []


async def test_a_client_that_answers_pings_stays_and_one_that_does_not_is_disconnected(
    autojump_clock: MockClock,
) -> None:
    server = Server("pinging")
    async with server.host() as host:
        begin_pings(host.root, host.clients, 10.0)
        peers = {}
        for name, revision in (("awake", R4), ("asleep", R4), ("modern", R5)):
            there, here = memory_pair()
            await open_session(host, here, name)
            peers[name] = Peer(there, revision, answers={"ping": refuse})
        for name in ("awake", "asleep"):
            await peers[name].initialize()
        await hear_for(peers["awake"], 35)
        assert set(host.clients) == {"awake", "modern"}
        await peers["awake"].request("ping")
        for peer in peers.values():
            peer.connection.close()


def refuse(_: Any) -> Any:
    raise Refusal(-32601)
