"""Who may speak to a listener: names and origins are compared whole, or not at all."""

import pytest

from callboard.codecs.http.access import EVERYONE, Access, is_loopback
from callboard.codecs.http.refusal import HttpRefusal

HERE = Access.of("127.0.0.1", 8000)
PORT_80 = Access.of("localhost", 80)
TLS = Access.of("127.0.0.1", 8443, scheme="https")
TLS_443 = Access.of("localhost", 443, scheme="https")
PUBLIC = Access.of("0.0.0.0", 8000, hosts=["mcp.example.com", "other.example:9000"], origins=["https://app.example"])  # noqa: S104
SIX = Access.of("::1", 8000)


def status(access: Access, host: bytes | None, origin: bytes | None = None) -> int | None:
    try:
        access.check(host, origin)
    except HttpRefusal as refusal:
        return refusal.status
    return None


ORIGINS: list[tuple[Access, bytes, bool]] = [
    # The listener's own pages.
    (HERE, b"http://localhost:8000", True),
    (HERE, b"http://127.0.0.1:8000", True),
    (HERE, b"http://[::1]:8000", True),
    (HERE, b"http://LocalHost:8000", True),
    (HERE, b"HTTP://localhost:8000", True),
    (HERE, b"http://[0:0:0:0:0:0:0:1]:8000", True),
    (HERE, b"http://[0000::0001]:8000", True),
    (PORT_80, b"http://localhost", True),
    (PORT_80, b"http://localhost:80", True),
    (TLS, b"https://localhost:8443", True),
    (TLS_443, b"https://localhost", True),
    (PUBLIC, b"https://app.example", True),
    (PUBLIC, b"https://app.example:443", True),
    (PUBLIC, b"http://mcp.example.com:8000", True),
    # Others that look like it.
    (HERE, b"http://localhost.evil.com", False),
    (HERE, b"http://localhost.evil.com:8000", False),
    (HERE, b"http://localhost:8000.evil.com", False),
    (HERE, b"http://evil.com/localhost:8000", False),
    (HERE, b"http://evil.com#localhost:8000", False),
    (HERE, b"http://evil.com?localhost:8000", False),
    (HERE, b"http://evillocalhost:8000", False),
    (HERE, b"http://127.0.0.1.evil.com:8000", False),
    (HERE, b"http://localhost:80@evil", False),
    (HERE, b"http://localhost:8000@evil.com", False),
    (HERE, b"http://evil.com@localhost:8000", False),
    (HERE, b"http://user:password@localhost:8000", False),
    (HERE, b"http://localhost.:8000", False),
    (HERE, b"http://127.0.0.1.:8000", False),
    (HERE, b"http://localhost:8000/", False),
    (HERE, b"http://localhost:8000\\@evil.com", False),
    (HERE, b"http://127.1:8000", False),
    (HERE, b"http://2130706433:8000", False),
    (HERE, b"http://0x7f.0.0.1:8000", False),
    (HERE, b"http://0177.0.0.1:8000", False),
    (HERE, b"http://0.0.0.0:8000", False),
    (HERE, b"http://127.0.0.2:8000", False),
    (HERE, b"http://[::ffff:127.0.0.1]:8000", False),
    (HERE, b"http://[::]:8000", False),
    (HERE, b"http://[::1%25lo]:8000", False),
    (HERE, b"http://[::1]evil:8000", False),
    (HERE, b"http://::1:8000", False),
    (HERE, b"http://[127.0.0.1]:8000", False),
    (HERE, "http://loc\u0430lhost:8000".encode(), False),  # a Cyrillic letter
    (HERE, "http://１27.0.0.1:8000".encode(), False),  # noqa: RUF001
    (HERE, b"http://xn--localhost:8000", False),
    # Other ports and schemes.
    (HERE, b"http://localhost", False),
    (HERE, b"http://localhost:80", False),
    (HERE, b"http://localhost:8001", False),
    (HERE, b"http://localhost:80000", False),
    (HERE, b"http://localhost:", False),
    (HERE, b"http://localhost:-8000", False),
    (HERE, b"http://localhost:8000:8000", False),
    (HERE, "http://localhost:８000".encode(), False),  # noqa: RUF001
    (HERE, b"https://localhost:8000", False),
    (TLS, b"http://localhost:8443", False),
    (PORT_80, b"https://localhost", False),
    (HERE, b"ws://localhost:8000", False),
    (HERE, b"file://", False),
    (HERE, b"file:///localhost:8000", False),
    (HERE, b"chrome-extension://localhost:8000", False),
    (HERE, b"javascript:localhost:8000", False),
    (HERE, b"localhost:8000", False),
    (HERE, b"//localhost:8000", False),
    (HERE, b"http:localhost:8000", False),
    (HERE, b"http:///localhost:8000", False),
    (PUBLIC, b"http://app.example", False),
    (PUBLIC, b"https://sub.app.example", False),
    (PUBLIC, b"https://app.example.evil", False),
    (PUBLIC, b"http://localhost:8000", False),
    # No origin at all.
    (HERE, b"null", False),
    (HERE, b"NULL", False),
    (HERE, b"", False),
    (HERE, b" ", False),
    (HERE, b"*", False),
    (HERE, b"http://", False),
    (HERE, b" http://localhost:8000", False),
    (HERE, b"http://localhost:8000 ", False),
    (HERE, b"http://localhost:8000 http://evil.com", False),
    (HERE, b"http://evil.com, http://localhost:8000", False),
    (HERE, b"http://local host:8000", False),
    (HERE, b"http://localhost:8000\n", False),
    (HERE, b"\xff\xfe", False),
    (HERE, b"http://" + b"a" * 10_000, False),
]


