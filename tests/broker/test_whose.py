"""Whose a legacy backend's question is, what it says on the way, and who shares a connection: BRIDGING.md, 4, 5.2."""

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from callboard.codecs.caller import Caller
from callboard.codecs.revisions.revision import R3, R4, R5
from callboard.testing import Peer
from tests.broker.back import Back, Line, form, named, text
from tests.broker.front import backend, brokered, peer
from tests.client.stage import EVERYTHING, Json

NO_REQUEST = "no client request in progress"
FORMS: Json = {"elicitation": {"form": {}}}
ANSWERS = {
    "elicitation/create": lambda params: named(params["message"]),
    "roots/list": lambda params: {"roots": [{"uri": "file:///home"}]},
}


def params(name: str) -> Json:
    return {"name": "book", "arguments": {"who": name}}


async def goes_on(client: Peer, name: str, asked: Json) -> int:
    return await client.begin("tools/call", **params(name), **client.answered(asked))


# Exclusive use.


async def test_two_calls_that_may_be_asked_never_share_a_process(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, answers=ANSWERS) as client:
        begun = {name: await client.begin("tools/call", **params(name)) for name in ("ada", "bob")}
        lines: dict[str, tuple[Line, Json]] = {}
        for _ in begun:
            line, request = await back.hear()
            lines[request["params"]["arguments"]["who"]] = line, request
        assert lines["ada"][0] is not lines["bob"][0]
        for name, (line, _) in lines.items():
            await line.ask("elicitation/create", **form(name))
        for name in ("ada", "bob"):
            asked = await client.finish(begun[name])
            [entry] = asked["inputRequests"].values()
            assert entry["params"]["message"] == name
            begun[name] = await goes_on(client, name, asked)
        for name, (line, request) in lines.items():
            assert (await line.answered("q1"))["result"] == named(name)
            await line.answer(request, **text(f"for {name}"))
        for name in ("bob", "ada"):
            assert (await client.finish(begun[name]))["content"][0]["text"] == f"for {name}"


