"""What a client says, asks and answers, in every revision; what it makes of answers that are right, odd or wrong."""

from collections.abc import Mapping
from typing import Any, Final

import attrs
import pytest
import structlog
import trio
from trio.testing import MockClock

from callboard import Context, Server, ToolError
from callboard.client import connect
from callboard.codecs.revisions import LEGACY, MODERN, ElicitRequestURLParams, ElicitResult, Revision, Root, meta
from callboard.codecs.revisions.revision import R1, R3, R4, R5
from callboard.errors import CannotConnect
from tests.client.stage import CACHED, EVERY, Json, Puppet, every_revision, played, text

SINCE_FORMS: Final = [R3, R4, R5]


@attrs.frozen
class Name:
    name: str


def house() -> Server:
    server = Server("house", version="1.2", instructions="Wipe your feet.")

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def fail() -> str:
        raise ToolError("it did not work")

    @server.tool
    async def steps(*, ctx: Context) -> str:
        for step in range(1, 4):
            await ctx.report(step, total=3, message=f"step {step}")
            await trio.sleep(1)  # else only the latest would be told
        return "done"

    @server.tool
    async def ask(*, ctx: Context) -> str:
        return "hello " + (await ctx.elicit("Who?", Name)).name

    @server.tool
    async def think(*, ctx: Context) -> str:
        return (await ctx.sample("What?", max_tokens=10)).text

    @server.tool
    async def look(*, ctx: Context) -> str:
        return " ".join(root.uri for root in await ctx.roots())

    @server.tool
    async def chat(*, ctx: Context) -> str:
        await ctx.log("warning", {"mind": "the step"})
        return "said"

    @server.resource("house://{room}")
    async def room(room: str) -> str:
        return f"the {room}"

    @server.prompt
    async def invite(guest: str) -> str:
        return f"Dear {guest}"

    @server.completion("invite", "guest")
    async def guests(value: str) -> list[str]:
        return [guest for guest in ("ada", "alan") if guest.startswith(value)]

    return server


# The same program in every revision.


@every_revision
@pytest.mark.requirement("M001", "L001", "M002", "L002")
async def test_one_program_asks_for_everything_in_every_revision(revision: Revision, autojump_clock: MockClock) -> None:
    async with connect(house(), revision=revision) as client:
        assert client.revision == revision
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("house", "1.2")
        assert client.instructions == "Wipe your feet."
        assert [tool.name for tool in await client.tools()][:2] == ["echo", "fail"]
        assert [template.uri_template for template in await client.templates()] == ["house://{room}"]
        assert await client.resources() == []
        assert [prompt.name for prompt in await client.prompts()] == ["invite"]
        assert text(await client.call("echo", text="hi")) == "hi"
        failed = await client.call("fail")
        assert (failed.is_error, text(failed)) == (True, "it did not work")
        contents: Any = (await client.read("house://hall")).contents[0]
        assert contents.text == "the hall"
        message: Any = (await client.prompt("invite", guest="ada")).messages[0]
        assert message.content.text == "Dear ada"
        found = await client.complete("invite", "guest", "al")
        assert (found, found.total, found.has_more) == (["alan"], 1, False)
        await client.ping()


@pytest.mark.finding("protocol-1.12f")
async def test_a_client_knows_that_there_are_more_candidates_than_it_got(autojump_clock: MockClock) -> None:
    server = house()

    @server.completion("house://{room}", "room")
    async def rooms(value: str) -> list[str]:
        return [f"{value}{number}" for number in range(250)]

    async with connect(server) as client:
        found = await client.complete("house://{room}", "room", "r")
        assert (len(found), found[0], found.total, found.has_more) == (100, "r0", 250, True)


@every_revision
async def test_progress_is_heard_while_a_call_is_under_way(revision: Revision, autojump_clock: MockClock) -> None:
    async with connect(house(), revision=revision) as client:
        async with client.call("steps") as call:
            heard = [(update.progress, update.total) async for update in call.progress]
        assert heard == [(1, 3), (2, 3), (3, 3)]
        assert text(call.result) == "done"


@every_revision
async def test_questions_are_answered_by_the_same_functions_in_every_revision(
    revision: Revision, autojump_clock: MockClock
) -> None:
    asked: list[str] = []

    async def sampling(params: Any) -> str:
        asked.append(params.messages[0].content.text)
        return "42"

    def elicitation(params: Any) -> Mapping[str, Any]:
        asked.append(params.message)
        return {"name": "ada"}

    async with connect(
        house(), revision=revision, sampling=sampling, elicitation=elicitation, roots=["file:///home/ada"]
    ) as client:
        assert text(await client.call("think")) == "42"
        assert text(await client.call("look")) == "file:///home/ada"
        if revision >= R3:
            assert text(await client.call("ask")) == "hello ada"
    assert asked == ["What?", "Who?"][: 2 if revision >= R3 else 1]


