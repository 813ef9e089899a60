"""Hostile frames, row by row: what each one is answered, and that none of them takes the loop's time.

The rows are those of the project's promises. Those that only an actor can decide (it takes two requests in flight, or a
direction) are named here with where they are decided, so that none is forgotten.
"""

import contextlib
import json
import re
import time
from collections.abc import Callable

import pytest

from callboard.codecs.envelope import Notification, Request, decode, encode, split_batch
from callboard.codecs.json_schema import check_schema
from callboard.codecs.lines import MAX_FRAME, LineDecoder
from callboard.codecs.mcp_headers.mirror import check_mirror
from callboard.codecs.revisions.messages import read_result
from callboard.codecs.revisions.methods import method_of
from callboard.codecs.revisions.revision import R5
from callboard.codecs.routing import read_route
from callboard.errors import FrameTooLarge, InvalidDefinition, InvalidParams, MethodNotFound, PeerError
from tests.shared import PROTOCOL, needs_protocol

STALL = 0.05
"""Longest that one frame may keep the event loop, in seconds."""
SHARED = 2
"""How much slower than promised it may be here: tests share the machine, its caches and its cores with others."""


def call(params: str, id: str = "1") -> bytes:
    return f'{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}'.encode()


def nested(opening: str, closing: str, levels: int) -> bytes:
    return call(f'{{"arguments":{opening * levels}1{closing * levels}}}')


def ping(id: str) -> bytes:
    return f'{{"jsonrpc":"2.0","id":{id},"method":"ping"}}'.encode()


FRAMES: list[tuple[str, bytes, int]] = [
    *(
        ("not JSON, truncated, trailing data, empty line", frame, -32700)
        for frame in (b"hello", b"", b" ", call("{}")[:-1], call("{}") + b"x", call("{}") + b"{}", b"{'a':1}", b"\x00")
    ),
    ("depth > 64", nested("[", "]", 65), -32700),
    ("depth > 64", nested('{"a":', "}", 65), -32700),
    ("depth > 64", nested('["]",', ',"["]', 65), -32700),
    ("depth > 64", nested("[", "]", 900), -32700),
    ("depth > 64", nested("[", "]", 200_000), -32700),
    ("depth > 64", b"[" * 100_000, -32700),
    ("depth > 64", call('{"arguments":{"a":%s,"a":"\\\\"}}' % ("[" * 100 + "]" * 100)), -32700),
    ("depth > 64", ping("1")[:-1] + b',"x":' + b"[" * 64 + b"]" * 64 + b"}", -32700),
    ("int > 4300 digits", call(f'{{"n":{"9" * 4301}}}'), -32700),
    *(
        ("NaN, Infinity, 1e400", call(f'{{"arguments":{{"n":{number}}}}}'), -32700)
        for number in ("NaN", "Infinity", "-Infinity", "1e400", "-1E+400", "0.1e999", "1" + "0" * 400 + ".0")
    ),
    *(
        ('duplicate keys `{"id":1,"id":2}`', frame, -32600)
        for frame in (
            b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}',
            b'{"jsonrpc":"2.0","id":1,"\\u0069d":1,"method":"ping"}',
            b'{"jsonrpc":"2.0", "id": 1, "method":"ping", "method":"tools/call"}',
            call('{"name":"a","name":"b"}'),
            call('{ "name" : "a" , "name" : "a" }'),
            call('{"_meta":{"progressToken":1,"progressToken":2}}'),
            call('{"_meta":{"progressToken":12,"progressToken":1}}'),
            b'{"jsonrpc":"2.0","method":"ping","id":12,"id":1}',
        )
    ),
    *(("lone surrogate", call(f'{{"a":"{text}"}}'), -32700) for text in (r"\ud800", r"\udc00x", r"\ud800\u0041")),
    *(
        ("bad UTF-8; UTF-16; BOM", frame, -32700)
        for frame in (
            call('{"a":"x"}').replace(b"x", b"\xff"),
            call('{"a":"x"}').replace(b"x", b"\xed\xa0\x80"),
            call("{}").decode().encode("utf-16"),
            call("{}").decode().encode("utf-16-le"),
            b"\xef\xbb\xbf" + call("{}"),
        )
    ),
    ("4 MiB of small ints", call('{"arguments":{"n":[%s]}}' % ",".join(["1"] * 2_000_000)), -32600),
    ("batch array outside a 2025-03-26 session", b"[" + call("{}") + b"," + call("{}") + b"]", -32600),
    ("batch array outside a 2025-03-26 session", b"[]", -32600),
    *(
        ("id null / bool / float / object", ping(text), -32600)
        for text in ("null", "true", "false", "1.0", "1.5", "1e0", "{}", "[1]")
    ),
    *(
        ("`params` list / string, `method` 1 MiB, `_meta` wrong type", frame, code)
        for frame, code in (
            (call("[1]"), -32600),
            (call('"x"'), -32600),
            (call('{"_meta":[]}'), -32602),
            (call('{"_meta":"x"}'), -32602),
            (call('{"name":["x"]}'), -32602),
        )
    ),
]


