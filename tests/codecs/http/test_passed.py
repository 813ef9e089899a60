"""Headers that go on to a backend: only those that are named, and not too much of them."""

from callboard.codecs.http.head import Head
from callboard.codecs.http.passed import MAX_PASSED_BYTES, passed_of


def head(*headers: tuple[bytes, bytes]) -> Head:
    return Head("POST", b"/mcp", headers)


def test_only_what_is_named_and_can_be_written_goes_on() -> None:
    given = head((b"x-a", b"1"), (b"x-a", b"2"), (b"x-b", b"no"), (b"x-c", b"\xff"), (b"x-d", b"a\tb"))
    assert passed_of(given, (b"x-a", b"x-c", b"x-d", b"x-e")) == [(b"x-a", b"1")]


def test_what_is_too_long_is_left_out() -> None:
    given = head((b"x-a", b"1" * (MAX_PASSED_BYTES - 6)), (b"x-b", b"1"), (b"x-c", b""))
    assert passed_of(given, (b"x-a", b"x-b", b"x-c")) == [(b"x-a", b"1" * (MAX_PASSED_BYTES - 6)), (b"x-c", b"")]