@pytest.mark.requirement("M088", "L039")
@pytest.mark.parametrize(("access", "origin", "is_allowed"), ORIGINS, ids=[repr(row[1])[:60] for row in ORIGINS])
def test_a_page_may_speak_only_from_an_origin_that_is_allowed(access: Access, origin: bytes, is_allowed: bool) -> None:
    host = {TLS: b"localhost:8443", PUBLIC: b"mcp.example.com:8000", PORT_80: b"localhost", TLS_443: b"localhost"}
    assert status(access, host.get(access, b"localhost:8000"), origin) == (None if is_allowed else 403)


HOSTS: list[tuple[Access, bytes | None, int | None]] = [
    (HERE, b"localhost:8000", None),
    (HERE, b"LOCALHOST:8000", None),
    (HERE, b"127.0.0.1:8000", None),
    (HERE, b"[::1]:8000", None),
    (HERE, b"[0:0::1]:8000", None),
    (PORT_80, b"localhost", None),
    (PORT_80, b"127.0.0.1:80", None),
    (TLS, b"localhost:8443", None),
    (TLS_443, b"localhost", None),
    (SIX, b"[::1]:8000", None),
    (PUBLIC, b"mcp.example.com:8000", None),
    (PUBLIC, b"other.example:9000", None),
    (PUBLIC, b"0.0.0.0:8000", None),
    (HERE, None, 400),
    (HERE, b"", 421),
    (HERE, b"localhost", 421),
    (HERE, b"localhost:", 421),
    (HERE, b"localhost:80", 421),
    (HERE, b"localhost.:8000", 421),
    (HERE, b"evil.com", 421),
    (HERE, b"evil.com:8000", 421),
    (HERE, b"localhost.evil.com:8000", 421),
    (HERE, b"user@localhost:8000", 421),
    (HERE, b"localhost:8000@evil.com", 421),
    (HERE, b"localhost:8000, evil.com", 421),
    (HERE, b"localhost:8000/", 421),
    (HERE, b"http://localhost:8000", 421),
    (HERE, b"127.1:8000", 421),
    (HERE, b"[::1", 421),
    (HERE, b"::1", 421),
    (HERE, b"[::1]", 421),
    (HERE, b"[::ffff:7f00:1]:8000", 421),
    (HERE, b"[1:2]:8000", 421),
    (HERE, b"\xe2\x84\xaa:8000", 421),
    (HERE, b"a:99999", 421),
    (PUBLIC, b"localhost:8000", None),  # a health check, or a first try inside a container
    (PUBLIC, b"other.example:8000", 421),
    (TLS_443, b"localhost:80", 421),
]


@pytest.mark.parametrize(("access", "host", "expected"), HOSTS, ids=[repr(row[1]) for row in HOSTS])
def test_a_listener_answers_only_to_its_own_names(access: Access, host: bytes | None, expected: int | None) -> None:
    assert status(access, host) == expected


def test_the_origin_is_looked_at_first() -> None:
    assert status(HERE, b"evil.com", b"http://evil.com") == 403


def test_a_listener_on_another_loopback_address_goes_by_it_too() -> None:
    access = Access.of("127.0.0.2", 8000)
    assert status(access, b"127.0.0.2:8000", b"http://127.0.0.2:8000") is None
    assert status(access, b"localhost:8000") is None


def test_a_star_admits_all() -> None:
    assert status(Access.of("0.0.0.0", 1, hosts=["*"]), b"anything at all") is None  # noqa: S104
    assert status(Access.of("0.0.0.0", 1, hosts=["*"]), b"a", b"http://evil.com") == 403  # noqa: S104
    assert status(Access.of("127.0.0.1", 1, origins=["*"]), b"localhost:1", b"null") is None
    assert status(Access.of("127.0.0.1", 1, origins=["*"]), b"evil.com", b"http://evil.com") == 421


def test_a_socket_that_no_page_can_reach_asks_for_nothing_but_a_host() -> None:
    assert status(EVERYONE, b"x", b"http://evil.com") is None
    assert status(EVERYONE, None) == 400


def test_an_application_that_does_not_know_its_port_goes_by_its_names_on_any() -> None:
    access = Access.on_any_port(hosts=["mcp.example.com"], origins=["https://app.example"])
    for host in (b"localhost", b"localhost:1", b"127.0.0.1:8000", b"[::1]:9", b"mcp.example.com", b"mcp.example.com:7"):
        assert status(access, host) is None
    for host in (b"evil.com", b"localhost.evil.com", b"mcp.example.com.evil", b"127.1:80"):
        assert status(access, host) == 421
    for origin in (b"http://localhost:3000", b"https://mcp.example.com", b"https://app.example"):
        assert status(access, b"localhost", origin) is None
    for origin in (b"https://app.example:8443", b"http://app.example", b"null", b"http://localhost.evil.com"):
        assert status(access, b"localhost", origin) == 403


@pytest.mark.parametrize("wrong", ["", "a b", "http://a", "a/b", "[::1", "a:b", "a:70000"])
def test_what_is_no_host_is_not_taken_for_one(wrong: str) -> None:
    with pytest.raises(ValueError):
        Access.of("127.0.0.1", 1, hosts=[wrong])


@pytest.mark.parametrize("wrong", ["", "null", "localhost:80", "ftp://a", "http://a/b", "http://"])
def test_what_is_no_origin_is_not_taken_for_one(wrong: str) -> None:
    with pytest.raises(ValueError):
        Access.of("127.0.0.1", 1, origins=[wrong])


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("LocalHost", True),
        ("0.0.0.0", False),  # noqa: S104
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.evil.com", False),
        ("example.com", False),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