@every_revision
async def test_logs_are_heard_at_the_level_that_was_asked_for(revision: Revision, autojump_clock: MockClock) -> None:
    heard: list[Any] = []
    async with connect(house(), revision=revision, on_log=heard.append, log_level="error") as client:
        await client.call("chat")
        assert heard == []
        await client.set_log_level("info")
        await client.call("chat")
    assert [(said.level, said.data) for said in heard] == [("warning", {"mind": "the step"})]


async def test_a_function_that_fails_to_hear_a_log_costs_nothing_else(autojump_clock: MockClock) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError

    with structlog.testing.capture_logs() as logs:
        async with connect(house(), on_log=broken, log_level="info") as client:
            await client.call("chat")
            await client.call("chat")
    assert [line["failure"] for line in logs if line["event"] == "log_callback_failed"] == [
        "ZeroDivisionError: "
    ]  # once: the log merges lines that say the same


@pytest.mark.parametrize("revision", SINCE_FORMS)
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "declined"),
        (False, "declined"),
        (ElicitResult(action="cancel"), "dismissed"),
        (ElicitResult(action="accept", content={"name": "bob"}), "hello bob"),
    ],
)
async def test_a_user_may_say_no_or_nothing(
    revision: Revision, answer: Any, said: str, autojump_clock: MockClock
) -> None:
    async with connect(house(), revision=revision, elicitation=lambda _: answer) as client:
        assert said in text(await client.call("ask"))


# What stands on the wire.


async def says(puppet: Puppet) -> None:
    """Answers anything with nothing much."""
    while True:
        request = await puppet.hear()
        if "id" in request and "method" in request:
            extra = CACHED if puppet.is_modern else {}
            await puppet.answer(request, content=[], tools=[], contents=[], messages=[], **extra)


@every_revision
@pytest.mark.requirement("M003", "M004", "M005", "L003", "L004", "L005", "M193", "M194", "L081", "M265")
async def test_every_request_has_an_id_and_a_token_of_its_own(revision: Revision, autojump_clock: MockClock) -> None:
    heard: list[Json] = []

    async def play(puppet: Puppet) -> None:
        heard.extend(puppet.heard)
        puppet.heard = heard
        await says(puppet)

    async with connect(played(play, revision)) as client, trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(client.call("echo")._run)
    requests = [message for message in heard if "method" in message and "notifications/" not in message["method"]]
    ids = [request["id"] for request in requests]
    tokens = [request["params"]["_meta"]["progressToken"] for request in requests]
    assert len(ids) >= 21
    assert all(type(one) in (int, str) for one in (*ids, *tokens))
    assert len(set(ids)) == len(ids)
    assert len(set(tokens)) == len(tokens)


@pytest.mark.requirement("M030", "M031", "M032", "M280", "M281", "M309", "M316", "M317", "M026")
async def test_every_modern_request_says_who_asks_and_what_it_can(autojump_clock: MockClock) -> None:
    heard: list[Json] = []

    async def play(puppet: Puppet) -> None:
        heard.extend(puppet.heard)
        puppet.heard = heard
        await says(puppet)

    async with connect(
        played(play), sampling=lambda _: "", elicitation=lambda _: None, roots=[], log_level="debug"
    ) as client:
        await client.call("echo")
        await client.read("house://hall")
    assert len(heard) == 3
    for message in heard:
        said = message["params"]["_meta"]
        assert said[meta.PROTOCOL_VERSION] == R5.value
        assert said[meta.CLIENT_INFO]["name"] == "callboard"
        assert said[meta.LOG_LEVEL] == "debug"
        assert said[meta.CLIENT_CAPABILITIES] == {
            "sampling": {"tools": {}, "context": {}},
            "elicitation": {"form": {}, "url": {}},
            "roots": {},
        }


