"""Calls that a person must approve of, hosted and brokered, in both eras: nothing runs before the yes."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal

import attrs
import pytest
import structlog
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.rules import AccessRules, Approval, Condition, Rule
from callboard.actors.server.approvals import MAX_WAITING, MAX_WAITING_EACH
from callboard.actors.server.host import Host
from callboard.actors.server.new_rules import apply
from callboard.actors.server.parking import Parking
from callboard.codecs.caller import TRUSTED, Caller
from callboard.codecs.revisions import LATEST, LEGACY, Revision
from callboard.errors import INVALID_PARAMS, NOT_APPROVED, OVERLOADED, InvalidState
from callboard.observe.actions import Actions
from callboard.serve.revoke import end_all_of
from callboard.server import Server
from callboard.server.context import Context, InputRequired
from callboard.supervisor.audit import taking_notes
from callboard.testing import Peer, Refusal
from tests.broker.front import backend, brokered, peer

OLDER = max(LEGACY)
ERAS = pytest.mark.parametrize("revision", [LATEST, OLDER])
SIDES = pytest.mark.parametrize("side", ["hosted", "before modern", "before legacy"])
Side = Literal["hosted", "before modern", "before legacy"]

ALICE = Caller(principal="alice", tenant="acme")
BOB = Caller(principal="bob", tenant="other")
STALE = str(InvalidState())

YES = {"action": "accept", "content": {"approve": True}}
ANSWERS: dict[str, dict[str, Any]] = {
    "no": {"action": "decline"},
    "dismissed": {"action": "cancel"},
    "unticked": {"action": "accept", "content": {"approve": False}},
    "empty": {"action": "accept", "content": {}},
    "bare": {"action": "accept"},
    "odd": {"action": "accept", "content": {"approve": "true"}},
}


@attrs.define
class Stage:
    """A host, and the calls that have reached the tool."""

    host: Host
    ran: list[str]

    @property
    def waiting(self) -> list[str]:
        return list(self.host.approvals.waiting)


@asynccontextmanager
async def stood(side: Side, approve: Approval | None, *more: Rule) -> AsyncIterator[Stage]:
    server = Server("back", revisions=frozenset({OLDER} if side == "before legacy" else {LATEST, OLDER}))
    ran: list[str] = []

    @server.tool
    async def wipe(disk: str = "") -> str:
        ran.append(disk)
        return f"wiped {disk}"

    @server.tool
    async def ask(ctx: Context) -> str:
        ran.append("ask")
        given = await ctx.elicit("name?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return f"hello {given['name']}"

    @server.tool
    async def again(ctx: Context) -> str | InputRequired:
        ran.append("again")
        asking = ctx.elicit("name?", {"type": "object", "properties": {"name": {"type": "string"}}}, key="name")
        given = ctx.answered(asking)
        return InputRequired([asking], state=1) if given is None else f"hello {given['name']}"

    @server.tool
    async def slow(word: str = "") -> str:
        await trio.sleep(400 if side == "hosted" else 50)
        return "slow"

    rules = AccessRules([*([] if approve is None else [Rule(tools=["*"], approve=approve)]), *more])
    if side == "hosted":
        async with server.host(parking=Parking("back")) as host:
            host.rules, host.approvals.time = rules, 1000.0
            yield Stage(host, ran)
    else:
        async with brokered(backend(server, "back", trusted=True)) as host:
            await wait_all_tasks_blocked()
            host.rules, host.approvals.time = rules, 1000.0
            yield Stage(host, ran)


def replies(*said: dict[str, Any]) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
    """Answers to one form after the other."""
    left = list(said)
    return {"elicitation/create": lambda _: left.pop(0)}


async def refused(work: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await work
    return caught.value


def text_of(result: dict[str, Any]) -> str:
    found: str = result["content"][0]["text"]
    return found


# The caller.


@SIDES
@ERAS
async def test_the_caller_sees_the_call_and_says_yes(side: Side, revision: Revision) -> None:
    shown: list[str] = []

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        assert len(stage.ran) == len(shown)
        shown.append(params["message"])
        return YES

    async with (
        stood(side, "caller") as stage,
        peer(stage.host, revision, principal=ALICE, answers={"elicitation/create": answer}) as client,
    ):
        assert text_of(await client.call("wipe", disk="C:\u202e")) == "wiped C:\u202e"
        assert text_of(await client.call("wipe", disk="C:\u202e")) == "wiped C:\u202e"
    assert len(shown) == len(stage.ran) == 2  # a yes is good for one call
    assert 'Server: back\nTool: wipe\nArguments: {"disk":"C:\\u202e"}\nDigest: ' in shown[0]


@SIDES
@ERAS
@pytest.mark.parametrize("said", ANSWERS)
async def test_all_but_a_yes_is_a_no(side: Side, revision: Revision, said: str) -> None:
    async with (
        stood(side, "caller") as stage,
        peer(stage.host, revision, principal=ALICE, answers=replies(ANSWERS[said])) as client,
    ):
        assert (await refused(client.call("wipe", disk="C:"))).code == NOT_APPROVED
    assert not stage.ran


@SIDES
@pytest.mark.parametrize(
    ("revision", "capabilities"),
    [(LATEST, {}), (OLDER, {}), (min(LEGACY), {}), (LATEST, {"elicitation": {"url": {}}}), (OLDER, {"roots": {}})],
)
async def test_a_client_that_cannot_ask_is_told_so(side: Side, revision: Revision, capabilities: Any) -> None:
    async with (
        stood(side, "caller") as stage,
        peer(stage.host, revision, principal=ALICE, capabilities=capabilities) as client,
    ):
        refusal = await refused(client.call("wipe"))
    assert refusal.code == NOT_APPROVED
    assert "the caller must approve of this call, and its client cannot ask" in refusal.message
    assert not stage.ran


@SIDES
async def test_a_legacy_client_that_answers_with_an_error_or_never(side: Side, autojump_clock: MockClock) -> None:
    def fail(_: Any) -> Any:
        raise Refusal(-32603, "no user here")

    async with stood(side, "caller") as stage:
        async with peer(stage.host, OLDER, principal=ALICE, answers={"elicitation/create": fail}) as client:
            assert (await refused(client.call("wipe"))).code == NOT_APPROVED
        async with peer(stage.host, OLDER, principal=ALICE) as client:
            number = await client.begin("tools/call", name="wipe", arguments={})
            while (message := await client.hear()).get("id") != number or "error" not in message:
                assert message["method"] in ("elicitation/create", "notifications/cancelled")
    assert message["error"]["code"] == NOT_APPROVED
    assert not stage.ran


@SIDES
@ERAS
@pytest.mark.parametrize("tool", ["ask", "again"])
async def test_what_the_tool_asks_itself_still_works(side: Side, revision: Revision, tool: str) -> None:
    answers = replies(YES, {"action": "accept", "content": {"name": "Ada"}})
    async with (
        stood(side, "caller") as stage,
        peer(stage.host, revision, principal=ALICE, answers=answers) as client,
    ):
        assert text_of(await client.call(tool)) == "hello Ada"
    assert stage.ran == [tool] * (1 if tool == "ask" and "modern" not in side else len(stage.ran))


async def asked(client: Peer, **arguments: Any) -> dict[str, Any]:
    """The question, as a modern client gets it."""
    found = await client.request("tools/call", name="wipe", arguments=arguments)
    assert found["resultType"] == "input_required"
    return found


@SIDES
async def test_a_yes_is_for_the_arguments_that_were_shown(side: Side) -> None:
    async with (
        stood(side, "caller") as stage,
        peer(stage.host, principal=ALICE, answers=replies(YES, YES, YES)) as client,
    ):
        retry = client.answered(await asked(client, disk="C:"))
        send = partial(client.request, "tools/call", **retry)
        for name, arguments in (("wipe", {"disk": "D:"}), ("wipe", {}), ("ask", {"disk": "C:"})):
            assert (await refused(send(name=name, arguments=arguments))).message == STALE
        assert not stage.ran
        assert text_of(await send(name="wipe", arguments={"disk": "C:"})) == "wiped C:"
        for _ in range(2):  # used up
            assert (await refused(send(name="wipe", arguments={"disk": "C:"}))).message == STALE
    assert stage.ran == ["C:"]


@SIDES
async def test_a_yes_of_another_principal_or_under_another_key_is_none(side: Side, autojump_clock: MockClock) -> None:
    async with (
        stood(side, "caller") as stage,
        peer(stage.host, principal=ALICE, answers=replies(YES, YES)) as alice,
    ):
        question = await asked(alice, disk="C:")
        retry = alice.answered(question)
        async with peer(stage.host, principal=BOB) as bob:
            stolen = bob.request("tools/call", name="wipe", arguments={"disk": "C:"}, **retry)
            assert (await refused(stolen)).message == STALE
        guessed = {**retry, "inputResponses": {"other": YES}}
        again = await alice.request("tools/call", name="wipe", arguments={"disk": "C:"}, **guessed)
        assert again["resultType"] == "input_required"
        early = {"inputResponses": dict.fromkeys((*question["inputRequests"], "approve", "r1.1"), YES)}
        once = await alice.request("tools/call", name="wipe", arguments={"disk": "C:"}, **early)
        assert once["resultType"] == "input_required"
    assert not stage.ran


async def test_the_answer_is_not_shown_to_the_backend() -> None:
    seen: list[Any] = []
    server = Server("back")

    @server.tool
    async def look(ctx: Context) -> str:
        seen.append(ctx._exchange.request.members.keys())
        return "seen"

    async with brokered(backend(server, "back", trusted=True)) as host:
        await wait_all_tasks_blocked()
        host.rules = AccessRules([Rule(tools=["look"], approve="caller")])
        async with peer(host, principal=ALICE, answers=replies(YES)) as client:
            await client.call("look")
    assert seen == [{"name", "arguments", "_meta"}]


@SIDES
@ERAS
async def test_other_tools_and_trusted_callers_are_not_asked(side: Side, revision: Revision) -> None:
    only = Rule(tools=["ask"], approve="operator")
    async with (
        stood(side, None, only) as stage,
        peer(stage.host, revision, principal=ALICE, capabilities={}) as client,
    ):
        assert text_of(await client.call("wipe", disk="C:")) == "wiped C:"
    async with (
        stood(side, "operator") as stage,
        peer(stage.host, revision, principal=TRUSTED, capabilities={}) as client,
    ):
        assert text_of(await client.call("wipe", disk="C:")) == "wiped C:"


# The operator.


@asynccontextmanager
async def begun(
    stage: Stage, revision: Revision, tool: str = "wipe", **arguments: Any
) -> AsyncIterator[tuple[Peer, int]]:
    async with peer(stage.host, revision, principal=ALICE, capabilities={}) as client:
        number = await client.begin("tools/call", name=tool, arguments=arguments)
        await wait_all_tasks_blocked()
        yield client, number


@SIDES
@ERAS
async def test_a_call_waits_for_the_operator_and_its_own_time_does_not_pass(
    side: Side, revision: Revision, autojump_clock: MockClock
) -> None:
    notes: list[tuple[str, Any]] = []
    with (
        taking_notes(lambda event, fields: notes.append((event, dict(fields)))),
        structlog.testing.capture_logs() as log,
    ):
        async with (
            stood(side, "operator") as stage,
            begun(stage, revision, "slow", word="s3cret") as (client, number),
        ):
            (row,) = Actions(stage.host, None).waiting_calls()  # type: ignore[arg-type]
            assert (row["server"], row["tool"], row["principal"]) == ("back", "slow", ALICE.key)
            assert row["arguments"] == '{"word":"s3cret"}'
            assert "waits for approval" in str(stage.host.root.tree())
            await trio.sleep(700)  # longer than a request may take
            assert stage.host.approvals.settle(row["id"], is_approved=True)
            assert not stage.host.approvals.settle(row["id"], is_approved=True)
            assert not stage.host.approvals.settle(row["id"], is_approved=False)
            assert text_of(await client.finish(number)) == "slow"
            assert not stage.waiting
    told = [fields for event, fields in notes if event == "call_approved"]
    assert [one["by"] for one in told] == ["operator"]
    assert len(told[0]["digest"]) == 64
    assert "s3cret" not in str((notes, log))
    assert [line for line in log if line["event"] == "call_approved"]


@SIDES
@ERAS
async def test_the_operator_says_no_or_nothing(side: Side, revision: Revision, autojump_clock: MockClock) -> None:
    async with stood(side, "operator") as stage, begun(stage, revision) as (client, number):
        assert stage.host.approvals.settle(stage.waiting[0], is_approved=False)
        refusal = await refused(client.finish(number))
        assert (refusal.code, refusal.message) == (NOT_APPROVED, "not approved: the operator has declined")
        stage.host.approvals.time, before = 60.0, trio.current_time()
        refusal = await refused(client.call("wipe"))
        assert refusal.message == "not approved: no operator has answered within 60 s"
        assert trio.current_time() - before == pytest.approx(60, abs=1)
        assert not stage.waiting
    assert not stage.ran


@SIDES
@ERAS
async def test_a_call_that_is_cancelled_or_revoked_waits_no_longer(side: Side, revision: Revision) -> None:
    async with stood(side, "operator") as stage, begun(stage, revision) as (client, number):
        (one,) = stage.waiting
        await client.say({"method": "notifications/cancelled", "params": {"requestId": number}})
        await wait_all_tasks_blocked()
        assert not stage.waiting
        assert not stage.host.approvals.settle(one, is_approved=True)
        await client.begin("tools/call", name="wipe", arguments={})
        await wait_all_tasks_blocked()
        assert len(stage.waiting) == 1
        await end_all_of(stage.host, {ALICE.key})
        await wait_all_tasks_blocked()
        assert not stage.waiting
    assert not stage.ran


@SIDES
@ERAS
async def test_rules_that_change_count_for_calls_that_wait(side: Side, revision: Revision) -> None:
    asks = Rule(tools=["*"], approve="operator")
    async with stood(side, "operator") as stage, begun(stage, revision) as (client, number):
        await apply(stage.host, AccessRules([asks, Rule(tools=["ask"], deny=True)]))
        await wait_all_tasks_blocked()
        assert len(stage.waiting) == 1
        await apply(stage.host, AccessRules([asks, Rule(tools=["wipe"], only=(Condition(tenant=("other",)),))]))
        refusal = await refused(client.finish(number))
        assert (refusal.code, refusal.message) == (INVALID_PARAMS, "Unknown tool: wipe")
        assert not stage.ran
        await apply(stage.host, AccessRules([asks]))
        number = await client.begin("tools/call", name="wipe", arguments={"disk": "C:"})
        await wait_all_tasks_blocked()
        await apply(stage.host, None)
        assert text_of(await client.finish(number)) == "wiped C:"


@SIDES
async def test_a_rule_that_hides_what_was_asked_about_counts_for_the_yes(side: Side, autojump_clock: MockClock) -> None:
    async with stood(side, "caller") as stage, peer(stage.host, principal=ALICE, answers=replies(YES)) as client:
        retry = client.answered(await asked(client, disk="C:"))
        await apply(stage.host, AccessRules([Rule(tools=["wipe"], deny=True)]))
        refusal = await refused(client.request("tools/call", name="wipe", arguments={"disk": "C:"}, **retry))
        assert refusal.message == "Unknown tool: wipe"
    assert not stage.ran


@SIDES
async def test_the_operator_is_asked_if_rules_say_so_when_the_caller_has_answered(side: Side) -> None:
    async with stood(side, "caller") as stage, peer(stage.host, principal=ALICE, answers=replies(YES)) as client:
        retry = client.answered(await asked(client, disk="C:"))
        await apply(stage.host, AccessRules([Rule(tools=["wipe"], approve="operator")]))
        number = await client.begin("tools/call", name="wipe", arguments={"disk": "C:"}, **retry)
        await wait_all_tasks_blocked()
        assert not stage.ran
        stage.host.approvals.settle(stage.waiting[0], is_approved=True)
        assert text_of(await client.finish(number)) == "wiped C:"


@SIDES
async def test_a_hundred_calls_at_once_are_bounded_and_all_answered(side: Side) -> None:
    codes: list[int] = []
    done: list[str] = []

    async def call(caller: Caller, number: int) -> None:
        async with peer(stage.host, principal=caller, capabilities={}) as client:
            try:
                done.append(text_of(await client.call("wipe", disk=str(number))))
            except Refusal as refusal:
                codes.append(refusal.code)

    async with stood(side, "operator") as stage:
        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(call, Caller(principal=f"p{number % 20}"), number)
            await wait_all_tasks_blocked()
            assert len(stage.waiting) == MAX_WAITING
            assert codes == [OVERLOADED] * (100 - MAX_WAITING)
            holders = [one.principal for one in stage.host.approvals.waiting.values()]
            assert max(holders.count(one) for one in holders) <= MAX_WAITING_EACH
            assert len(set(stage.waiting)) == MAX_WAITING
            for one in stage.waiting:
                stage.host.approvals.settle(one, is_approved=True)
        assert len(done) == len(stage.ran) == MAX_WAITING
        async with peer(stage.host, principal=ALICE, capabilities={}) as client:
            numbers = [await client.begin("tools/call", name="wipe", arguments={}) for _ in range(5)]
            assert (await refused(client.finish(numbers[-1]))).code == OVERLOADED
            assert len(stage.waiting) == MAX_WAITING_EACH
