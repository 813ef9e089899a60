"""Bytes to requests: the same ones wherever the bytes are cut, and never more than fits."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.codecs.http.head import Head
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.request_parser import ParserStage
from tests.codecs.chunking import byte_by_byte
from tests.codecs.chunking import chunked as in_pieces
from tests.codecs.http.reading import GOOD, LUMP, chunked, cut, get, parser, post, read, states


@given(st.data(), st.lists(st.sampled_from(GOOD), min_size=1, max_size=4))
def test_requests_survive_any_chunking(data: st.DataObject, requests: list[bytes]) -> None:
    stream = b"".join(requests)
    assert read(data.draw(in_pieces(stream))) == read([stream])


@pytest.mark.parametrize("request_", GOOD, ids=range(len(GOOD)))
def test_good_requests_are_read(request_: bytes) -> None:
    outcome = read([request_])
    assert outcome.status is None
    assert outcome.requests
    assert read(byte_by_byte(request_)) == outcome


def test_what_a_request_says_is_found_in_it() -> None:
    [(method, target, headers, body)] = read([post(b'{"a":1}', b"X-Empty:", b"X-Padded: \t a b \t ")]).requests
    assert (method, target, body) == ("POST", b"/mcp", b'{"a":1}')
    assert headers == [(b"host", b"a"), (b"content-length", b"7"), (b"x-empty", b""), (b"x-padded", b"a b")]


def test_the_head_is_judged_before_any_byte_of_the_body() -> None:
    judged: list[Head] = []
    by = parser(judged.append)
    assert read([post(b"x" * 100)[:-100]], by).requests == []
    assert [head.method for head in judged] == ["POST"]


def test_a_refused_head_ends_the_connection_with_the_judges_own_words() -> None:
    def nobody(head: Head) -> None:
        raise HttpRefusal(421, "go away")

    assert read([get()], parser(nobody)).status == 421


def test_requests_in_front_of_a_refused_one_are_answered_wherever_the_bytes_are_cut() -> None:
    stream = post(b"1") + get() + b"NONSENSE\r\n\r\n"
    assert read([stream]).status == read(byte_by_byte(stream)).status == 501
    assert read([stream]).bodies == read(byte_by_byte(stream)).bodies == [b"1", b""]


def test_as_many_pipelined_requests_as_one_read_can_hold_are_read_in_order() -> None:
    bodies = [b"%d" % number for number in range(600)]
    assert read([b"".join(map(post, bodies))]).bodies == bodies


def test_nothing_after_a_last_request_is_read() -> None:
    outcome = read([post(b"1", b"Connection: close") + post(b"2")])
    assert (outcome.bodies, outcome.status) == ([b"1"], 400)


# The limits, to the byte.


@pytest.mark.parametrize("step", [1, 7, LUMP])
@pytest.mark.parametrize(("room", "status"), [(0, None), (-1, 431)])
def test_a_head_may_have_just_as_many_bytes_as_allowed(step: int, room: int, status: int | None) -> None:
    request = get(b"X-Long: " + b"a" * 500)
    assert read(cut(request, step), parser(max_header=len(request) + room)).status == status


@pytest.mark.parametrize("step", [1, 16, LUMP])
@pytest.mark.parametrize(("count", "status"), [(12, None), (13, 431)])
def test_a_head_may_have_just_as_many_lines_as_allowed(step: int, count: int, status: int | None) -> None:
    lines = [b"X-%d: a" % number for number in range(count - 1)]
    assert read(cut(get(*lines), step), parser(max_headers=12)).status == status


@pytest.mark.parametrize("step", [1, 10, LUMP])
def test_a_long_target_is_part_of_the_head(step: int) -> None:
    assert read(cut(get(target=b"/" + b"a" * 2000), step), parser(max_header=1000)).status == 431


def test_what_was_counted_once_is_not_counted_again() -> None:
    """Two requests whose heads together are more than one may be, cut in the middle of the second."""
    stream = get(b"X: " + b"a" * 600) * 2
    for at in range(1, len(stream), 50):
        assert len(read([stream[:at], stream[at:]], parser(max_header=700)).requests) == 2


@pytest.mark.parametrize("start", [b"GET /mcp HTTP/1.1\r\nX: ", b"GET /", b"GET /mcp HTTP/1.1\r\n"])
def test_a_head_that_never_ends_is_refused_once_it_is_too_long(start: bytes) -> None:
    by = parser(max_header=1000)
    assert read([start], by).status is None
    assert read([b"a" * 400] * 3, by).status == 431


@pytest.mark.parametrize("step", [1, 100, LUMP])
@pytest.mark.parametrize(("size", "status"), [(1000, None), (1001, 413)])
def test_a_body_may_have_just_as_many_bytes_as_allowed(step: int, size: int, status: int | None) -> None:
    for request in (post(b"x" * size), chunked(b"x" * 600, b"x" * (size - 600))):
        outcome = read(cut(request, step), parser(max_body=1000))
        assert outcome.status == status
        assert outcome.bodies == ([b"x" * size] if status is None else [])


def test_a_body_that_is_declared_too_large_is_refused_before_it_is_sent() -> None:
    assert read([b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n"], parser(max_body=1000)).status == 413


@pytest.mark.parametrize("ending", [b"0\r\nX: ", b"0\r\n", b"1;ext="])
def test_what_stands_around_chunks_is_bounded_too(ending: bytes) -> None:
    by = parser(max_header=1000)
    start = chunked(b"{}").removesuffix(b"0\r\n\r\n") + ending
    assert read([start], by).status is None
    assert read([b"a" * 300] * 4, by).status == 431


def test_trailers_are_bounded_in_one_lump_too() -> None:
    lines = b"".join(b"X-%d: %b\r\n" % (number, b"a" * 50) for number in range(30))
    assert read([chunked(b"{}", trailers=lines)], parser(max_header=1000)).status == 431
    assert read([chunked(b"{}", trailers=lines)], parser(max_header=3000)).bodies == [b"{}"]


def test_trailers_are_not_taken_for_headers() -> None:
    [(_, _, headers, _)] = read([chunked(b"{}", trailers=b"Origin: http://evil\r\n")]).requests
    assert headers == [(b"host", b"a"), (b"transfer-encoding", b"chunked")]


def test_a_body_in_the_smallest_chunks_weighs_what_it_says() -> None:
    by = parser(max_body=400_000)
    pieces = cut(chunked(*[b"ab"] * 100_000), 1 << 16)
    before = sys.getallocatedblocks()
    for piece in pieces:
        last = list(by.feed(piece))
        assert sys.getallocatedblocks() - before < 10_000
    assert last[0].body == b"ab" * 100_000


# What is being read.


def test_every_stage_has_its_time() -> None:
    request = post(b"{}")
    head, body = len(request) - 3, len(request)
    stages = states(parser(), request)
    assert set(stages[:head]) == {ParserStage.HEAD}
    assert set(stages[head + 1 : body - 1]) == {ParserStage.BODY}
    assert stages[-1] is ParserStage.IDLE


def test_one_empty_line_is_nothing_and_many_are_a_slow_head() -> None:
    assert states(parser(), b"\r\n\r\n\r\n") == [*[ParserStage.IDLE] * 4, *[ParserStage.HEAD] * 2]
    assert read([b"\r\n" * 501], parser(max_header=1000)).status == 431
    assert len(read([b"\r\n" * 40, get()]).requests) == 1


@pytest.mark.parametrize(
    ("request_", "is_waited_for"),
    [
        (b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nExpect: 100-Continue\r\n\r\n", True),
        (b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n{", False),
        (b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nExpect: tea\r\n\r\n", False),
        (b"POST /mcp HTTP/1.0\r\nHost: a\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n", False),
        (b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", False),
        (post(b"{}", b"Expect: 100-continue"), False),
    ],
)
def test_who_waits_for_a_continue_is_known(request_: bytes, is_waited_for: bool) -> None:
    by = parser()
    read([request_], by)
    assert by.is_waited_for is is_waited_for


@pytest.mark.parametrize(
    ("request_", "keeps_alive"),
    [
        (get(), True),
        (get(b"Connection: close"), False),
        (get(b"Connection: Close"), False),
        (get(b"Connection: foo, close"), False),
        (b"GET /mcp HTTP/1.0\r\nHost: a\r\n\r\n", False),
        # Its client would wait for an answer that says so, and nothing here does.
        (b"GET /mcp HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n", False),
        (get(b"Connection: Upgrade", b"Upgrade: h2c"), True),
        (get(b"Connection: Upgrade, close", b"Upgrade: h2c"), False),
    ],
)
def test_whether_a_connection_goes_on_is_known(request_: bytes, keeps_alive: bool) -> None:
    [received] = parser().feed(request_)
    assert received.head.keeps_alive is keeps_alive


# Upgrades.


def test_a_websocket_gets_what_follows_its_head() -> None:
    request = get(b"Connection: Upgrade", b"Upgrade: websocket")
    assert read([request + b"\x81\x00rest"]).rest == b"\x81\x00rest"
    assert read(byte_by_byte(request + b"\x81\x00rest")).rest == b"\x81\x00rest"
    assert read([request]).rest == b""


@pytest.mark.parametrize("step", [1, 30, LUMP])
@pytest.mark.parametrize(
    "offer",
    [
        (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c"),
        (b"Connection: Upgrade", b"Upgrade: TLS/1.2"),
        (b"Connection: Upgrade", b"Upgrade: websocket"),
    ],
)
def test_an_offer_that_is_not_taken_up_costs_a_request_nothing(step: int, offer: tuple[bytes, ...]) -> None:
    stream = post(b'{"a":1}', *offer) + chunked(b"xy").replace(b"Host", b"\r\n".join(offer) + b"\r\nHost") + post(b"2")
    assert read(cut(stream, step)).bodies == [b'{"a":1}', b"xy", b"2"]


def test_many_offers_in_one_lump_are_only_many_requests() -> None:
    stream = get(b"Connection: Upgrade", b"Upgrade: h2c") * 1500
    assert len(read([stream]).requests) == 1500


def test_whoever_waits_for_a_continue_may_offer_an_upgrade_too() -> None:
    by = parser()
    lines = (b"Connection: Upgrade", b"Upgrade: h2c", b"Expect: 100-continue")
    assert read([post(b"{}", *lines)[:-2]], by).requests == []
    assert by.is_waited_for
    assert read([b"{}"], by).bodies == [b"{}"]


# Bodies that come in pieces.


@given(st.data(), st.lists(st.integers(0, 20_000), min_size=1, max_size=4))
def test_large_bodies_survive_any_chunking(data: st.DataObject, sizes: list[int]) -> None:
    requests = [post(bytes(number % 251 for number in range(size)), b"X: %d" % size) for size in sizes]
    stream, by = b"".join(requests), parser(max_body=20_000)
    assert read(data.draw(in_pieces(stream)), by) == read([stream], parser(max_body=20_000))
    assert (by.stage, by.held, by.head) == (ParserStage.IDLE, 0, None)


def test_what_follows_a_body_in_pieces_is_read_like_any_request() -> None:
    start, rest = post(b"x" * 3000)[:-2000], b"x" * 2000
    assert read([start, rest + post(b"2") + get()]).bodies == [b"x" * 3000, b"2", b""]
    assert read([start, rest + b"NONSENSE\r\n\r\n"]).status == 501
    assert read([start, rest + b"NONSENSE\r\n\r\n"]).bodies == [b"x" * 3000]
    assert read([start, rest + post(b"2")[:-1], b"2", b"NONSENSE\r\n\r\n"]).bodies == [b"x" * 3000, b"2"]


def test_what_is_held_of_a_body_is_known() -> None:
    by = parser(max_body=100_000)
    read([post(b"x" * 100_000)[:-90_000]], by)
    held = [by.held]
    for _ in range(9):
        read([b"x" * 9_000], by)
        held.append(by.held)
    assert held == [10_000 + 9_000 * number for number in range(10)]
    assert by.stage is ParserStage.BODY
    assert by.head is not None


def test_a_body_in_the_smallest_pieces_weighs_what_it_says() -> None:
    by = parser(max_body=400_000)
    before = sys.getallocatedblocks()
    read([post(b"x" * 100_000)[:-100_000]], by)
    for _ in range(99_999):
        assert not list(by.feed(b"x"))
    assert sys.getallocatedblocks() - before < 1_000
    assert read([b"x"], by).bodies == [b"x" * 100_000]


@pytest.mark.parametrize(
    "line", [b"Connection: close", b"Expect: 100-continue", b"Connection: Upgrade\r\nUpgrade: h2c"]
)
def test_a_body_in_pieces_of_an_unusual_request_is_read_too(line: bytes) -> None:
    stream = post(b"x" * 3000, line)
    assert read(cut(stream, 1000)) == read([stream])
    assert read(cut(stream, 1000)).bodies == [b"x" * 3000]
