"""What goes in as a message comes out as the same message, and the payload as the same bytes."""

import json
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from msgspec import UNSET

from callboard.codecs.envelope import Envelope, ErrorResponse, Notification, Request, ResultResponse, decode, encode
from callboard.codecs.members import raw, write_members
from callboard.errors import InvalidRequest, ParseError, PeerError
from tests.codecs.strategies import messages, spell, spellings

CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"n":1.50,"s":"\\u0041"}}}'


def test_a_request_keeps_its_id_method_and_raw_params() -> None:
    request = decode(CALL)
    assert isinstance(request, Request)
    assert (request.id, request.method) == (1, "tools/call")
    assert request.params is not UNSET
    assert bytes(request.params["arguments"]) == b'{"n":1.50,"s":"\\u0041"}'


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (CALL, Request),
        (b'{"jsonrpc":"2.0","id":"a","method":"ping"}', Request),
        (b'{"jsonrpc":"2.0","method":"notifications/initialized"}', Notification),
        (b'{"jsonrpc":"2.0","id":0,"result":{}}', ResultResponse),
        (b'{"jsonrpc":"2.0","id":-3,"error":{"code":-32602,"message":"no","data":[1, 2]}}', ErrorResponse),
        (b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"what?"}}', ErrorResponse),
    ],
)
def test_every_kind_is_told_apart_and_written_back_byte_for_byte(frame: bytes, kind: type) -> None:
    message = decode(frame)
    assert type(message) is kind
    assert encode(message) == frame