async def test_who_finds_no_process_free_waits_for_one(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(backend(back.ways, max_connections=2)) as host, peer(host) as client:
        first = await client.begin("tools/call", **params("ada"))
        second = await client.begin("tools/call", **params("bob"))
        line, request = await back.hear()
        await trio.testing.wait_all_tasks_blocked()
        assert len(back.told("tools/call")) == 1
        await line.answer(request, **text("one"))
        await client.finish(first)
        again, request = await back.hear()
        assert again is line
        await line.answer(request, **text("two"))
        await client.finish(second)


async def test_calls_of_clients_that_cannot_be_asked_share_one_connection(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, capabilities={}) as client:
        begun = [await client.begin("tools/call", **params(name)) for name in ("ada", "bob")]
        for _ in begun:
            line, request = await back.hear()
            await line.answer(request, **text("done"))
        for one in begun:
            await client.finish(one)
        assert len(back.lines) == 1
        assert back.lines[0].declared == {}


async def test_a_backend_is_told_just_what_the_client_can_be_asked(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host:
        for revision in (R5, R4):
            async with peer(host, revision, capabilities=FORMS) as client:
                begun = await client.begin("tools/call", **params("ada"))
                line, request = await back.hear()
                assert line.declared == FORMS
                await line.answer(request, **text("done"))
                await client.finish(begun)


async def test_principals_do_not_share_a_connection_unless_the_operator_says_so(autojump_clock: MockClock) -> None:
    for share, lines in (("principal", 2), ("all", 1)):
        back, used = Back(R4), set()
        async with brokered(backend(back.ways, share=share)) as host:
            for principal in ("ada", "bob"):
                async with peer(host, principal=principal, capabilities={}) as client:
                    begun = await client.begin("tools/call", **params(principal))
                    line, request = await back.hear()
                    used.add(line)
                    await line.answer(request, **text("done"))
                    await client.finish(begun)
        assert len(used) == lines


@pytest.mark.parametrize("can_log", [True, False])
async def test_sessions_have_a_connection_each_where_the_operator_says_so(
    can_log: bool, autojump_clock: MockClock
) -> None:
    offered = {name: value for name, value in EVERYTHING.items() if can_log or name != "logging"}
    back, used = Back(R4, capabilities=offered), set()
    async with brokered(backend(back.ways, share="session")) as host:
        for _ in range(2):
            async with peer(host, R4, capabilities={}) as client:
                for _ in range(2):
                    begun = await client.begin("tools/call", **params("ada"))
                    line, request = await back.hear()
                    used.add(line)
                    await line.answer(request, **text("done"))
                    await client.finish(begun)
    assert len(used) == 2


# Questions that come without a request.


async def test_roots_asked_after_the_handshake_belong_to_the_request_that_brought_it_about(
    autojump_clock: MockClock,
) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, answers=ANSWERS) as client:
        begun = await client.begin("tools/call", **params("ada"))
        line, _ = await back.hear("notifications/initialized")
        while line.declared == {}:
            line, _ = await back.hear("notifications/initialized")
        question = await line.ask("roots/list")
        _, request = await back.hear()
        asked = await client.finish(begun)
        assert [entry["method"] for entry in asked["inputRequests"].values()] == ["roots/list"]
        begun = await goes_on(client, "ada", asked)
        assert (await line.answered(question))["result"] == {"roots": [{"uri": "file:///home"}]}
        await line.answer(request, **text("done"))
        await client.finish(begun)


async def test_a_backend_without_a_client_gets_the_roots_of_the_configuration(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(backend(back.ways, roots=("file:///srv",))):
        question = await back.lines[0].ask("roots/list")
        assert (await back.lines[0].answered(question))["result"] == {"roots": [{"uri": "file:///srv"}]}
        assert trio.current_time() == 0


async def test_a_request_that_comes_in_that_moment_gets_the_question(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, R4, answers=ANSWERS) as client:
        begun = await client.begin("tools/call", **params("ada"))
        line, request = await back.hear()
        await line.answer(request, **text("done"))
        await client.finish(begun)
        question = await line.ask("roots/list")
        await trio.testing.wait_all_tasks_blocked()
        begun = await client.begin("tools/call", **params("ada"))
        _, request = await back.hear()
        await client._deal_with(await client.hear())
        assert "result" in await line.answered(question)
        await line.answer(request, **text("done"))
        await client.finish(begun)
        assert trio.current_time() < 1


@pytest.mark.parametrize(
    ("method", "more", "code"),
    [
        ("roots/list", {}, -32601),
        ("sampling/createMessage", {"messages": [], "maxTokens": 1}, -32601),
        ("elicitation/create", form(), -32601),
        ("no/such", {}, -32601),
    ],
)
async def test_what_belongs_to_no_request_is_refused(
    method: str, more: Json, code: int, autojump_clock: MockClock
) -> None:
    back = Back(R4)
    async with brokered(back.ways):
        refusal = (await back.lines[0].answered(await back.lines[0].ask(method, **more)))["error"]
        assert refusal["code"] == code
        assert (NO_REQUEST in refusal["message"]) is (code == -32603)


async def test_a_ping_is_answered(autojump_clock: MockClock) -> None:
    back = Back(R3)
    async with brokered(back.ways):
        assert (await back.lines[0].answered(await back.lines[0].ask("ping")))["result"] == {}


@pytest.mark.parametrize("revision", [R4, R5])
async def test_a_question_during_what_may_not_ask_is_refused(revision: str, autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, R4 if revision == R4 else R5, answers=ANSWERS) as client:
        ref = {"type": "ref/prompt", "name": "brief"}
        begun = await client.begin("completion/complete", ref=ref, argument={"name": "x", "value": ""})
        line, request = await back.hear("completion/complete")
        refusal = await line.answered(await line.ask("elicitation/create", **form()))
        assert refusal["error"]["code"] == -32603
        await line.answer(request, completion={"values": []})
        await client.finish(begun)


@pytest.mark.parametrize("revision", [R4, R5])
async def test_a_url_for_a_client_that_only_takes_forms_is_refused_as_it_would_itself(
    revision: str, autojump_clock: MockClock
) -> None:
    back = Back(R4)
    front = R4 if revision == R4 else R5
    async with brokered(back.ways) as host, peer(host, front, answers=ANSWERS, capabilities=FORMS) as client:
        begun = await client.begin("tools/call", **params("ada"))
        line, request = await back.hear()
        url = {"mode": "url", "message": "Log in", "url": "https://example.com", "elicitationId": "e1"}
        refusal = await line.answered(await line.ask("elicitation/create", **url))
        assert refusal["error"]["code"] == -32602
        refusal = await line.answered(await line.ask("sampling/createMessage", messages=[], maxTokens=1))
        assert refusal["error"]["code"] == -32601
        await line.answer(request, **text("done"))
        await client.finish(begun)


async def test_a_backend_that_asks_without_end_is_refused_and_then_not_heard(autojump_clock: MockClock) -> None:
    back, asked = Back(R4), list[str]()
    async with (
        brokered(back.ways) as host,
        peer(host, R4, answers=ANSWERS, capabilities=FORMS) as client,
        trio.open_nursery() as nursery,
    ):

        async def read() -> None:
            while True:
                asked.append((await client.hear())["method"])

        await client.begin("tools/call", **params("ada"))
        nursery.start_soon(read)
        line, _ = await back.hear()
        for _ in range(500):
            await line.ask("elicitation/create", **form())
        await trio.testing.wait_all_tasks_blocked()
        assert asked == ["elicitation/create"] * 64
        assert {answer["error"]["code"] for answer in line.answers.values()} == {-31003}
        nursery.cancel_scope.cancel()


# What is said on the way.


async def test_progress_goes_by_the_clients_token_and_only_if_there_is_one(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host) as client:
        begun = await client.begin("tools/call", **params("ada"))
        line, request = await back.hear()
        assert "progressToken" not in request["params"].get("_meta", {})
        await line.answer(request, **text("done"))
        await client.finish(begun)
        begun = await client.begin("tools/call", **params("ada"), meta={"progressToken": "mine"})
        line, request = await back.hear()
        token = request["params"]["_meta"]["progressToken"]
        assert token != "mine"  # noqa: S105
        for progress in (0.5, 0.2, 0.5, 0.7):
            await line.tell("notifications/progress", progressToken=token, progress=progress)
            await trio.sleep(1)
        await line.tell("notifications/progress", progressToken="unknown", progress=9)
        await line.answer(request, **text("done"))
        await client.finish(begun)
        told = client.notifications("notifications/progress")
        assert [(one["progressToken"], one["progress"]) for one in told] == [("mine", 0.5), ("mine", 0.7)]


async def test_what_is_said_while_a_call_is_parked_is_for_the_retry(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, answers=ANSWERS, log_level="info") as client:
        begun = await client.begin("tools/call", **params("ada"), meta={"progressToken": "first"})
        line, request = await back.hear()
        token = request["params"]["_meta"]["progressToken"]
        await line.ask("elicitation/create", **form())
        asked = await client.finish(begun)
        for progress in (1, 2, 3):
            await line.tell("notifications/progress", progressToken=token, progress=progress)
        for level in ("debug", "warning"):
            await line.tell("notifications/message", level=level, data=level)
        await trio.testing.wait_all_tasks_blocked()
        assert not client.heard
        again = client.answered(asked)
        begun = await client.begin("tools/call", **params("ada"), **again, meta={"progressToken": 7})
        await line.answered("q1")
        await trio.sleep(1)
        await line.answer(request, **text("done"))
        await client.finish(begun)
        told = client.notifications("notifications/progress")
        assert [(one["progressToken"], one["progress"]) for one in told] == [(7, 3)]
        assert [one["data"] for one in client.notifications("notifications/message")] == ["warning"]


# Tenants.


async def test_the_clients_of_one_tenant_share_a_process(autojump_clock: MockClock) -> None:
    back = Back(R4)
    lines = []
    async with brokered(backend(back.ways, share="tenant")) as host:
        for principal, tenant in (("ada", "acme"), ("bob", "acme"), ("ada", "other"), ("acme", ""), ("eve", "")):
            caller = Caller(principal=principal, tenant=tenant)
            async with peer(host, capabilities={}, principal=caller) as client:
                begun = await client.begin("tools/call", **params(principal))
                line, request = await back.hear()
                lines.append(line)
                await line.answer(request, **text("done"))
                await client.finish(begun)
    assert lines[0] is lines[1]
    assert len({id(line) for line in lines}) == 4