async def test_what_is_not_answered_is_not_declared(autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        request = await puppet.hear()
        assert request["params"]["_meta"][meta.CLIENT_CAPABILITIES] == {}
        await puppet.answer(request, content=[])

    async with connect(played(play)) as client:
        await client.call("echo")


@pytest.mark.parametrize("revision", sorted(LEGACY))
@pytest.mark.requirement("L019", "L020", "L022", "L023", "L030", "L128", "L129", "L162", "L170", "L010", "M024")
async def test_a_legacy_session_begins_with_the_handshake_and_nothing_else(
    revision: Revision, autojump_clock: MockClock
) -> None:
    heard: list[Json] = []

    async def play(puppet: Puppet) -> None:
        heard.append(await puppet.hear())
        with trio.move_on_after(10):
            raise AssertionError(await puppet.hear())  # nothing before the answer
        agreed = {"protocolVersion": revision.value, "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
        await puppet.answer(heard[0], **agreed)
        heard.append(await puppet.hear())
        heard.append(await puppet.hear())
        await puppet.answer(heard[2])

    async with connect(
        played(play, revision, meets=False),
        revision=revision,
        sampling=lambda _: "",
        elicitation=lambda _: None,
        roots=[],
    ) as client:
        await client.ping()
    first, second, third = heard
    assert first["method"] == "initialize"
    params = first["params"]
    assert params["protocolVersion"] == revision.value
    assert params["clientInfo"]["name"] == "callboard"
    assert {"sampling", "roots"} <= params["capabilities"].keys()
    assert ("elicitation" in params["capabilities"]) == (revision >= R3)
    assert second["method"] == "notifications/initialized"
    assert "id" not in second
    assert third["method"] == "ping"


@pytest.mark.requirement("L028", "L029")
async def test_what_the_server_agreed_to_is_kept_to(autojump_clock: MockClock) -> None:
    """It was asked for the newest, and speaks the oldest: no structured results, no forms."""

    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        assert "_meta" not in request["params"] or request["params"]["_meta"].keys() == {"progressToken"}
        await puppet.say(id="q", method="elicitation/create", params={"message": "?", "requestedSchema": {}})
        refused = await puppet.hear()
        assert refused["error"]["code"] == -32601
        await puppet.answer(request, content=[])

    async with connect(played(play, R1), elicitation=lambda _: {}) as client:
        assert client.revision == R1
        await client.call("echo")


@pytest.mark.requirement("L026")
async def test_a_server_that_speaks_something_unknown_is_left(autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("initialize")
        await puppet.answer(
            request, protocolVersion="1999-01-01", capabilities={}, serverInfo={"name": "", "version": ""}
        )

    with pytest.raises(CannotConnect, match="1999-01-01"):
        async with connect(played(play, R4, meets=False), revision=R4):
            pass


# What the server asks, by request.


@pytest.mark.requirement("L006", "L007", "L086")
async def test_a_ping_is_answered_at_once_with_its_id_and_nothing(autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        await puppet.hear("tools/call")
        for request_id in ("p", 7):
            before = trio.current_time()
            await puppet.say(id=request_id, method="ping")
            assert await puppet.hear() == {"jsonrpc": "2.0", "id": request_id, "result": {}}
            assert trio.current_time() == before
        await puppet.answer(puppet.heard[-3], content=[])

    async with connect(played(play, R4)) as client:
        await client.call("echo")


@pytest.mark.requirement("L008", "L080", "M015", "M016", "M018", "M019", "M022", "M017")
@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("sampling/createMessage", {"messages": [], "maxTokens": 1}, -32603),  # the function raises
        ("sampling/createMessage", {"messages": 7}, -32602),
        ("elicitation/create", {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}, -32601),
        ("roots/list", {}, -32601),
        ("tools/call", {"name": "x"}, -32601),
        ("nonsense", {}, -32601),
    ],
)
async def test_what_cannot_be_answered_is_refused_with_a_code_that_means_it(
    method: str, params: Json, code: int, autojump_clock: MockClock
) -> None:
    async def sampling(_: object) -> str:
        raise RuntimeError("the secret is 42")

    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        await puppet.say(id="q", method=method, params=params)
        refused = await puppet.hear()
        assert refused["id"] == "q"
        assert refused["error"]["code"] == code
        assert isinstance(refused["error"]["message"], str)
        assert "42" not in str(refused)
        await puppet.answer(request, content=[])

    async with connect(played(play, R4), sampling=sampling) as client:
        await client.call("echo")


@pytest.mark.requirement("L150")
async def test_a_page_to_visit_is_refused_in_a_revision_that_has_only_forms(autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        await puppet.say(
            id="q",
            method="elicitation/create",
            params={"mode": "url", "message": "?", "url": "https://x", "elicitationId": "e"},
        )
        assert (await puppet.hear())["error"]["code"] == -32602
        await puppet.answer(request, content=[])

    async with connect(played(play, R3), elicitation=lambda _: {}) as client:
        await client.call("echo")


@pytest.mark.requirement("M284", "L132")
@pytest.mark.parametrize("revision", [R4, R5])
async def test_a_question_without_a_mode_is_a_form_and_one_at_a_page_gets_consent_and_no_content(
    revision: Revision, autojump_clock: MockClock
) -> None:
    form = {"message": "form?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
    page = {"mode": "url", "message": "page?", "url": "https://example.org/", "elicitationId": "e-1"}
    if revision in MODERN:
        del page["elicitationId"]

    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        if puppet.is_modern:
            asked = {key: {"method": "elicitation/create", "params": one} for key, one in (("f", form), ("p", page))}
            await puppet.say(id=request["id"], result={"resultType": "input_required", "inputRequests": asked})
            request = await puppet.hear("tools/call")
            given = request["params"]["inputResponses"]
        else:
            given = {}
            for key, one in (("f", form), ("p", page)):
                await puppet.say(id=key, method="elicitation/create", params=one)
                given[key] = (await puppet.hear())["result"]
        assert given == {"f": {"action": "accept", "content": {"name": "ada"}}, "p": {"action": "accept"}}
        await puppet.answer(request, content=[])

    def elicitation(params: Any) -> Any:
        return {"name": "ada"} if not isinstance(params, ElicitRequestURLParams) else True

    async with connect(played(play, revision), elicitation=elicitation) as client:
        await client.call("echo")


@pytest.mark.requirement("L009", "M023", "L136", "M167")
@every_revision
async def test_what_is_told_is_not_answered_whatever_it_is(revision: Revision, autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        for method, params in (
            ("notifications/elicitation/complete", {"elicitationId": "unknown"}),
            ("notifications/cancelled", {"requestId": "unknown", "reason": "why not"}),
            ("notifications/cancelled", {}),
            ("notifications/progress", {"progressToken": "unknown", "progress": 1}),
            ("notifications/progress", {"progress": "far"}),
            ("notifications/message", {"level": "loud", "data": 1}),
            ("notifications/nonsense", {"a": 1}),
            ("notifications/resources/updated", {"uri": 7}),
        ):
            await puppet.say(method=method, params=params)
        await puppet.answer(request, content=[])
        with trio.move_on_after(10):
            raise AssertionError(await puppet.hear())

    async with connect(played(play, revision)) as client:
        assert (await client.call("echo")).content == []
        await trio.sleep(20)


@pytest.mark.requirement("M068", "M074", "M096")
async def test_a_modern_server_that_asks_by_request_gets_no_answer(autojump_clock: MockClock) -> None:
    async def play(puppet: Puppet) -> None:
        request = await puppet.hear("tools/call")
        await puppet.say(id="q", method="roots/list")
        await puppet.say(id="p", method="ping")
        await puppet.answer(request, content=[])
        with trio.move_on_after(10):
            raise AssertionError(await puppet.hear())

    async with connect(played(play), roots=["file:///"]) as client:
        await client.call("echo")
        await trio.sleep(20)


@pytest.mark.requirement("M310", "L172")
@pytest.mark.parametrize("root", ["https://example.org/", "/home/ada", Root(uri="ftp://x")])
async def test_a_root_that_is_no_folder_is_refused_before_anything_is_said(root: Any) -> None:
    with pytest.raises(ValueError, match="expected a file:// URI"):
        async with connect(house(), roots=[root]):
            pass


async def test_roots_may_be_asked_of_a_function_each_time(autojump_clock: MockClock) -> None:
    folders = ["file:///one"]

    async def roots() -> list[str]:
        return folders

    async with connect(house(), roots=roots) as client:
        assert text(await client.call("look")) == "file:///one"
        folders[0] = "file:///two"
        assert text(await client.call("look")) == "file:///two"


async def test_what_goes_wrong_in_the_block_comes_out_as_it_is(autojump_clock: MockClock) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with connect(house()):
            raise KeyError("mine")


@pytest.mark.requirement("M069", "L073")
async def test_a_way_of_one_s_own_carries_both_eras(autojump_clock: MockClock) -> None:
    """`played` is one: nothing but memory, and the messages are those of any other transport."""
    for revision in EVERY:
        async with connect(played(says, revision)) as client:
            assert client.revision == revision
            await client.call("echo")