def test_payload_bytes_survive_a_new_id_and_a_new_name_untouched() -> None:
    odd = b'{ "a" : 1.50 , "b":"\\u0041\\/" , "c":[1e2 ,\t-0.0] }'
    request = decode(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x__y","arguments":%b}}' % odd)
    assert isinstance(request, Request)
    assert request.params is not UNSET
    forwarded = encode(msgspec.structs.replace(request, id="b-7", params={**request.params, "name": raw("y")}))
    assert forwarded == b'{"jsonrpc":"2.0","id":"b-7","method":"tools/call","params":{"name":"y","arguments":%b}}' % odd


def test_a_message_without_params_has_no_members() -> None:
    for frame in (b'{"jsonrpc":"2.0","id":1,"method":"a"}', b'{"jsonrpc":"2.0","method":"a"}'):
        message = decode(frame)
        assert isinstance(message, Request | Notification)
        assert message.members == {}
        said = decode(frame[:-1] + b',"params":{"b":1}}')
        assert isinstance(said, Request | Notification)
        assert said.members is said.params


def test_error_data_survives_untouched() -> None:
    frame = b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","data":{ "x" : 1.0 }}}'
    assert encode(decode(frame)) == frame


@given(messages, spellings)
def test_any_message_in_any_spelling_round_trips(message: dict[str, Any], spelling: dict[str, Any]) -> None:
    assert json.loads(encode(decode(spell(message, **spelling)))) == message


@given(messages)
def test_a_compact_message_comes_back_byte_for_byte(message: dict[str, Any]) -> None:
    frame = spell(message)
    once = encode(decode(frame))
    assert encode(decode(once)) == once


def test_ids_keep_their_json_type() -> None:
    def request_id(text: str) -> object:
        message = decode(f'{{"jsonrpc":"2.0","id":{text},"method":"ping"}}'.encode())
        assert isinstance(message, Request)
        return message.id

    assert request_id("1") == 1
    assert request_id('"1"') == "1"
    assert request_id("1") != request_id('"1"')
    assert len({request_id("1"), request_id('"1"')}) == 2


def test_an_error_with_a_null_id_is_an_error_without_one() -> None:
    message = decode(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}')
    assert isinstance(message, ErrorResponse)
    assert message.id is None
    assert b'"id"' not in encode(message)


@pytest.mark.parametrize(
    ("frame", "error", "request_id"),
    [
        (b'{"jsonrpc":"2.0","id":5,"method":"x","params":[1]}', InvalidRequest, 5),
        (b'{"jsonrpc":"2.0","id":"s","method":"x","params":"y"}', InvalidRequest, "s"),
        (b'{"jsonrpc":"2.0","id":5,"method":7}', InvalidRequest, 5),
        (b'{"jsonrpc":"1.0","id":5,"method":"x"}', InvalidRequest, 5),
        (b'{"id":5,"method":"x"}', InvalidRequest, 5),
        (b'{"jsonrpc":"2.0","id":5}', InvalidRequest, 5),
        (b'{"jsonrpc":"2.0","result":{}}', InvalidRequest, None),
        (b'{"jsonrpc":"2.0","id":null,"result":{}}', InvalidRequest, None),
        (b'{"jsonrpc":"2.0","id":5,"result":[]}', InvalidRequest, 5),
        (b'{"jsonrpc":"2.0","id":5,"result":{},"error":{"code":1,"message":"m"}}', InvalidRequest, 5),
        (b'{"jsonrpc":"2.0","id":5,"method":"x","result":{}}', InvalidRequest, 5),
        (b'{"jsonrpc":"2.0","id":5,"error":{"code":"1","message":"m"}}', InvalidRequest, 5),
        (b'{"jsonrpc":"2.0","id":5,"error":{"code":1}}', InvalidRequest, 5),
        (b'{"jsonrpc":"2.0","id":5,"method":null}', InvalidRequest, 5),
        (b'{"jsonrpc":"2.0","id":5,"result":null}', InvalidRequest, 5),
        (b'{"jsonrpc":"2.0","id":null,"method":"x","params":null}', InvalidRequest, None),
        (b'{"jsonrpc":"2.0","id":5,"method":"x","params":null,"params":{}}', InvalidRequest, None),
        (b'{"jsonrpc":"2.0","id":9007199254740993,"method":7}', InvalidRequest, 9007199254740993),
        (b'{"jsonrpc":"2.0","id":5,"method":"x","params":{"a":1e400}}', ParseError, 5),
        (b'{"jsonrpc":"2.0","id":5,"method":"x"', ParseError, None),
    ],
)
def test_a_refusal_carries_the_id_where_it_can_be_read(
    frame: bytes, error: type[PeerError], request_id: object
) -> None:
    with pytest.raises(error) as refused:
        decode(frame)
    assert type(refused.value) is error
    assert refused.value.request_id == request_id


@pytest.mark.parametrize(
    "frame",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"ping","x":%b}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{},"x":%b}',
        b'{"jsonrpc":"2.0","id":1,"result":{},"params":{"x":%b}}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","x":%b}}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","data":%b}}',
    ],
)
@pytest.mark.parametrize("value", [b"1e400", b"9" * 5000, b"[" * 63 + b"]" * 63, b'[{"a":' * 400 + b"1" + b"}]" * 400])
def test_what_no_message_has_is_judged_all_the_same(frame: bytes, value: bytes) -> None:
    decode(frame % b"[1]")
    with pytest.raises(ParseError) as refused:
        decode(frame % (b"[%b]" % value))
    assert refused.value.request_id == 1


def test_an_envelope_that_says_something_twice_has_no_id() -> None:
    """Either id could be that of another request in flight, which an error would end."""
    with pytest.raises(InvalidRequest) as refused:
        decode(b'{"jsonrpc":"2.0","method":"ping","id":12,"id":1}')
    assert refused.value.request_id is None


def test_a_frame_at_the_very_limit_of_the_stack_is_refused_like_any_other() -> None:
    for levels in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit()):
        brackets = b"[" * levels + b"]" * levels
        for params in (b'{"a":%b}', b'{"a":%b,"a":1}', b'{"a":{"b":%b,"c":"\\\\"}}'):
            with pytest.raises(PeerError):
                decode(b'{"jsonrpc":"2.0","id":1,"method":"m","params":%b}' % (params % brackets))


def test_a_refusal_does_not_echo_what_the_peer_wrote() -> None:
    with pytest.raises(InvalidRequest) as refused:
        decode(b'{"jsonrpc":"%b","id":1,"method":"ping"}' % (b"x" * 2**20))
    assert len(str(refused.value)) < 256


