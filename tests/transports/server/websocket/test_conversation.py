"""Both eras and every revision on a WebSocket: calls, questions, progress, logs, cancellation, batches."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Context, Server
from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import LATEST, R2, R4
from callboard.testing import Peer
from tests.server.test_one_handler_every_revision import ANSWERS, WITH_FORMS, text
from tests.server.test_one_handler_every_revision import server as weather
from tests.transports.server.websocket.stage import house, socket_of

pytestmark = pytest.mark.usefixtures("door")

EVERY = pytest.mark.parametrize("revision", list(Revision), ids=str)
LEGACY = pytest.mark.parametrize("revision", [r for r in Revision if r < LATEST], ids=str)
BOTH = pytest.mark.parametrize("revision", [R4, LATEST], ids=str)


def company() -> tuple[Server, dict[str, Any]]:
    """A server with a tool that waits, and what became of it."""
    server = Server("company", version="1", offers=["resources"])
    seen: dict[str, Any] = {"begun": trio.Event(), "go": trio.Event(), "cancelled": False}

    @server.tool
    async def wait(*, ctx: Context) -> str:
        seen["begun"].set()
        try:
            await seen["go"].wait()
        except trio.Cancelled:
            seen["cancelled"] = True
            raise
        return "waited"

    @server.tool
    async def greet(name: str = "you") -> str:
        return f"hello {name}"

    return server, seen


@WITH_FORMS
async def test_a_handler_that_asks_logs_and_reports_is_served_in_every_revision_that_has_forms(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async with house(weather) as here:
        client = await here.peer(revision, answers=ANSWERS, log_level="debug")
        params = {"name": "plan", "arguments": {"days": 3}}
        result = await client.request("tools/call", **params, meta={"progressToken": "t"})
        while result.get("resultType") == "input_required":
            result = await client.request(
                "tools/call", **params, **client.answered(result), meta={"progressToken": "t"}
            )
        assert text(result) == "Oslo celsius True boots file:///home"
        progress = [note["progress"] for note in client.notifications("notifications/progress")]
        assert progress == sorted(set(progress))
        assert progress[-1] == 3
        assert [note["data"] for note in client.notifications("notifications/message")] == [{"city": "Oslo"}]


@EVERY
async def test_a_handler_asks_the_clients_model_in_every_revision(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async with house(weather) as here:
        client = await here.peer(revision, answers=ANSWERS)
        assert text(await client.call("ask_model")) == "boots by m-1"
        assert text(await client.call("fail")) == "no weather today"
        read = await client.request("resources/read", uri="weather://oslo/now")
        assert read["contents"][0]["text"] == "sunny in oslo"


async def test_both_eras_share_one_connection(autojump_clock: MockClock) -> None:
    server, _ = company()
    async with house(server) as here:
        legacy = await here.peer(R4)
        modern = Peer(legacy.connection, LATEST)
        modern._ids = iter(range(100, 200))  # type: ignore[assignment]  # ids of their own on the shared connection
        assert text(await modern.call("greet", name="new")) == "hello new"
        assert text(await legacy.call("greet", name="old")) == "hello old"
        assert "resultType" in await modern.request("tools/list")
        assert "resultType" not in await legacy.request("tools/list")


@BOTH
async def test_a_request_is_cancelled_by_notification_and_never_answered(
    revision: Revision, autojump_clock: MockClock
) -> None:
    server, seen = company()
    async with house(server) as here:
        client = await here.peer(revision)
        waiting = await client.begin("tools/call", name="wait", arguments={})
        await seen["begun"].wait()
        await client.say({"method": "notifications/cancelled", "params": {"requestId": waiting}})
        assert text(await client.call("greet")) == "hello you"
        await wait_all_tasks_blocked()
        assert seen["cancelled"]
        assert not client.heard


async def test_batches_are_for_one_revision_and_answered_as_one_message(autojump_clock: MockClock) -> None:
    server, _ = company()
    async with house(server) as here:
        client = await here.peer(R2, kind=Peer)
        socket = socket_of(client)
        await socket.send(b'[{"jsonrpc":"2.0","id":"a","method":"ping"},{"jsonrpc":"2.0","id":"b","method":"ping"}]')
        answers: Any = await socket.hear()
        assert sorted(answer["id"] for answer in answers) == ["a", "b"]
        other = socket_of(await here.peer(R4, kind=Peer))
        await other.send(b'[{"jsonrpc":"2.0","id":"a","method":"ping"}]')
        assert (await other.hear())["error"]["code"] == -32600


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b'{"jsonrpc":"2.0"}', -32600),
        (b"[]", -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b"\xef\xbb\xbf{}", -32700),
    ],
)
async def test_what_is_no_message_is_answered_and_the_socket_stays_open(
    frame: bytes, code: int, autojump_clock: MockClock
) -> None:
    server, _ = company()
    async with house(server) as here:
        socket = await here.dial()
        await socket.send(frame)
        answer = await socket.hear()
        assert answer["error"]["code"] == code
        assert "id" not in answer
        await socket.say({"id": 1, "method": "ping"})
        assert (await socket.hear())["id"] == 1


@LEGACY
async def test_a_change_is_told_to_a_session_once(revision: Revision, autojump_clock: MockClock) -> None:
    server, _ = company()
    async with house(server) as here:
        client = await here.peer(revision)
        await client.request("resources/subscribe", uri="x://y")
        server.notify_updated("x://y")
        server.notify_changed("tools")
        assert [(await client.hear())["method"] for _ in range(2)] == [
            "notifications/resources/updated",
            "notifications/tools/list_changed",
        ]


async def test_a_modern_subscription_hears_of_changes_and_ends_with_its_socket(autojump_clock: MockClock) -> None:
    server, _ = company()
    async with house(server) as here:
        client = await here.peer(LATEST)
        await client.begin("subscriptions/listen", notifications={"toolsListChanged": True})
        assert (await client.hear())["method"] == "notifications/subscriptions/acknowledged"
        server.notify_changed("tools")
        assert (await client.hear())["method"] == "notifications/tools/list_changed"
        socket_of(client).close()
        await wait_all_tasks_blocked()
        assert len(here.host.topics) == 0
        assert not here.sessions()
