"""The opening handshake, without a socket: what it must say, what it may, and what is answered."""

import base64

import attrs
import pytest

from callboard.codecs.http.head import Head
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.websocket.handshake import Handshake, read_handshake, write_accept

# The example of RFC 6455, section 1.3.
KEY, ACCEPT = b"dGhlIHNhbXBsZSBub25jZQ==", b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
GOOD = {b"sec-websocket-version": b"13", b"sec-websocket-key": KEY, b"upgrade": b"websocket"}
PROTOCOLS = b"sec-websocket-protocol"


def head(*more: tuple[bytes, bytes], without: bytes = b"", method: str = "GET", version: str = "1.1") -> Head:
    kept = [(name, value) for name, value in GOOD.items() if name != without]
    return Head(method, b"/mcp", [*kept, *more], version)


def refused(opening: Head) -> HttpRefusal:
    with pytest.raises(HttpRefusal) as refusal:
        read_handshake(opening)
    assert refusal.value.closes
    return refusal.value


def test_the_least_that_a_client_can_say_is_accepted_without_a_subprotocol() -> None:
    handshake = read_handshake(head())
    assert handshake == Handshake(KEY)
    answer = write_accept(handshake)
    assert answer.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert b"sec-websocket-accept: " + ACCEPT in answer
    assert b"sec-websocket-protocol" not in answer
    assert b"sec-websocket-extensions" not in answer


@pytest.mark.parametrize("offered", [b"mcp", b"mcp, other", b"other,mcp", b"mcp.auth.eA, mcp"])
def test_mcp_is_chosen_among_others_and_nothing_else_is_written_back(offered: bytes) -> None:
    answer = write_accept(read_handshake(head((PROTOCOLS, offered))))
    assert b"\r\nsec-websocket-protocol: mcp\r\n" in answer
    assert b"other" not in answer
    assert b"eA" not in answer


def test_subprotocols_may_stand_in_several_headers() -> None:
    handshake = read_handshake(head((PROTOCOLS, b"mcp"), (PROTOCOLS, b"mcp.auth.dG9rZW4")))
    assert (handshake.has_subprotocol, handshake.token) == (True, "token")


@pytest.mark.parametrize("offered", [b"other", b"MCP", b"mcp.auth.eA", b"mcp.session.x, mcp.received.1"])
def test_whoever_offers_only_what_is_not_spoken_here_is_refused(offered: bytes) -> None:
    assert refused(head((PROTOCOLS, offered))).status == 400


@pytest.mark.parametrize("version", [b"8", b"14", b"13, 8", b"", b"013"])
def test_another_version_is_426_and_told_which_one_is_spoken(version: bytes) -> None:
    refusal = refused(head((b"sec-websocket-version", version), without=b"sec-websocket-version"))
    assert refusal.status == 426
    assert (b"sec-websocket-version", b"13") in refusal.headers


@pytest.mark.parametrize(
    "opening",
    [
        pytest.param(head(without=b"sec-websocket-version"), id="no version"),
        pytest.param(head((b"sec-websocket-version", b"13")), id="two versions"),
        pytest.param(head(without=b"sec-websocket-key"), id="no key"),
        pytest.param(head((b"sec-websocket-key", KEY)), id="two keys"),
        pytest.param(head((b"content-length", b"5")), id="a body"),
        pytest.param(head((b"transfer-encoding", b"chunked")), id="a chunked body"),
        pytest.param(head(method="POST"), id="POST"),
        pytest.param(head(version="1.0"), id="HTTP/1.0"),
        *(
            pytest.param(head((b"sec-websocket-key", key), without=b"sec-websocket-key"), id=f"key {key.decode()}")
            for key in (
                b"",
                b"x",
                b"dGhlIHNhbXBsZSBub25jZQ",
                b"dGhlIHNhbXBsZQ==",
                b"dGhlIHNhbXBsZSBub25jZQ==!",
                KEY + KEY,
            )
        ),
    ],
)
def test_what_is_missing_or_malformed_is_400(opening: Head) -> None:
    assert refused(opening).status == 400


def test_an_empty_body_is_none() -> None:
    assert read_handshake(head((b"content-length", b"0"))).key == KEY


@pytest.mark.parametrize("token", ["t-1", "abc.def-ghi_jkl~+/=", "\N{SNOWMAN}", "x" * 3000])
def test_a_token_may_come_as_a_subprotocol_in_base64url(token: str) -> None:
    encoded = base64.urlsafe_b64encode(token.encode()).rstrip(b"=")
    handshake = read_handshake(head((PROTOCOLS, b"mcp, mcp.auth." + encoded)))
    assert handshake.token is not None
    assert handshake.token.encode("latin-1").decode() == token
    assert handshake.token not in repr(handshake)


@pytest.mark.parametrize("given", [b"Bearer t-1", b"bearer t-1", b"BEARER   t-1"])
def test_a_token_may_come_in_the_header_however_its_scheme_is_spelled(given: bytes) -> None:
    handshake = read_handshake(head((b"authorization", given)))
    assert handshake == attrs.evolve(handshake, token="t-1")  # noqa: S106 - it opens nothing


@pytest.mark.parametrize("given", [b"Basic eDp5", b"Bearer", b"Bearer ", b"t-1", b""])
def test_another_scheme_is_no_token(given: bytes) -> None:
    assert read_handshake(head((b"authorization", given))).token is None


def test_the_same_token_twice_is_one_and_two_are_none() -> None:
    same = ((b"authorization", b"Bearer token"), (PROTOCOLS, b"mcp, mcp.auth.dG9rZW4"))
    assert read_handshake(head(*same)) == Handshake(KEY, has_subprotocol=True, token="token")  # noqa: S106 - nor this
    other = ((b"authorization", b"Bearer other"), (PROTOCOLS, b"mcp, mcp.auth.dG9rZW4"))
    assert refused(head(*other)).status == 400
    assert refused(head((PROTOCOLS, b"mcp, mcp.auth.dG9rZW4, mcp.auth.eA"))).status == 400


@pytest.mark.parametrize("encoded", [b"", b"a", b"a=", b"+/", b"a b", b"caf\xc3\xa9", b"abcde"])
def test_what_is_not_base64url_is_400_and_not_quoted(encoded: bytes) -> None:
    refusal = refused(head((PROTOCOLS, b"mcp, mcp.auth." + encoded)))
    assert refusal.status == 400
    assert encoded.decode("latin-1") not in str(refusal) or len(encoded) < 3


def test_a_session_to_come_back_to_is_named_in_headers_or_in_subprotocols() -> None:
    by_header = read_handshake(head((b"mcp-session-id", b"abc"), (b"mcp-received", b"7")))
    by_name = read_handshake(head((PROTOCOLS, b"mcp, mcp.session.abc, mcp.received.7")))
    mixed = read_handshake(head((b"mcp-session-id", b"abc"), (PROTOCOLS, b"mcp, mcp.received.7")))
    for handshake in (by_header, by_name, mixed):
        assert (handshake.session, handshake.received) == ("abc", 7)
        assert "abc" not in repr(handshake)