def read(frame: bytes) -> None:
    """What every edge does with a frame before it knows anything else about it."""
    message = decode(frame)
    if isinstance(message, Request | Notification):
        read_route(message)


@pytest.mark.requirement("M002", "L002", "L004")
@pytest.mark.parametrize(("row", "frame", "code"), FRAMES, ids=[f"{row}-{len(frame)}B" for row, frame, _ in FRAMES])
def test_a_hostile_frame_has_one_answer(row: str, frame: bytes, code: int) -> None:
    with pytest.raises(PeerError) as refused:
        read(frame)
    assert refused.value.code == code, row


def test_int_beyond_2_53_passes_unchanged_in_params_but_not_in_a_mirrored_header() -> None:
    frame = call('{"name":"t","arguments":{"n":123456789012345678901234567890}}')
    request = decode(frame)
    assert isinstance(request, Request)
    assert encode(request) == frame

    from callboard.codecs.mcp_headers.header_map import HeaderMap

    header_map = HeaderMap.compile({"properties": {"n": {"type": "integer", "x-mcp-header": "N"}}})
    headers = [
        (b"mcp-protocol-version", b"2026-07-28"),
        (b"mcp-method", b"tools/call"),
        (b"mcp-name", b"t"),
        (b"mcp-param-n", b"123456789012345678901234567890"),
    ]
    with pytest.raises(PeerError) as refused:
        check_mirror(headers, version="2026-07-28", method="tools/call", params=request.params, header_map=header_map)
    assert refused.value.code == -32020


def test_nan_and_infinity_are_never_emitted() -> None:
    for number in (float("nan"), float("inf")):
        frame = encode(Request(1, "m", {"n": number}))  # type: ignore[dict-item]  # what a careless caller might do
        json.loads(frame, parse_constant=pytest.fail)


def test_u2028_and_x85_inside_a_frame_do_not_split_it() -> None:
    frame = call('{"a":"\u2028\u0085\x7f"}')
    assert LineDecoder().feed(frame + b"\n") == [frame]
    read(frame)


def test_a_frame_over_4_mib_is_skipped_to_its_newline_and_the_next_is_read() -> None:
    too_long, *rest = LineDecoder().feed(b"[" * (MAX_FRAME + 1) + b"\n" + ping("1") + b"\n")
    assert isinstance(too_long, FrameTooLarge)
    assert too_long.code == -32600
    assert rest == [ping("1")]


def test_a_blank_line_is_ignored() -> None:
    assert LineDecoder().feed(b"\n \n\r\n" + ping("1") + b"\n") == [ping("1")]


def test_a_batch_is_bounded_and_its_members_are_read_like_any_frame() -> None:
    with pytest.raises(PeerError):
        split_batch(b"[" + b",".join([ping("1")] * 10_000) + b"]")
    with pytest.raises(PeerError):
        read(split_batch(b"[" + ping("true") + b"]")[0])


def test_a_method_of_a_mebibyte_is_unknown_and_not_echoed() -> None:
    request = decode(ping("1").replace(b"ping", b"x" * 2**20))
    assert isinstance(request, Request)
    with pytest.raises(MethodNotFound) as refused:
        method_of(R5, request.method)
    assert len(str(refused.value)) < 256