def test_envelopes_are_values() -> None:
    one: Envelope = Request(1, "ping")
    assert one == Request(1, "ping")
    assert one != Request("1", "ping")
    with pytest.raises(AttributeError):
        one.method = "pong"  # type: ignore[misc]  # this is what is tested


@pytest.mark.finding("protocol-1.11")
@pytest.mark.parametrize("request_id", [2**53 - 1, 2**53, 2**53 + 1, -(2**63), 2**64, 10**40, -(10**40)])
def test_an_id_comes_back_as_it_was_however_large(request_id: int) -> None:
    frame = b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % request_id
    message = decode(frame)
    assert message == Request(request_id, "ping")
    assert encode(message) == frame


@pytest.mark.finding("protocol-1.11")
@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":null}', Request(1, "tools/list")),
        (b'{"jsonrpc": "2.0", "params": null, "method": "custom", "id": 1}', Request(1, "custom")),
        (
            b'{"jsonrpc":"2.0","method":"notifications/initialized","params":null}',
            Notification("notifications/initialized"),
        ),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","result":null,"error":null}', Request(1, "ping")),
        (b'{"jsonrpc":"2.0","id":1,"result":{},"error":null}', ResultResponse(1, {})),
        (b'{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1,"message":"m"}}', ErrorResponse(1, 1, "m")),
    ],
)
def test_null_for_an_absent_member_of_a_message_is_taken_for_absent(written: bytes, meant: object) -> None:
    assert decode(written) == meant


CAPABLE = b'"io.modelcontextprotocol/clientCapabilities":{"roots":null}'


@pytest.mark.finding("protocol-1.11")
@pytest.mark.parametrize(
    ("method", "written", "meant"),
    [
        ("tools/list", b'{"cursor":null}', b"{}"),
        ("tools/list", b'{"_meta":null}', b"{}"),
        ("tools/call", b'{"name":"a","arguments":null}', b'{"name":"a"}'),
        (
            "tools/call",
            b'{"name":"a","arguments":null,"task":null,"inputResponses":null,"requestState":null}',
            b'{"name":"a"}',
        ),
        ("tools/call", b'{"name":"a","arguments":{"x":null}}', b'{"name":"a","arguments":{"x":null}}'),
        ("tools/call", b'{"name":null}', b'{"name":null}'),
        ("tools/call", b'{"name":"a","unknown":null}', b'{"name":"a","unknown":null}'),
        ("tools/call", b'{"name":"null"}', b'{"name":"null"}'),
        (
            "tools/call",
            b'{"name":"a","_meta":{"progressToken":null,"a.b/c":null}}',
            b'{"name":"a","_meta":{"a.b/c":null}}',
        ),
        (
            "tools/list",
            b'{"_meta":{"io.modelcontextprotocol/clientInfo":null,%b}}' % CAPABLE,
            b'{"_meta":{%b}}' % CAPABLE,
        ),
        (
            "tools/call",
            b'{"name":"a","inputResponses":{"k":{"action":"accept","content":null}}}',
            b'{"name":"a","inputResponses":{"k":{"action":"accept"}}}',
        ),
        (
            "completion/complete",
            b'{"ref":{"type":"ref/prompt","name":"p","title":null},"context":{"arguments":null}}',
            b'{"ref":{"type":"ref/prompt","name":"p"},"context":{}}',
        ),
        ("completion/complete", b'{"context":null,"ref":[null]}', b'{"ref":[null]}'),
        ("notifications/message", b'{"level":"info","logger":null,"data":null}', b'{"level":"info","data":null}'),
        (
            "notifications/progress",
            b'{"progressToken":1,"progress":1,"total":null}',
            b'{"progressToken":1,"progress":1}',
        ),
        ("notifications/tasks/status", b'{"taskId":"t","ttl":null,"statusMessage":null}', b'{"taskId":"t","ttl":null}'),
        ("custom/thing", b'{"cursor":null}', b'{"cursor":null}'),
    ],
)
def test_null_for_an_absent_member_of_params_is_left_out(method: str, written: bytes, meant: bytes) -> None:
    message = decode(b'{"jsonrpc":"2.0","id":1,"method":"%b","params":%b}' % (method.encode(), written))
    assert isinstance(message, Request)
    assert message.params is not UNSET
    assert write_members(message.params) == meant


