"""Server-Sent Events: what a browser would observe, and what MCP asks beyond that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.codecs.lines import MAX_FRAME
from callboard.codecs.sse import MAX_FIELD, MAX_RETRY, Event, EventDecoder, Item, encode_comment, encode_event
from callboard.errors import FrameTooLarge, ParseError, PeerError
from tests.codecs.chunking import byte_by_byte, chunked

SMALL = 16


def decode(*chunks: bytes, limit: int = SMALL) -> list[Event | str]:
    """All events of the chunks, a refused one as the name of its error."""
    decoder = EventDecoder(limit)
    found: list[Item] = [item for chunk in chunks for item in decoder.feed(chunk)]
    return [item if isinstance(item, Event) else type(item).__name__ for item in found]


def decoded(stream: bytes) -> EventDecoder:
    decoder = EventDecoder(SMALL)
    decoder.feed(stream)
    return decoder


LARGE, BAD = "FrameTooLarge", "ParseError"
ROWS: list[tuple[bytes, list[Event | str]]] = [
    (b"", []),
    (b"\n\n\n", []),
    (b"data: a\n\n", [Event(b"a")]),
    (b"data:a\n\n", [Event(b"a")]),
    (b"data:  a\n\n", [Event(b" a")]),
    (b"data: a:b\n\n", [Event(b"a:b")]),
    # The examples of the WHATWG's own text.
    (b"data: YHOO\ndata: +2\ndata: 10\n\n", [Event(b"YHOO\n+2\n10")]),
    (
        b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
        [Event(b"first event", id="1"), Event(b"second event"), Event(b" third event")],
    ),
    (b"data\n\ndata\ndata\n\ndata:", [Event(b""), Event(b"\n")]),
    (b"data:test\n\ndata: test\n\n", [Event(b"test"), Event(b"test")]),
    # Line endings, mixed.
    (b"data: a\r\rdata: b\r\n\r\ndata: c\n\n", [Event(b"a"), Event(b"b"), Event(b"c")]),
    (b"data: a\n\rdata: b\r\n\n", [Event(b"a"), Event(b"b")]),
    (b"data: a\r\ndata: b\rdata: c\n\r", [Event(b"a\nb\nc")]),
    ("data: a\u2028b\x85\x0b\n\n".encode(), [Event("a\u2028b\x85\x0b".encode())]),
    # A byte order mark counts only at the start.
    (b"\xef\xbb\xbfdata: a\n\n", [Event(b"a")]),
    (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
    (b"\n\xef\xbb\xbfdata: a\n\n", []),
    (b"data: \xef\xbb\xbfa\n\n", [Event(b"\xef\xbb\xbfa")]),
    # Names and ids.
    (b"event: add\ndata: 1\n\ndata: 2\n\n", [Event(b"1", "add"), Event(b"2")]),
    (b"event:\ndata: 1\n\n", [Event(b"1")]),
    (b"event: add\n\ndata: 2\n\n", [Event(b"2")]),
    (b"id: 7\ndata: a\n\ndata: b\n\n", [Event(b"a", id="7"), Event(b"b", id="7")]),
    (b"id: 7\ndata: a\n\nid:\ndata: b\n\n", [Event(b"a", id="7"), Event(b"b")]),
    (b"id: 7\nid: 8\ndata: a\n\n", [Event(b"a", id="8")]),
    (b"id: a\0b\ndata: a\n\n", [Event(b"a")]),
    ("id: ü\nevent: é\ndata: a\n\n".encode(), [Event(b"a", "é", "ü")]),
    # MCP's polling: an id without a message, with an empty data line or with none.
    (b"id: p1\ndata:\n\n", [Event(b"", id="p1")]),
    (b"id: p1\ndata: \n\n", [Event(b"", id="p1")]),
    (b"id: p1\n\n", [Event(b"", id="p1")]),
    (b"retry: 10\n\n", []),
    # Unknown fields, and names that only look like ours.
    (b"Data: a\n data: a\ndatas: b\nfoo\n\n", []),
    # What the end cuts off.
    (b"data: a\n", []),
    (b"data: a\n\nid: 9\ndata: b", [Event(b"a")]),
    # Limits: an event is refused whole, and the next one is not.
    (b"data: " + b"x" * SMALL + b"\n\n", [Event(b"x" * SMALL)]),
    (b"data: " + b"x" * (SMALL + 1) + b"\n\ndata: b\n\n", [LARGE, Event(b"b")]),
    (b"data: " + b"x" * 99 + b"\nid: 5\ndata: b\n\ndata: c\n\n", [LARGE, Event(b"c")]),
    (b"data: " + b"x" * 99 + b"\n" + b"y" * 99 + b"\n\ndata: c\n\n", [LARGE, Event(b"c")]),
    (b"data:\n" * (SMALL + 1) + b"\n", [Event(b"\n" * SMALL)]),
    (b"data:\n" * (SMALL + 2) + b"\ndata: b\n\n", [LARGE, Event(b"b")]),
    (b"data: " + b"x" * 15 + b"\ndata:\n\n", [Event(b"x" * 15 + b"\n")]),
    (b":" + b"x" * 99 + b"\n\ndata: b\n\n", [LARGE, Event(b"b")]),
    (b"id: 3\ndata: " + b"x" * 99 + b"\r\r\rdata: b\r\r", [LARGE, Event(b"b")]),
    # UTF-8, anywhere in the stream.
    (b"data: \xff\n\ndata: b\n\n", [BAD, Event(b"b")]),
    (b": \xc3\n\ndata: b\n\n", [BAD, Event(b"b")]),
    (b"data: \xed\xa0\x80\n\n", [BAD]),
    (b"data: \xc3\ndata: \xa4\n\n", [BAD]),
]


@pytest.mark.parametrize(("stream", "events"), ROWS)
def test_a_stream_is_read_as_the_whatwg_says(stream: bytes, events: list[Event | str]) -> None:
    assert decode(stream) == events
    assert decode(*byte_by_byte(stream)) == events


@pytest.mark.parametrize(("field", "name"), [(b"id", "id"), (b"event", "event")])
def test_an_id_or_name_too_long_for_a_header_refuses_its_event(field: bytes, name: str) -> None:
    fits, over = b"x" * MAX_FIELD, b"x" * (MAX_FIELD + 1)
    stream = b"%b: %b\ndata: a\n\n%b: %b\ndata: b\n\n" % (field, fits, field, over)
    first, second = EventDecoder().feed(stream)
    assert isinstance(first, Event)
    assert getattr(first, name) == fits.decode()
    assert isinstance(second, FrameTooLarge)


@pytest.mark.parametrize(
    ("line", "retry"),
    [
        (b"retry: 0", 0),
        (b"retry:1500", 1500),
        (b"retry: 00042", 42),
        (b"retry: %d" % MAX_RETRY, MAX_RETRY),
        (b"retry: %d" % (MAX_RETRY + 1), MAX_RETRY),
        (b"retry: " + b"9" * 15, MAX_RETRY),
        (b"retry: " + b"0" * 14 + b"7", 7),
        (b"retry:", None),
        (b"retry: -1", None),
        (b"retry: 1.5", None),
        (b"retry: 1_0", None),
        (b"retry:  1", None),
        ("retry: \u0661".encode(), None),
        (b"retry: 1e3", None),
    ],
)
def test_a_retry_counts_only_if_it_is_digits(line: bytes, retry: int | None) -> None:
    assert decoded(line + b"\n").retry == retry


def test_a_bad_retry_leaves_the_last_one_in_force() -> None:
    assert decoded(b"retry: 5\nretry: x\n").retry == 5


def test_digits_without_end_do_not_reach_the_integer_parser() -> None:
    decoder = EventDecoder()
    assert decoder.feed(b"retry: " + b"1" * 100_000 + b"\n") == []
    assert decoder.retry == MAX_RETRY


def test_comments_are_counted_and_nothing_else() -> None:
    assert decode(b": keep-alive\n\n:\n\n") == []
    assert decoded(b": keep-alive\n\n:\n\ndata: :\n\n").comments == 2


def test_the_last_event_id_is_that_of_the_last_whole_event() -> None:
    assert decoded(b"id: 1\ndata: a\n\nid: 2\ndata: b\n").last_event_id == "1"
    assert decoded(b"id: 1\ndata: a\n\nid: 2\ndata: b\n\n").last_event_id == "2"
    assert decoded(b"id: 1\n\n").last_event_id == "1"
    assert decoded(b"id: 1\n\nid: 2\ndata: \xff\n\n").last_event_id == "1"


@pytest.mark.parametrize("endless", [b"x", b"data: x\n", b"data:\n", b": x\n", b"id: 1\n", b"x\r"])
def test_an_endless_event_holds_no_more_than_its_limits(endless: bytes) -> None:
    decoder = EventDecoder(SMALL)
    told = 0
    for _ in range(2000):
        told += len(decoder.feed(endless))
        assert decoder.buffered <= 2 * SMALL + 16
    assert told <= 1


def test_the_default_limit_is_exact() -> None:
    frame = b"x" * MAX_FRAME
    assert EventDecoder().feed(encode_event(frame)) == [Event(frame)]
    [error] = EventDecoder().feed(encode_event(frame + b"x"))
    assert isinstance(error, FrameTooLarge)


def test_a_frame_that_drips_in_costs_linear_time() -> None:
    decoder = EventDecoder()
    for byte in byte_by_byte(encode_event(b"x" * (MAX_FRAME // 4))):
        found = decoder.feed(byte)
    assert found == [Event(b"x" * (MAX_FRAME // 4))]


PIECES = [b"data: a", b"data", b"id: 1", b"id", b"retry: 5", b": c", b"event: e", b"\r", b"\n", b"\r\n", b"\n\n"]
PIECES += [b"\r\n\r\n", b"\xef\xbb\xbf", b"\xff", "ü€😀".encode(), b"x" * SMALL, b"\0", b":", b" "]
STREAMS = st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join)


@given(st.data(), STREAMS)
def test_events_survive_any_chunking(data: st.DataObject, stream: bytes) -> None:
    whole, cut = EventDecoder(SMALL), EventDecoder(SMALL)
    expected = list(map(repr, whole.feed(stream)))
    assert [repr(item) for chunk in data.draw(chunked(stream)) for item in cut.feed(chunk)] == expected
    assert (cut.retry, cut.comments, cut.last_event_id) == (whole.retry, whole.comments, whole.last_event_id)
    assert decode(*byte_by_byte(stream)) == decode(stream)


@given(st.binary(max_size=200))
def test_nothing_but_events_and_peer_errors_comes_out(stream: bytes) -> None:
    assert all(isinstance(item, Event | PeerError) for item in EventDecoder(SMALL).feed(stream))


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=20)


@given(st.text(), NAMES, NAMES, st.integers(0, MAX_RETRY))
def test_what_is_encoded_is_decoded(text: str, event_id: str, event: str, retry: int) -> None:
    decoder = EventDecoder()
    stream = encode_comment(text) + encode_event(text.encode(), event_id=event_id, event=event, retry=retry)
    [got] = decoder.feed(stream)
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    assert got == Event(lines.encode(), event or "message", event_id)
    assert decoder.retry == retry
    assert decoder.comments == lines.count("\n") + 1


@pytest.mark.parametrize("bad", ["a\nb", "a\rb", "a\r\nb", "\0", "x" * (MAX_FIELD + 1), "\ud800", "1\n\ndata: forged"])
def test_nothing_can_be_injected_through_an_id_or_a_name(bad: str) -> None:
    with pytest.raises(ValueError):
        encode_event(b"{}", event_id=bad)
    with pytest.raises(ValueError):
        encode_event(b"{}", event=bad)


def test_an_event_is_written_as_browsers_read_it() -> None:
    assert encode_event(b"{}") == b"data: {}\n\n"
    assert encode_event(b"", event_id="p1", retry=500) == b"id: p1\nretry: 500\ndata: \n\n"
    assert encode_event(b"/m", event="endpoint") == b"event: endpoint\ndata: /m\n\n"
    assert encode_event(b"a\r\nb\rc\n") == b"data: a\ndata: b\ndata: c\ndata: \n\n"
    assert encode_comment() == b": \n\n"


def test_each_reason_has_its_own_error() -> None:
    large, bad = EventDecoder(SMALL).feed(b"data: " + b"x" * 99 + b"\n\ndata: \xff\n\n")
    assert isinstance(large, FrameTooLarge)
    assert isinstance(bad, ParseError)
