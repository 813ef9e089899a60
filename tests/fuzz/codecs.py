"""The codecs under fire: for each, some good frames, and what reading one means.

Reading returns a value that says what was read, so that two ways of reading the same bytes can be compared. A
`PeerError` is an answer too; any other exception is a bug.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import msgspec

from callboard.codecs.canonical import canonical
from callboard.codecs.envelope import Notification, Request, ResultResponse, decode, encode, split_batch
from callboard.codecs.json_schema import check_schema
from callboard.codecs.lines import LineDecoder
from callboard.codecs.linked_data import CONTEXT_URL, from_jsonld, from_turtle, to_turtle
from callboard.codecs.mcp_headers.header_map import HeaderMap
from callboard.codecs.mcp_headers.header_values import decode_value, encode_value
from callboard.codecs.mcp_headers.mirror import check_mirror
from callboard.codecs.revisions.messages import read_params, read_result
from callboard.codecs.revisions.revision import Revision
from callboard.codecs.routing import read_route
from callboard.codecs.seal import KeyRing
from callboard.codecs.sse import EventDecoder, encode_event
from callboard.codecs.state import Binding, open_, seal
from callboard.codecs.uri_template.template import UriTemplate
from callboard.errors import ParseError, PeerError
from tests.fuzz import requests

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    "progressToken": 7,
}
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "x-mcp-header": "City"},
        "where": {"type": "object", "properties": {"zone": {"type": "integer", "x-mcp-header": "Zone"}}},
        "all": {"allOf": [{"$ref": "#/$defs/a"}], "items": {"anyOf": [{}, {"not": {}}]}},
    },
    "$defs": {"a": {"minimum": 1}},
}
MESSAGES: tuple[dict[str, Any], ...] = (
    {"id": 1, "method": "tools/call", "params": {"name": "f", "arguments": {"n": [1, 2.5e3, -0.0]}, "_meta": META}},
    {"id": "a", "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {"roots": {}}}},
    {"id": 2, "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 9, "temperature": 0.5}},
    {"id": 3, "method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"properties": {}}}},
    {"method": "notifications/progress", "params": {"progressToken": "t", "progress": 0.5, "total": 1}},
    {"id": 4, "result": {"content": [{"type": "text", "text": 'héllo \\ "x" \u2028'}], "resultType": "complete"}},
    {"id": 5, "result": {"tools": [{"name": "t", "inputSchema": SCHEMA}], "ttlMs": 5, "cacheScope": "public"}},
    {"id": 6, "error": {"code": -32022, "message": "m", "data": {"supported": ["2026-07-28"], "requested": "1"}}},
)
FRAMES = tuple(
    json.dumps({"jsonrpc": "2.0", **m}, separators=(",", ":"), ensure_ascii=False).encode() for m in MESSAGES
)
SPACED = tuple(json.dumps({"jsonrpc": "2.0", **m}, indent=1).encode() for m in MESSAGES)
# To a framing a frame is bytes like any others, and it is fed them one by one.
SHORT = tuple(sorted(FRAMES, key=len)[:3])


@attrs.frozen
class Codec:
    """One codec: frames to start from, how to read one, and another way that must read the same."""

    corpus: tuple[bytes, ...]
    read: Callable[[bytes], object]
    again: Callable[[bytes], object] | None = None


def answer(read: Callable[[Any], object], frame: Any) -> object:
    """What reading *frame* comes to, refusals included."""
    try:
        return read(frame)
    except PeerError as error:
        return type(error), str(error)


def _json(frame: bytes) -> Any:
    try:
        return msgspec.json.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ParseError("not JSON") from None


def _object(frame: bytes) -> dict[str, Any]:
    value = _json(frame)
    return value if isinstance(value, dict) else {}


def _envelope(frame: bytes) -> bytes:
    """Read, write, read again: the second reading must find nothing new."""
    message = decode(frame)
    if isinstance(message, Request | Notification):
        read_route(message)
    written = encode(message)
    if encode(decode(written)) != written:
        raise AssertionError("a message that we wrote reads differently")
    json.loads(written)
    return written


def _models(frame: bytes) -> None:
    message = decode(frame)
    value = _json(frame)
    for revision in Revision:
        if isinstance(message, Request | Notification):
            answer(partial(read_params, revision, message.method), value.get("params", {}))
        elif isinstance(message, ResultResponse):
            for method in ("tools/call", "tools/list", "elicitation/create", "resources/read"):
                answer(partial(read_result, revision, method), value["result"])


def _lines(frame: bytes, step: int) -> list[object]:
    decoder = LineDecoder(limit=150)
    found = [item for at in range(0, len(frame), step) for item in decoder.feed(frame[at : at + step])]
    return [item if isinstance(item, bytes) else type(item) for item in found + decoder.finish()]


def _events(frame: bytes, step: int) -> object:
    decoder = EventDecoder(limit=150)
    found = [item for at in range(0, len(frame), step) for item in decoder.feed(frame[at : at + step])]
    seen = [type(item) if isinstance(item, PeerError) else item for item in found]
    return seen, decoder.comments, decoder.retry, decoder.last_event_id


def _header_value(frame: bytes) -> str:
    text = decode_value(frame)
    if decode_value(encode_value(text)) != text:
        raise AssertionError("a value that we wrote reads differently")
    return text


def _headers(frame: bytes) -> None:
    lines = [line.partition(b": ") for line in frame.split(b"\r\n")]
    params = {"name": msgspec.Raw(b'"f"'), "arguments": msgspec.Raw(b'{"city":"Oslo","where":{"zone":3}}')}
    headers = [(name, value) for name, _, value in lines]
    check_mirror(
        headers, version="2026-07-28", method="tools/call", params=params, header_map=HeaderMap.compile(SCHEMA)
    )


def _schema(frame: bytes) -> None:
    schema = _object(frame)
    HeaderMap.compile(schema)
    check_schema(schema)


RING = KeyRing.from_bytes(bytes(32))
BINDING = Binding("alice", "https://example.com/mcp", "tools/call", b"digest")
STATES = tuple(seal(RING, BINDING, b"x" * size, round_number=1, now=0, ttl=600).encode() for size in (0, 9, 300))


def _state(frame: bytes) -> None:
    text = frame.decode("utf-8", "replace")
    opened = open_(RING, text, BINDING, now=1)
    if frame not in STATES:
        raise AssertionError(f"a forged state was opened: {opened}")


TEMPLATES = (b"weather://{city}/now", b"file:///{+path}", b"db://{table}{?limit,offset}", b"x{/a,b}{#c}{&d*}{e:3}")
URIS = (b"weather://oslo/now", b"file:///a/b%20c", b"db://t?limit=5&offset=%C3%A9", b"x/1/2#f")
PARSED = tuple(UriTemplate.parse(text.decode()) for text in TEMPLATES[:3])  # the last one is for expansion only


def _template(frame: bytes) -> object:
    template = UriTemplate.parse(frame.decode("utf-8", "replace"))
    return template.expand(**dict.fromkeys(template.variables, "é/ x"))


def _uri(frame: bytes) -> object:
    return [template.match(frame.decode("utf-8", "replace")) for template in PARSED]


CODECS: dict[str, Codec] = {
    "envelope": Codec(FRAMES + SPACED, _envelope),
    "models": Codec(FRAMES, _models),
    "lines": Codec(
        tuple(b"\n".join(SHORT[n:]) + b"\n" for n in range(3)), lambda f: _lines(f, 1 << 20), lambda f: _lines(f, 1)
    ),
    "sse": Codec(
        tuple(b": hi\n\n" + encode_event(f, event_id="7", retry=5) + encode_event(b"a\nb", event="e") for f in SHORT),
        lambda f: _events(f, 1 << 20),
        lambda f: _events(f, 1),
    ),
    "batch": Codec(
        tuple(b"[" + b",".join(FRAMES[n:]) + b"]" for n in range(6)),
        lambda f: [answer(decode, m) for m in split_batch(f)],
    ),
    "header values": Codec((b"plain text", b"=?base64?SGVsbG8sIOS4lueVjA==?=", b"42", b"true"), _header_value),
    "mirrored headers": Codec(
        (
            b"mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: f\r\n%b"
            % b"mcp-param-city: Oslo\r\nmcp-param-zone: 3",
        ),
        _headers,
    ),
    "schemas": Codec((json.dumps(SCHEMA).encode(), b"{}"), _schema),
    "canonical JSON": Codec(FRAMES + SPACED, lambda f: canonical(canonical(f))),
    "request state": Codec(STATES, _state),
    "URI templates": Codec(TEMPLATES, _template),
    "URIs": Codec(URIS, _uri),
    "Turtle": Codec(
        tuple(to_turtle(json.loads(f)).encode() for f in FRAMES[:5]),
        lambda f: from_turtle(f.decode("utf-8", "replace")),
    ),
    "HTTP requests": Codec(requests.SMALL, requests.lump, requests.byte_by_byte),
    "JSON-LD": Codec(
        tuple(b'{"@context":"%b",' % CONTEXT_URL.encode() + f[1:] for f in FRAMES), lambda f: from_jsonld(_object(f))
    ),
}