TEXTS = ["x", "x" * 20_000, 'say \\"[{\\" \\\\\\n' * 5_000]
"""Inside a string: a short text, a long one, and a long one that is full of escapes and brackets."""


def spelled(shape: str, text: str, *, is_spaced: bool, **values: str) -> bytes:
    """A message with `@text` and other values in it, with a space after every comma and colon of *shape* if wanted."""
    spaced = shape.replace(",", ", ").replace(":", " : ") if is_spaced else shape
    for name, value in {"text": text, **values}.items():
        spaced = spaced.replace(f"@{name}", value)
    return spaced.encode()


@pytest.mark.parametrize("is_spaced", [False, True])
@pytest.mark.parametrize("text", TEXTS, ids=["short", "long", "escapes"])
@pytest.mark.parametrize(
    "shape",
    [
        '{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":{"text":"@text"},"b":@deep}}',
        '{"jsonrpc":"2.0","id":7,"method":"m","params":{"b":@deep,"a":"@text"}}',
        '{"result":{"content":[{"type":"text","text":"@text"}],"b":@deep},"id":7,"jsonrpc":"2.0"}',
    ],
)
def test_the_deepest_level_is_the_same_in_every_message(shape: str, text: str, is_spaced: bool) -> None:
    def deep(levels: int) -> bytes:
        return spelled(shape, text, is_spaced=is_spaced, deep="[" * levels + "]" * levels)

    decode(deep(62))
    with pytest.raises(ParseError, match="nested") as refused:
        decode(deep(63))
    assert refused.value.request_id == 7


@pytest.mark.parametrize("is_spaced", [False, True])
@pytest.mark.parametrize("text", TEXTS, ids=["short", "long", "escapes"])
@pytest.mark.parametrize(
    ("shape", "request_id"),
    [
        ('{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":"@text","b":1,"a":1}}', 7),
        ('{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":1,"b":1,"\\u0061":"@text"}}', 7),
        ('{"jsonrpc":"2.0","id":7,"result":{"a":"@text","a":"@text"}}', 7),
        ('{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":"@text"},"params":{"b":1}}', None),
        ('{"jsonrpc":"2.0","id":7,"method":"m","params":{"b":1},"params":{"a":"@text"}}', None),
        ('{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":"@text"},"id":7}', None),
        ('{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":"@text"},"jsonrpc":"2.0"}', None),
        ('{"jsonrpc":"2.0","id":7,"method":"m","x":1,"params":{"a":"@text"},"x":1}', None),
    ],
)
def test_a_key_that_stands_twice_is_refused_in_every_message(
    shape: str, request_id: int | None, text: str, is_spaced: bool
) -> None:
    with pytest.raises(InvalidRequest, match="duplicate key") as refused:
        decode(spelled(shape, text, is_spaced=is_spaced))
    assert refused.value.request_id == request_id


@pytest.mark.parametrize("text", TEXTS, ids=["short", "long", "escapes"])
def test_spaces_change_nothing_but_the_bytes(text: str) -> None:
    shapes = (
        '{"jsonrpc":"2.0","id":"7","method":"tools/call","params":{"name":"n","arguments":{"t":"@text"},"_meta":null}}',
        '{"method":"notifications/message","jsonrpc":"2.0","params":{"level":"info","data":["@text",null]}}',
        '{"id":7,"result":{"content":[],"é":"@text"},"jsonrpc":"2.0"}',
        '{"id":7,"result":{"content":["@text"]},"jsonrpc":"2.0","params":{"a":1}}',
    )
    for shape in shapes:
        tight, spaced = (decode(spelled(shape, text, is_spaced=wide)) for wide in (False, True))
        assert type(tight) is type(spaced)
        assert json.loads(encode(tight)) == json.loads(encode(spaced))
