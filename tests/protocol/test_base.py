"""What every message of ours is: JSON-RPC, answered once, with the codes that its revision has."""

import contextlib
from typing import Any

import msgspec
import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

import callboard.errors as ours
from callboard.actors.frames import error_frame
from callboard.codecs.envelope import ErrorResponse, Notification, Request, ResultResponse, decode
from callboard.codecs.revisions import ERROR_CODES, MODERN, Revision
from callboard.codecs.revisions.meta import is_valid_meta_key
from callboard.codecs.revisions.revision import R4, R5
from callboard.server import Server
from callboard.server.content.errors import ToolError
from callboard.server.context import Context
from callboard.testing import Answer, Peer, Refusal
from tests.protocol.house import EVERY, hears_nothing, open_house, recorded, say_raw, text

server = Server("base", version="2")


@server.tool
async def busy(*, ctx: Context) -> str:
    """Says, reports and asks all there is."""
    await ctx.log("error", "working")
    await ctx.report(1, total=2)
    first, second = await ctx.ask_all(ctx.roots(), ctx.sample("Hello?", max_tokens=5))
    return f"{first[0].uri} {second.text}"


@server.tool
async def slow(seconds: float) -> str:
    await trio.sleep(seconds)
    return f"slept {seconds:g}"


@server.tool
async def fail() -> str:
    raise ToolError("no")


@server.resource("base://here")
async def here() -> str:
    return "here"


@server.prompt
async def say() -> str:
    return "Say it."


@server.completion("say", "x")
async def complete(value: str) -> list[str]:
    return [value]


ANSWERS: dict[str, Answer] = {
    "roots/list": lambda params: {"roots": [{"uri": "file:///home"}]},
    "sampling/createMessage": lambda params: {
        "role": "assistant",
        "model": "m",
        "content": {"type": "text", "text": "hi"},
    },
}


async def do_all(peer: Peer) -> None:
    """Let a client use everything, rightly and wrongly."""
    progress = {"progressToken": "t"}
    result = await peer.request("tools/call", name="busy", meta=progress)
    while result.get("resultType") == "input_required":
        result = await peer.request("tools/call", name="busy", **peer.answered(result), meta=progress)
    assert text(result) == "file:///home hi"
    await peer.call("fail")
    lists = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
    for method in (*lists, "ping", "server/discover", "no/such", "tools/call", "prompts/get", "resources/read"):
        with contextlib.suppress(Refusal):
            await peer.request(method)
    await peer.request("resources/read", uri="base://here")
    await peer.request("prompts/get", name="say")
    ref = {"type": "ref/prompt", "name": "say"}
    await peer.request("completion/complete", ref=ref, argument={"name": "x", "value": "v"})
    server.notify_changed("tools")
    await peer.request("tools/list")


@pytest.mark.requirement("M002", "M006", "M007", "M012", "M013", "M014", "M024", "L002", "L003", "L004", "L005")
@pytest.mark.requirement("L006", "L007", "L008", "L010")
@EVERY
async def test_all_that_is_said_is_json_rpc_and_every_request_is_answered_once(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision, answers=ANSWERS, log_level="debug")
        await do_all(peer)
        asked: list[Any] = []
        answered: list[Any] = []
        for frame in recorded(peer):
            assert frame["jsonrpc"] == "2.0"
            message = decode(msgspec.json.encode(frame))  # our own reader is strict
            match message:
                case Request(id=request_id):
                    assert isinstance(request_id, int)
                    asked.append(request_id)
                case ResultResponse(id=request_id):
                    assert set(frame) == {"jsonrpc", "id", "result"}
                    answered.append(request_id)
                case ErrorResponse(id=request_id, code=code, message=words):
                    assert isinstance(code, int)
                    assert words
                    answered.append(request_id)
                case Notification():
                    assert "id" not in frame
        assert len(asked) == len(set(asked))
        assert sorted(answered) == list(range(1, len(answered) + 1))  # each request of the peer's, once


