"""Heads that were read before: recalled or read anew, the same bytes are the same request."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callboard.codecs.http.head import Head
from callboard.codecs.http.head_memory import (
    MAX_LINES,
    MAX_REMEMBERED,
    MOST_MISSED,
    MOST_REMEMBERED,
    MOST_SHAPES,
    HeadMemory,
)
from callboard.codecs.mcp_headers.header_map import NO_HEADERS
from tests.codecs.chunking import chunked as in_pieces
from tests.codecs.http.reading import GOOD, Outcome, cut, get, parser, post, read

JSON = b"Content-Type: application/json"
SESSION = b"Mcp-Session-Id: 0123456789abcdef"


def twice(memory: HeadMemory, *requests: bytes) -> list[Head]:
    """Read requests with *memory*, each like without one; and what heads were judged meanwhile."""
    judged: list[Head] = []
    for request in requests:
        assert read([request], parser(judged.append, memory=memory)) == read([request])
    return judged


def test_what_is_remembered_is_what_was_read() -> None:
    request = post(b'{"a":1}', JSON)
    assert len(twice(HeadMemory(), request, request, request)) == 1


@pytest.mark.parametrize("request_", GOOD, ids=range(len(GOOD)))
def test_a_memory_changes_nothing(request_: bytes) -> None:
    twice(HeadMemory(), request_, request_, request_)


@given(st.data(), st.lists(st.sampled_from(GOOD), min_size=1, max_size=4))
def test_a_memory_changes_nothing_wherever_the_bytes_are_cut(data: st.DataObject, requests: list[bytes]) -> None:
    memory = HeadMemory()
    twice(memory, *requests)
    stream = b"".join(requests)
    assert read(data.draw(in_pieces(stream)), parser(memory=memory)) == read([stream])


def test_a_remembered_head_does_not_swallow_another_body() -> None:
    memory = HeadMemory()
    twice(memory, post(b"{}"))
    stream = post(b"{}")[:-2] + b"ab" + post(b"cd")
    assert read([stream], parser(memory=memory)).bodies == [b"ab", b"cd"]
    assert read([post(b"{}")[:-1]], parser(memory=memory)).bodies == []


# The values that vary.


def test_one_head_is_enough_for_all_sessions_and_bodies() -> None:
    requests = [
        post(b"x" * (number * 37 % 1000), b"Mcp-Session-Id: %032x" % number, b"Authorization: Bearer %d" % number, JSON)
        for number in range(500)
    ]
    assert len(twice(HeadMemory(), *requests)) == 1


@pytest.mark.parametrize(
    "name",
    [
        b"Mcp-Session-Id",
        b"mcp-session-id",
        b"MCP-NAME",
        b"Mcp-Param-City",
        b"Authorization",
        b"traceparent",
        b"X-Request-ID",
    ],
)
def test_a_value_that_varies_is_found_in_the_head(name: bytes) -> None:
    memory = HeadMemory()
    twice(memory, post(b"{}", name + b": one"))
    [received] = parser(memory=memory).feed(post(b"{}", name + b": two words"))
    assert received.head.get(name.lower()) == b"two words"
    assert (name.lower(), b"two words") in received.head.headers


def test_the_headers_that_a_body_is_compared_with_are_those_of_its_own_request() -> None:
    memory = HeadMemory()
    for name in (b"one", b"two", b"one"):
        [received] = parser(memory=memory).feed(post(b"{}", b"Mcp-Method: tools/call", b"Mcp-Name: " + name))
        assert received.head.mirrored(NO_HEADERS)[b"mcp-name"] == name


@pytest.mark.parametrize("name", [b"Origin", b"Content-Type", b"Accept", b"Mcp-Protocol-Version", b"X-Mcp-Session-Id"])
def test_any_other_value_is_judged_anew(name: bytes) -> None:
    assert len(twice(HeadMemory(), *(post(b"{}", name + b": " + value) for value in (b"a", b"b", b"a", b"b")))) == 2


def test_a_body_larger_than_allowed_is_refused_behind_a_known_head() -> None:
    memory = HeadMemory()
    for size, status in ((10, None), (1000, None), (1001, 413), (10**9, 413), (10**20, 400)):
        request = post(b"").replace(b"Content-Length: 0", b"Content-Length: %d" % size) + b"x" * min(size, 2000)
        assert read([request], parser(max_body=1000, memory=memory)).status == status


def test_a_head_larger_than_allowed_is_refused_although_its_shape_is_known() -> None:
    memory = HeadMemory()
    for size, status in ((10, None), (400, None), (1000, 431)):
        request = post(b"{}", b"Mcp-Session-Id: " + b"x" * size)
        assert read([request], parser(max_header=600, memory=memory)).status == status


def test_a_large_body_is_read_behind_a_known_head_wherever_it_is_cut() -> None:
    memory = HeadMemory()
    for size in (3, 4000, 3999, 0, 1):
        request = post(b"x" * size, SESSION)
        for step in (1, 100, 1000, len(request)):
            assert read(cut(request, step), parser(memory=memory)) == read([request])


values = st.one_of(
    st.binary(max_size=6),
    st.text("0123456789", max_size=4).map(str.encode),
    st.sampled_from(
        [b"", b" ", b"\t", b"a b", b"a\r\nX: b", b"a\n", b"\r", b"1,1", b"+1", b"1 ", b"0x1", b"\x00", b"1\r\n 2"]
    ),
)
names = st.sampled_from(
    [
        b"Content-Length",
        b"content-length",
        b"Mcp-Session-Id",
        b"Authorization",
        b"Mcp-Name",
        b"Transfer-Encoding",
        b"X",
        b"Host",
    ]
)
lines = st.tuples(names, st.sampled_from([b": ", b":", b":  ", b" : ", b"_: "]), values).map(b"".join)


@st.composite
def odd_requests(draw: st.DrawFn) -> bytes:
    """Requests that are nearly alike: lines that are added, and bytes that are changed, in any place."""
    request = post(draw(st.sampled_from([b"", b"{}", b"{}" * 20])), JSON, *draw(st.lists(lines, max_size=3)))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(request)))
        request = request[:at] + draw(values) + request[at + draw(st.integers(0, 2)) :]
    return request


@given(st.lists(odd_requests(), min_size=1, max_size=5), st.integers(1, 200))
@example([post(b"{}", SESSION), post(b"{}", b"Mcp-Session-Id: a\r\nContent-Length: 9")], 1)
@example([post(b"{}", SESSION), post(b"{}", b"Mcp-Session-Id: a\nHost: b")], 1)
@example([post(b"{}", SESSION), post(b"{}", b"Mcp-Session-Id: a\r\n b")], 1)
def test_recalled_or_read_anew_a_request_is_the_same(requests: list[bytes], step: int) -> None:
    memory = HeadMemory()
    for request in requests * 2:
        fresh, whole = read([request]), read([request], parser(memory=memory))
        assert whole == fresh
        pieces: Outcome = read(cut(request, step), parser(memory=memory))
        assert pieces == read(cut(request, step))


# What it holds.


def test_what_is_remembered_is_bounded() -> None:
    memory = HeadMemory()
    for number in range(3 * MOST_REMEMBERED):
        read([post(b"{}", b"X: %d" % number)], parser(memory=memory))
        assert len(memory._known) <= MOST_REMEMBERED
        assert len(memory._shapes) <= MOST_SHAPES


def test_heads_are_forgotten_only_when_many_others_were_asked_for() -> None:
    memory = HeadMemory()
    list(parser(memory=memory).feed(post(b"{}", SESSION)))
    kept = []
    for number in range(MOST_REMEMBERED + MOST_MISSED):
        assert memory.recall(post(b"{}", b"Mcp-Session-Id: %d" % number)) is not None
        kept.append(len(memory._known))
    assert kept[MOST_REMEMBERED - 2 : -2] == [MOST_REMEMBERED] * MOST_MISSED
    assert kept[-2:] == [1, 2]


@pytest.mark.parametrize(
    "request_",
    [
        get(b"Accept: */*"),
        post(b"{}", b"Connection: close"),
        post(b"{}", b"Expect: 100-continue"),
        post(b"{}", b"X: " + b"x" * MAX_REMEMBERED),
        post(b"{}", *(b"X-%d: a" % number for number in range(MAX_LINES))),
        get(b"Connection: Upgrade", b"Upgrade: websocket"),
    ],
)
def test_a_head_that_asks_for_more_than_an_answer_is_not_remembered(request_: bytes) -> None:
    assert len(twice(HeadMemory(), request_, request_)) == 2