def test_a_schema_that_refers_to_the_network_or_is_deep_is_refused() -> None:
    deep: dict[str, object] = {}
    for _ in range(100):
        deep = {"allOf": [deep]}
    for schema in ({"$ref": "https://example.com/"}, deep):
        with pytest.raises(InvalidDefinition):
            check_schema(schema)


@pytest.mark.requirement("M009")
def test_an_unknown_result_type_is_no_result() -> None:
    with pytest.raises(InvalidParams):
        read_result(R5, "tools/call", {"resultType": "surprise", "content": []})


FEW = "[%s]" % ",".join(["[]"] * 100)
CHAIN = "[" * 60 + "]" * 60

HUGE: dict[str, Callable[[], bytes]] = {
    "brackets": lambda: b"[" * MAX_FRAME,
    "objects": lambda: call('{"a":' * 60 + "[%s]" % ",".join(["{}"] * 90_000) + "}" * 60),
    "escapes": lambda: call('{"a":"%s"}' % ('\\"[{\\\\' * 600_000)),
    "digits": lambda: call('{"a":%s}' % ("9" * 4_000_000)),
    "exponents": lambda: call('{"a":[%s]}' % ",".join(["1e300"] * 99_000)),
    "hex": lambda: call('{"a":"%s"}' % ("0e123456" * 500_000)),
    "commas": lambda: call('{"a":[%s]}' % ",".join(["1"] * 2_000_000)),
    "spaces": lambda: call("{%s}" % (" " * 4_000_000)),
    "keys": lambda: call("{%s}" % ",".join(f'"k{n}" :1' for n in range(90_000))),
    "exponents in text": lambda: call('{"a":[%s,"%s"]}' % (FEW, "0e" * 2_000_000)),
    "quotes": lambda: b'"' * (MAX_FRAME - 100_001) + b"," * 100_001,
    "chains": lambda: call('{"a":[%s]}' % ",".join([CHAIN] * 34_000)),
    "chains, as many as may be": lambda: call('{"a":["\\\\",1e300,%s]}' % ",".join([CHAIN] * 1600)),
    "one key": lambda: call("{%s}" % ",".join(['"k" :1'] * 95_000)),
    "text": lambda: call('{"a":"%s"}' % ("é" * 2_000_000)),
    "invalid at the end": lambda: call('{"a":"%s' % ("x" * 4_000_000)),
}


@pytest.mark.parametrize("kind", HUGE)
def test_no_frame_of_4_mib_stalls_the_loop(kind: str, record_property: Callable[[str, object], None]) -> None:
    frame = HUGE[kind]()[:MAX_FRAME]
    fastest = 1.0
    for _ in range(5):
        started = time.thread_time()
        with contextlib.suppress(PeerError):
            read(frame)
        fastest = min(fastest, time.thread_time() - started)
    record_property("seconds", fastest)
    assert fastest < SHARED * STALL


DECIDED_ELSEWHERE = {
    "int beyond 2^53": "an id is echoed as it came: the envelope; a mirrored header: the test above",
    "frame > 4 MiB": "test_a_frame_over_4_mib_is_skipped_to_its_newline_and_the_next_is_read",
    "U+2028, \\x85 inside a frame": "test_u2028_and_x85_inside_a_frame_do_not_split_it",
    "`$ref` to a network URI; deep `allOf` schema": "test_a_schema_that_refers_to_the_network_or_is_deep_is_refused",
    "unknown `resultType` from a backend": "test_an_unknown_result_type_is_no_result",
    "id duplicated while in flight, stdio/WS": "a session's table of requests in flight: the actors",
    "id reused after answer": "a session's table of requests in flight: the actors",
    "response or request in the wrong direction": "who may say what on this connection: the actors",
    "progressToken duplicated among active requests of one session or connection (never across modern POSTs)": "actors",
    "progress going backwards, or after the result, from a backend": "the progress actor",
}


@needs_protocol
def test_every_row_of_the_promises_is_here_or_named_with_its_place() -> None:
    section = PROTOCOL.parent.joinpath("PROMISES.md").read_text().split("## 2. ")[1].split("## 3. ")[0]
    rows = set(re.findall(r"^\| (.+?) \|", section, re.MULTILINE)[1:])
    assert rows == {row for row, _, _ in FRAMES} | set(DECIDED_ELSEWHERE)
