"""Traces: one tree from the client's span to the backend's, whatever the eras; nothing while they are off."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from opentelemetry import trace as api
from opentelemetry.trace import SpanKind, StatusCode
from trio.testing import MockClock

from callboard import Context, Server
from callboard.codecs.members import raw
from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R1, R2, R3, R4, R5
from callboard.observe.trace_context import ContextReader
from callboard.observe.tracing import Accept
from callboard.observe.view import ServerView
from callboard.testing import Refusal
from tests.broker.back import Back, form, named, text, tool
from tests.broker.front import backend, brokered, peer
from tests.observe.spans import (
    PARENT,
    PARENT_ID,
    TRACE_ID,
    Spans,
    ids,
    links_of,
    parent_of,
    said,
    traced_broker,
    traced_server,
)

ERAS = pytest.mark.parametrize("revision", [R1, R4, R5])
CROSSED = pytest.mark.parametrize(("front", "behind"), [(R1, R5), (R4, R5), (R5, R1), (R5, R4), (R5, R5), (R3, R4)])

app = Server("app")


def seen() -> str:
    """The id of the current span."""
    return f"{api.get_current_span().get_span_context().span_id:016x}"


@app.tool
async def at_once() -> str:
    return seen()


@app.tool
async def waiting() -> str:
    before = seen()
    await trio.lowlevel.checkpoint()
    return f"{before} {seen()}"


@app.tool
async def for_ever() -> str:
    await trio.sleep_forever()
    raise AssertionError


@app.tool
def in_a_thread() -> str:
    return seen()


@app.tool
async def curious(ctx: Context) -> str:
    before = seen()
    given = await ctx.elicit("Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
    return f"{before} {seen()} {given['name']}"


@app.tool
async def fail() -> str:
    raise ValueError("secret")


@app.prompt
async def brief() -> str:
    return "be brief"


@app.resource("notes://{name}")
async def notes(name: str) -> str:
    if name == "broken":
        raise ValueError("secret")
    return name


ANSWERS = {"elicitation/create": lambda _: named("ada")}


def words(result: Mapping[str, Any]) -> list[str]:
    return str(result["content"][0]["text"]).split()


# Hosted.


@ERAS
async def test_a_request_is_a_child_of_the_clients_span_and_says_what_the_conventions_want(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async with traced_server(app) as (host, spans), peer(host, revision) as client:
        await client.request("tools/call", name="at_once", arguments={}, meta={"traceparent": PARENT})
    span = spans.front
    assert (span.name, ids(span)[0], parent_of(span)) == ("tools/call at_once", TRACE_ID, PARENT_ID)
    assert said(span) == {
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "at_once",
        "gen_ai.operation.name": "execute_tool",
        "mcp.protocol.version": revision.value,
        "jsonrpc.request.id": "1" if revision is R5 else "2",
        "network.transport": "pipe",
    }
    assert span.status.status_code is StatusCode.UNSET


@ERAS
@pytest.mark.parametrize("name", ["at_once", "waiting", "in_a_thread"])
async def test_spans_of_a_handlers_own_are_children_of_the_requests(name: str, revision: Revision) -> None:
    async with traced_server(app) as (host, spans), peer(host, revision) as client:
        result = await client.request("tools/call", name=name, arguments={})
        assert seen() == "0" * 16, "it is current for the handler alone"
    assert set(words(result)) == {ids(spans.front)[1]}
    assert parent_of(spans.front) is None


async def test_members_of_a_batch_have_a_span_each_also_for_their_handlers(autojump_clock: MockClock) -> None:
    async with traced_server(app) as (host, spans), peer(host, R2) as client:
        call = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "waiting", "arguments": {}}}
        await client.connection.send(msgspec.json.encode([{**call, "id": 8}, {**call, "id": 9}]))
        answers: Any = await client.hear()
    seen_by = {str(answer["id"]): set(words(answer["result"])) for answer in answers}
    assert seen_by == {said(span)["jsonrpc.request.id"]: {ids(span)[1]} for span in spans}


async def test_other_targets_and_methods_have_their_names(autojump_clock: MockClock) -> None:
    async with traced_server(app) as (host, spans), peer(host) as client:
        await client.request("prompts/get", name="brief")
        with pytest.raises(Refusal):
            await client.request("resources/read", uri="notes://one?token=secret#secret")
        await client.request("tools/list")
    prompt, resource, listed = spans
    assert (prompt.name, said(prompt)["gen_ai.prompt.name"]) == ("prompts/get brief", "brief")
    assert (resource.name, said(resource)["mcp.resource.uri"]) == ("resources/read", "notes://one")
    assert listed.name == "tools/list"
    assert not {"gen_ai.operation.name", "mcp.session.id"} & {*said(prompt), *said(resource), *said(listed)}


@pytest.mark.parametrize(
    ("method", "params", "code", "error", "is_error"),
    [
        ("tools/call", {"name": "no" * 500}, "-32602", None, False),
        ("no" * 500, {}, "-32601", None, False),
        ("tools/call", {"name": "fail"}, None, "tool_error", True),
        ("resources/read", {"uri": "notes://broken"}, "-32603", "-32603", True),
    ],
)
async def test_what_the_client_did_wrong_is_no_error_of_the_server(
    method: str, params: dict[str, Any], code: str | None, error: str | None, is_error: bool, autojump_clock: MockClock
) -> None:
    async with traced_server(app) as (host, spans), peer(host) as client:
        with nullcontext() if code is None else pytest.raises(Refusal, match=code):
            await client.request(method, **params)
    span, told = spans.front, said(spans.front)
    assert (told.get("rpc.response.status_code"), told.get("error.type")) == (code, error)
    assert span.status.status_code is (StatusCode.ERROR if is_error else StatusCode.UNSET)
    assert len(span.name) < 100, "a client can think of any number of names"
    assert len(str(told["mcp.method.name"])) < 100
    assert "secret" not in str(span.to_json())


async def test_a_request_that_is_cancelled_says_so(autojump_clock: MockClock) -> None:
    async with traced_server(app) as (host, spans), peer(host, R4) as client:
        begun = await client.begin("tools/call", name="for_ever", arguments={})
        await trio.testing.wait_all_tasks_blocked()
        await client.say({"method": "notifications/cancelled", "params": {"requestId": begun}})
        await client.request("ping")
    (call,) = spans.of(SpanKind.SERVER, "tools/call")
    assert said(call)["error.type"] == "cancelled"
    assert call.status.status_code is StatusCode.UNSET


async def test_each_round_has_a_span_that_is_linked_to_the_one_before(autojump_clock: MockClock) -> None:
    async with traced_server(app) as (host, spans), peer(host, answers=ANSWERS) as client:
        result = await client.call("curious")
    first, second = spans.of(SpanKind.SERVER)
    assert said(first)["callboard.result_type"] == "input_required"
    assert "callboard.result_type" not in said(second)
    assert links_of(second) == [ids(first)[1]]
    assert words(result) == [ids(first)[1], ids(second)[1], "ada"], "the handler goes on below the second"


async def test_what_a_legacy_client_is_asked_has_a_span(autojump_clock: MockClock) -> None:
    async with traced_server(app) as (host, spans), peer(host, R4, answers=ANSWERS) as client:
        await client.call("curious")
    assert (spans.back.name, parent_of(spans.back)) == ("elicitation/create", ids(spans.front)[1])
    assert not spans.front.links


# Through a broker.


@CROSSED
async def test_client_broker_and_backend_are_one_tree(
    front: Revision, behind: Revision, autojump_clock: MockClock
) -> None:
    back = Back(behind, tools=[tool("now")])
    spec = backend(back.ways, name="w", prefix="w", rename={"now": "later"})
    async with traced_broker(spec) as (host, spans), peer(host, front) as client:
        meta = {"traceparent": PARENT, "tracestate": "a=1,b=2", "baggage": "k=v", "example.com/own": 1}
        begun = await client.begin("tools/call", name="w__later", arguments={}, meta=meta)
        line, request = await back.hear()
        await line.answer(request, **text("done"))
        await client.finish(begun)
    asked = request["params"]["_meta"]
    assert (parent_of(spans.front), parent_of(spans.back)) == (PARENT_ID, ids(spans.front)[1])
    assert {ids(span)[0] for span in spans} == {TRACE_ID}
    assert asked["traceparent"] == f"00-{TRACE_ID}-{ids(spans.back)[1]}-01"
    assert (asked["tracestate"], asked["example.com/own"]) == ("a=1,b=2", 1)
    assert "baggage" not in asked, "it is not trusted"
    assert (spans.front.name, spans.back.name) == ("tools/call w__later", "tools/call now")
    assert said(spans.front)["callboard.server"] == said(spans.back)["callboard.server"] == "w"
    assert said(spans.back)["mcp.protocol.version"] == behind.value


@CROSSED
async def test_a_request_without_a_trace_begins_one(
    front: Revision, behind: Revision, autojump_clock: MockClock
) -> None:
    back = Back(behind)
    async with traced_broker(back.ways) as (host, spans), peer(host, front) as client:
        for _ in range(2):  # the second one is like the first, but for its span
            begun = await client.begin("tools/call", name="book", arguments={})
            line, request = await back.hear()
            await line.answer(request, **text("done"))
            await client.finish(begun)
    found = [params["_meta"]["traceparent"].split("-")[1:3] for params in back.told("tools/call")]
    assert found == [list(ids(span)) for span in spans.of(SpanKind.CLIENT)]
    assert len({trace_id for trace_id, _ in found}) == 2


async def test_baggage_is_for_trusted_backends(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with traced_broker(backend(back.ways, trusted=True)) as (host, _), peer(host) as client:
        begun = await client.begin("tools/call", name="book", meta={"traceparent": PARENT, "baggage": "k=v;p=1,l=w"})
        line, request = await back.hear()
        await line.answer(request, **text("done"))
        await client.finish(begun)
    assert request["params"]["_meta"]["baggage"] == "k=v;p=1,l=w"


@pytest.mark.parametrize("code", [-32050, -32602])
async def test_every_error_of_a_backend_is_one_for_who_asked_it(code: int, autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with traced_broker(back.ways) as (host, spans), peer(host, R4) as client:
        begun = await client.begin("tools/call", name="book")
        line, request = await back.hear()
        await line.refuse(request, code, "secret")
        with pytest.raises(Refusal):
            await client.finish(begun)
    assert said(spans.back)["error.type"] == str(code)
    assert spans.back.status.status_code is StatusCode.ERROR
    assert spans.front.status.status_code is (StatusCode.ERROR if code == -32050 else StatusCode.UNSET)
    assert not any("secret" in str(span.to_json()) for span in spans), "its words may quote arguments"


async def test_a_backend_that_says_nothing_and_one_that_leaves(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with traced_broker(backend(back.ways, timeout=5)) as (host, spans), peer(host) as client:
        with pytest.raises(Refusal):
            await client.request("tools/call", name="book")
        await back.hear()
        begun = await client.begin("tools/call", name="book")
        line, _ = await back.hear()
        line.hang_up()
        with pytest.raises(Refusal):
            await client.finish(begun)
    found = [(said(span)["error.type"], span.status.status_code) for span in spans.of(SpanKind.CLIENT)]
    assert found == [("timeout", StatusCode.ERROR), ("connection_lost", StatusCode.ERROR)]


@pytest.mark.parametrize("behind", [R4, R5])
async def test_rounds_through_a_broker_are_linked(behind: Revision, autojump_clock: MockClock) -> None:
    back = Back(behind)
    async with traced_broker(back.ways) as (host, spans), peer(host, answers=ANSWERS) as client:
        begun = await client.begin("tools/call", name="book")
        line, request = await back.hear()
        if behind is R5:
            question = {"method": "elicitation/create", "params": {"mode": "form", **form()}}
            await line.answer(request, resultType="input_required", inputRequests={"q": question}, requestState="mine")
        else:
            await line.ask("elicitation/create", **form())
        asked = await client.finish(begun)
        begun = await client.begin("tools/call", name="book", **client.answered(asked))
        if behind is R5:
            line, request = await back.hear()
            assert request["params"]["requestState"] == "mine"
        await line.answer(request, **text("booked"))
        assert (await client.finish(begun))["content"] == text("booked")["content"]
    first, second = spans.of(SpanKind.SERVER)
    assert said(first)["callboard.result_type"] == "input_required"
    assert links_of(second) == [ids(first)[1]]
    backs = spans.of(SpanKind.CLIENT, "tools/call")
    parents = [ids(first)[1], ids(second)[1]] if behind is R5 else [ids(first)[1]]
    assert [parent_of(span) for span in backs] == parents, "a legacy backend was asked once"


# Whose context counts.


@pytest.mark.parametrize(
    ("accept", "principal", "is_taken"),
    [
        ("always", "anonymous", True),
        ("authenticated", "anonymous", False),
        ("authenticated", "ada", True),
        ("never", "ada", False),
    ],
)
async def test_strangers_do_not_choose_what_is_sampled(
    accept: Accept, principal: str, is_taken: bool, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr("callboard.actors.server.session.Session.transport", "http")
    back = Back(R4)
    spec = backend(back.ways, trusted=True)
    async with traced_broker(spec, accept=accept) as (host, spans), peer(host, principal=principal) as client:
        meta = {"traceparent": PARENT, "tracestate": "a=1", "baggage": "k=v"}
        begun = await client.begin("tools/call", name="book", meta=meta)
        line, request = await back.hear()
        await line.answer(request, **text("done"))
        await client.finish(begun)
    asked = request["params"]["_meta"]
    assert (parent_of(spans.front) == PARENT_ID) == is_taken
    assert ("tracestate" in asked, "baggage" in asked) == (is_taken, is_taken)
    assert asked["traceparent"].split("-")[2] == ids(spans.back)[1]


# What is wrong.


@pytest.mark.parametrize(
    "value",
    [
        *("", "00-x", PARENT + "\n", PARENT + "-more", PARENT.upper(), "ff" + PARENT[2:], PARENT.replace("-", "_")),
        *(f"00-{'0' * 32}-{PARENT_ID}-01", f"00-{TRACE_ID}-{'0' * 16}-01", "01" + PARENT[2:] + "-" + "x" * 500),
        *(7, None, True, ["00"], {"a": 1}, "\U0001f600" * 10, "x" * 100_000),
    ],
)
@ERAS
async def test_an_invalid_parent_is_dropped_and_counted_and_no_error(
    value: Any, revision: Revision, autojump_clock: MockClock
) -> None:
    spans = Spans()
    async with app.host() as host, peer(host, revision) as client:
        tracing = spans.trace(host)
        meta = {"traceparent": value, "tracestate": "a=1"}
        assert await client.request("tools/call", name="at_once", arguments={}, meta=meta)
    assert spans.front.parent is None
    assert tracing.dropped == {"traceparent": 1}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tracestate", "a"),
        ("tracestate", "A=1"),
        ("tracestate", "a=1,a=2"),
        ("tracestate", "a=1\r\nx: y"),
        ("tracestate", ",".join(f"k{number}=1" for number in range(33))),
        ("tracestate", "a=" + "1" * 256 + ",b=" + "2" * 256),
        ("tracestate", 5),
        ("baggage", "no pair"),
        ("baggage", "k=v\r\nx: y"),
        ("baggage", "k=" + "v" * 9000),
        ("baggage", "k=\u00e9"),
        ("baggage", []),
    ],
)
async def test_what_else_is_invalid_is_dropped_and_the_parent_stays(
    key: str, value: Any, autojump_clock: MockClock
) -> None:
    back = Back(R5)
    async with traced_broker(backend(back.ways, trusted=True)) as (host, spans), peer(host) as client:
        begun = await client.begin("tools/call", name="book", meta={"traceparent": PARENT, key: value})
        line, request = await back.hear()
        await line.answer(request, **text("done"))
        await client.finish(begun)
        assert host.tracer is not None
        assert host.tracer.dropped == {key: 1}
    assert parent_of(spans.front) == PARENT_ID
    assert key not in request["params"]["_meta"]


async def test_what_is_dropped_is_among_the_metrics(autojump_clock: MockClock) -> None:
    async with traced_server(app) as (host, _), peer(host) as client:
        for value in ("x", "y", PARENT):
            await client.request("tools/list", meta={"traceparent": value})
        metrics = b"".join(await ServerView(host, app).metrics())
    assert b'callboard_trace_context_dropped_total{key="traceparent"} 2\n' in metrics


VALUES = st.binary() | st.text().map(raw) | st.text("ab=;, \t\r\n01-").map(raw)


@given(st.dictionaries(st.sampled_from(["traceparent", "tracestate", "baggage"]), VALUES))
def test_anything_may_stand_there(meta: dict[str, Any]) -> None:
    found = ContextReader().in_meta({key: Raw(value) for key, value in meta.items()})
    assert found.parent is None or found.parent.is_valid
    assert found.baggage.isascii()
    assert not {"\r", "\n", "\0"} & set(found.baggage), "it goes into a header"


# Off.


@CROSSED
async def test_while_it_is_off_what_the_client_says_passes_through(
    front: Revision, behind: Revision, autojump_clock: MockClock
) -> None:
    back = Back(behind)
    keys = {"traceparent": "00-x", "tracestate": "no state", "baggage": "no pair"}
    async with brokered(back.ways) as host, peer(host, front) as client:
        begun = await client.begin("tools/call", name="book", meta=keys)
        line, request = await back.hear()
        await line.answer(request, **text("done"))
        await client.finish(begun)
    assert keys.items() <= request["params"]["_meta"].items()
