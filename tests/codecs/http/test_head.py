"""What is decided from a head alone: media types, unique headers, and the status that says what an error says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.codecs.http.head import Head, check_framing, check_once, covers, media_type_of
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.status import status_of, status_of_unread
from callboard.codecs.mcp_headers.header_map import NO_HEADERS, HeaderMap
from callboard.errors import (
    Draining,
    FrameTooLarge,
    HeaderMismatch,
    InvalidParams,
    InvalidRequest,
    InvalidState,
    MethodNotFound,
    MissingCapability,
    Overloaded,
    ParseError,
    PeerError,
    RequestFailed,
    RequestTimedOut,
    ResourceNotFound,
    UnsupportedVersion,
)

JSON = b"application/json"
EVENTS = b"text/event-stream"


def accept(*values: bytes) -> list[bytes]:
    return Head("POST", b"/mcp", [(b"accept", value) for value in values]).all(b"accept")


@pytest.mark.parametrize(
    ("values", "json", "events"),
    [
        ((), True, True),
        ((b"application/json, text/event-stream",), True, True),
        ((b"application/json", b"text/event-stream"), True, True),
        ((b"text/event-stream;q=0.9,application/json;q=1.0",), True, True),
        ((b"Application/JSON, Text/Event-Stream",), True, True),
        ((b"*/*",), True, True),
        ((b"application/*, text/*",), True, True),
        ((b"application/json; charset=utf-8, text/event-stream",), True, True),
        ((b"application/json",), True, False),
        ((b"text/event-stream",), False, True),
        ((b"text/html",), False, False),
        ((b"application/jsonp, text/event-streams",), False, False),
        ((b"text/*",), False, True),
        ((b"application/json;q=0, */*",), False, True),
        ((b"*/*, application/json;q=0",), False, True),
        ((b"*/*;q=0, application/json",), True, False),
        ((b"application/json, */*;q=0.0",), True, False),
        ((b"application/*;q=0, application/json, text/event-stream; q=0.000",), True, False),
        ((b"*/*;q=0.001",), True, True),
        ((b"*/*; Q=0",), False, False),
        ((b"*/*;q = 0",), False, False),
        ((b"application/json;q=nonsense, text/event-stream;q=",), True, True),
        ((b"",), True, True),
        ((b", ,",), True, True),
        ((b"json",), False, False),
    ],
)
def test_accept_admits_what_it_names_and_the_narrowest_name_counts(
    values: tuple[bytes, ...], json: bool, events: bool
) -> None:
    accepted = accept(*values)
    assert (covers(accepted, JSON), covers(accepted, EVENTS)) == (json, events)


@given(st.lists(st.binary(max_size=30), max_size=5))
def test_any_accept_is_read(values: list[bytes]) -> None:
    assert covers(accept(*values), JSON) in (True, False)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, b""),
        (b"application/json", JSON),
        (b"Application/JSON; charset=UTF-8", JSON),
        (b" application/json ;x", JSON),
        (b"application/json-patch+json", b"application/json-patch+json"),
        (b"text/plain, application/json", b"text/plain, application/json"),
        (b"", b""),
    ],
)
def test_a_media_type_is_what_stands_before_its_parameters(value: bytes | None, expected: bytes) -> None:
    assert media_type_of(value) == expected


@pytest.mark.parametrize(
    ("headers", "is_refused"),
    [
        ([(b"host", b"a"), (b"origin", b"a"), (b"x", b"1"), (b"x", b"2")], False),
        ([(b"host", b"a"), (b"host", b"a")], True),
        ([(b"mcp-session-id", b"a"), (b"x", b""), (b"mcp-session-id", b"b")], True),
        ([(b"transfer_encoding", b"chunked")], True),
        ([(b"content_length", b"1")], True),
        ([(b"mcp-method", b"a"), (b"mcp-method", b"b")], False),  # the mirror says so, with its own code
    ],
)
def test_a_header_that_decides_something_stands_once(headers: list[tuple[bytes, bytes]], is_refused: bool) -> None:
    if is_refused:
        with pytest.raises(HttpRefusal) as refused:
            check_once(headers)
        assert refused.value.status == 400
    else:
        check_once(headers)


def test_two_lengths_are_refused_where_the_parser_lets_them_pass() -> None:
    check_framing([(b"content-length", b"1")])
    with pytest.raises(HttpRefusal):
        check_framing([(b"content-length", b"1"), (b"transfer-encoding", b"chunked")])


def test_a_head_answers_by_lower_case_names_and_of_several_the_first() -> None:
    head = Head("GET", b"/mcp?a=b?c", [(b"x", b"1"), (b"x", b"2"), (b"accept", b"a/b , c/d"), (b"accept", b",e/f")])
    assert (head.get(b"x"), head.get(b"y")) == (b"1", None)
    assert head.all(b"accept") == [b"a/b", b"c/d", b"e/f"]
    assert (head.path, head.query) == (b"/mcp", b"a=b?c")
    assert not head.has_body


@pytest.mark.parametrize(
    ("headers", "has_body"),
    [
        ([], False),
        ([(b"content-length", b"0")], False),
        ([(b"content-length", b"1")], True),
        ([(b"transfer-encoding", b"chunked")], True),
    ],
)
def test_a_head_knows_whether_something_follows(headers: list[tuple[bytes, bytes]], has_body: bool) -> None:
    assert Head("POST", b"/", headers).has_body is has_body


def test_what_headers_mirror_is_worked_out_for_each_tool_anew() -> None:
    head = Head("POST", b"/mcp", [(b"mcp-method", b"tools/call"), (b"mcp-param-user_id", b"1")])
    assert head.mirrored(NO_HEADERS) == {b"mcp-method": b"tools/call", b"mcp-param-user_id": b"1"}
    assert head.mirrored(NO_HEADERS) is head.mirrored(NO_HEADERS)
    tool = HeaderMap.compile({"properties": {"user": {"type": "string", "x-mcp-header": "User-Id"}}})
    with pytest.raises(HeaderMismatch):  # for this tool the header is a look-alike
        head.mirrored(tool)


STATUS: list[tuple[PeerError | RequestFailed, int, int]] = [
    # Of an answer, and of a refusal before anything was begun.
    (HeaderMismatch("x"), 400, 400),
    (MissingCapability("x", {}), 400, 400),
    (UnsupportedVersion("x", []), 400, 400),
    (MethodNotFound("x"), 404, 404),
    (Overloaded("x"), 429, 429),
    (Overloaded("x", for_all=True), 503, 503),
    (Draining(), 503, 503),
    (InvalidParams("x"), 200, 400),
    (InvalidState(), 200, 400),
    (InvalidRequest("x"), 200, 400),
    (ParseError("x"), 200, 400),
    (ResourceNotFound("x"), 200, 400),
    (FrameTooLarge("x", limit=1), 200, 413),
    (RequestTimedOut(after=1), 200, 400),
]


@pytest.mark.parametrize(("error", "answered", "unread"), STATUS, ids=[type(row[0]).__name__ for row in STATUS])
def test_every_error_has_its_status(error: PeerError | RequestFailed, answered: int, unread: int) -> None:
    assert (status_of(error), status_of_unread(error)) == (answered, unread)


def test_a_result_and_a_handlers_own_failure_are_answers_like_any_others() -> None:
    assert status_of(None) == status_of(ValueError("x")) == 200