@pytest.mark.requirement("M068", "M075", "M102", "M169", "M170")
async def test_a_modern_client_is_asked_by_results_only(autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(R5, answers=ANSWERS, log_level="debug")
        await do_all(peer)
        assert [frame for frame in recorded(peer) if "method" in frame and "id" in frame] == []
        assert any(frame.get("result", {}).get("resultType") == "input_required" for frame in recorded(peer))
        await peer.say({"id": 1, "result": {}})  # and nobody waits for an answer of its
        await hears_nothing(peer)


@pytest.mark.requirement("M008", "M038", "M041", "M042")
async def test_every_modern_result_says_what_it_is_and_who_answers(autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(R5, answers=ANSWERS)
        await do_all(peer)
        results = [frame["result"] for frame in recorded(peer) if "result" in frame]
        assert len(results) > 8
        for result in results:
            assert result["resultType"] in ("complete", "input_required")
            assert result["_meta"]["io.modelcontextprotocol/serverInfo"] == {"name": "base", "version": "2"}
            assert all(map(is_valid_meta_key, result["_meta"]))


@pytest.mark.requirement("M023", "L009")
@EVERY
async def test_a_notification_is_never_answered(revision: Revision, autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision)
        for method in ("notifications/cancelled", "notifications/progress", "notifications/no-such", "tools/list", ""):
            for params in ("{}", '{"_meta":7}', '{"requestId":{}}', '{"progressToken":[],"progress":"x"}'):
                await say_raw(peer, f'{{"jsonrpc":"2.0","method":"{method}","params":{params}}}')
        await hears_nothing(peer)


OURS = [
    error
    for error in vars(ours).values()
    if isinstance(error, type) and issubclass(error, ours.PeerError | ours.RequestFailed)
    if error is not ours.BackendRefused  # which has another's code: what becomes of that is the crossing's to say
]


@pytest.mark.requirement("M015", "M016", "M017", "M018", "M019", "M020", "M021", "M022", "L137")
@pytest.mark.parametrize("error", OURS, ids=lambda error: error.__name__)
@EVERY
def test_no_code_is_sent_to_a_revision_that_does_not_have_it(revision: Revision, error: type[Exception]) -> None:
    with capture_logs():
        sent = msgspec.json.decode(error_frame(1, revision, error.__new__(error)))["error"]["code"]
    own = not -32768 <= sent <= -32000
    json_rpc = sent in (-32700, -32600, -32601, -32602, -32603)
    assert own or json_rpc or revision in ERROR_CODES[sent].emitted
    assert not -32019 <= sent <= -32000 or (sent == -32002 and revision not in MODERN)
    assert sent != -32042 or error is ours.UrlRequired


@pytest.mark.requirement("M012")
@EVERY
async def test_an_error_has_no_id_only_where_none_could_be_read(revision: Revision, autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(revision)
        for frame, expected in (
            (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', None),
            (b'{"jsonrpc":"2.0","id":77,"method":7}', 77),
            (b'{"jsonrpc":"2.0","id":78,"method":"no/such","params":{"_meta":1}}', 78),
            (b"{", None),
        ):
            await peer.connection.send(frame)
            refused = await peer.hear()
            assert refused.get("id") == expected
            assert ("id" in refused) == (expected is not None)


@pytest.mark.requirement("M025", "M035")
async def test_a_modern_request_relies_on_nothing_that_came_before_it(autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(R4, answers=ANSWERS)  # a legacy session that can do everything
        bare = Peer(peer.connection, R5, capabilities={})
        bare._ids = peer._ids
        with pytest.raises(Refusal) as refused:
            await bare.call("busy")
        assert refused.value.code == -32021
        able = Peer(peer.connection, R5, answers=ANSWERS)
        able._ids = peer._ids
        assert text(await able.call("busy")) == "file:///home hi"
        with pytest.raises(Refusal, match="-32021"):
            await bare.call("busy")
        assert text(await peer.call("busy")) == "file:///home hi"


@pytest.mark.requirement("M028")
async def test_conversations_share_a_connection_and_none_waits_for_another(autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(R5)
        ids = {
            seconds: await peer.begin("tools/call", name="slow", arguments={"seconds": seconds})
            for seconds in (3, 1, 2)
        }
        ends = []
        for _ in ids:
            message = await peer.hear()
            ends.append((message["id"], trio.current_time()))
        assert [request_id for request_id, _ in ends] == [ids[1], ids[2], ids[3]]


@pytest.mark.requirement("M039")
async def test_who_a_client_says_it_is_changes_nothing(autojump_clock: MockClock) -> None:
    async with open_house(server) as house:
        peer = await house.peer(R5)
        plain = await peer.request("tools/list")
        claim = {"io.modelcontextprotocol/clientInfo": {"name": "admin", "version": "root"}}
        assert await peer.request("tools/list", meta=claim) == plain
        await peer.say(
            {
                "id": 99,
                "method": "tools/list",
                "params": {
                    "_meta": {
                        "io.modelcontextprotocol/protocolVersion": R5.value,
                        "io.modelcontextprotocol/clientCapabilities": {},
                    }
                },
            }
        )
        assert (await peer.finish(99)) == plain


@pytest.mark.requirement("M043", "L012")
@pytest.mark.parametrize("revision", [R4, R5], ids=str)
async def test_reserved_keys_that_are_not_known_may_hold_anything(
    revision: Revision, autojump_clock: MockClock
) -> None:
    strange = {
        "io.modelcontextprotocol/future": [1, {"a": None}],
        "io.modelcontextprotocol/related-task": 7,
        "dev.mcp/x": None,
        "traceparent": "not a trace",
        "baggage": {},
    }
    async with open_house(server) as house:
        peer = await house.peer(revision)
        assert text(await peer.request("tools/call", name="slow", arguments={"seconds": 0}, meta=strange)) == "slept 0"
