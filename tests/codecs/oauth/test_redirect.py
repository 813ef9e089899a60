"""A user is sent away with a URL, and what comes back with him is believed only if it is sure who sent it."""

from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.codecs.oauth.addresses import Reach
from callboard.codecs.oauth.metadata import ServerMetadata
from callboard.codecs.oauth.redirect import (
    ISSUER_CHECKS,
    MAX_QUERY,
    PendingAuthorization,
    authorization_url,
    pkce_challenge,
    query_of,
    read_redirect,
)
from callboard.errors import NotAuthorized, UnsafeUrl

ISSUER = "https://as.example"


def errand(*, announces_iss: bool = False) -> PendingAuthorization:
    return PendingAuthorization(
        issuer=ISSUER, announces_iss=announces_iss, state="s", verifier="v" * 43, redirect_uri="http://localhost/back"
    )


def url(endpoint: str | None, scopes: tuple[str, ...] = (), reach: Reach | None = None) -> str:
    server = ServerMetadata(issuer=ISSUER, token_endpoint="x", authorization_endpoint=endpoint)  # noqa: S106  # none
    return authorization_url(
        server, errand(), "me & co", resource="https://mcp.example", scopes=scopes, reach=reach or Reach()
    )


def test_the_challenge_is_the_one_of_the_specification() -> None:
    assert (
        pkce_challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk") == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    )


def test_a_user_is_sent_away_with_everything_that_is_needed() -> None:
    parts = urlsplit(url("https://as.example/authorize?tenant=a%26b", ("x", "offline_access")))
    assert parse_qs(parts.query) == {
        "tenant": ["a&b"],
        "response_type": ["code"],
        "client_id": ["me & co"],
        "redirect_uri": ["http://localhost/back"],
        "code_challenge": [pkce_challenge("v" * 43)],
        "code_challenge_method": ["S256"],
        "state": ["s"],
        "resource": ["https://mcp.example"],
        "scope": ["x offline_access"],
        "prompt": ["consent"],
    }
    assert "scope" not in url("https://as.example/authorize")
    assert "v" * 43 not in url("https://as.example/authorize")


@pytest.mark.parametrize(
    "endpoint",
    [
        *("javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "vbscript:x", "about:blank", ""),
        *(
            "http://as.example/authorize",
            "http://localhost/authorize",
            "https://user@as.example/",
            "https://as.example/#x",
        ),
        *("https://as.example/$(reboot) ", "https://10.0.0.1/authorize", "//as.example/authorize", "ms-settings:x"),
    ],
)
@pytest.mark.requirement("M408")
def test_no_browser_is_sent_to_what_is_not_https(endpoint: str) -> None:
    with pytest.raises(UnsafeUrl, match="authorization endpoint"):
        url(endpoint)


def test_a_browser_may_be_sent_to_this_machine_for_a_server_on_this_machine() -> None:
    assert url("http://localhost:1/authorize", reach=Reach(loopback=True)).startswith("http://localhost:1/authorize?")


@pytest.mark.parametrize(
    ("announces", "iss", "is_good"),
    [
        (True, ISSUER, True),
        (True, None, False),
        (True, ISSUER + "/", False),
        (True, "HTTPS://AS.EXAMPLE", False),
        (True, "https://as.example:443", False),
        (True, "", False),
        (False, ISSUER, True),
        (False, "https://evil.example", False),
        (False, None, True),
    ],
)
@pytest.mark.requirement("M339", "M340", "M341")
def test_who_sent_a_code_is_compared_letter_by_letter(announces: bool, iss: str | None, is_good: bool) -> None:
    query = urlencode({"code": "c", "state": "s"} | ({} if iss is None else {"iss": iss}))
    if is_good:
        assert read_redirect(query, errand(announces_iss=announces)) == "c"
    else:
        with pytest.raises(NotAuthorized, match="authorization server"):
            read_redirect(query, errand(announces_iss=announces))


def test_the_table_has_a_row_for_every_case() -> None:
    assert set(ISSUER_CHECKS) == {(announced, present) for announced in (True, False) for present in (True, False)}


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("code=c", "does not match the authorization request"),
        ("code=c&state=", "does not match the authorization request"),
        ("code=c&state=other", "does not match the authorization request"),
        ("code=c&state=s&state=s", "duplicate parameter"),
        ("code=c&code=d&state=s", "duplicate parameter"),
        ("state=s", "no authorization code"),
        ("state=s&code=", "no authorization code"),
        ("error=access_denied&state=other", "does not match the authorization request"),
        ("error=access_denied&state=s&iss=https://evil.example", "another authorization server"),
        ("error=access_denied&state=s", "refused: access_denied"),
        ("error=%3Cscript%3E&state=s", r"refused: \(name not shown\)"),
        ("&".join(f"a{number}=1" for number in range(100)), "cannot be read"),
        ("x" * (MAX_QUERY + 1), "too long"),
        ("", "does not match the authorization request"),
    ],
)
def test_what_comes_back_wrong_is_refused(query: str, why: str) -> None:
    with pytest.raises(NotAuthorized, match=why):
        read_redirect(query, errand())


@given(st.text(max_size=200))
def test_nothing_that_comes_back_breaks_the_reader(query: str) -> None:
    with pytest.raises(NotAuthorized):
        read_redirect(query.replace("state=s", ""), errand())


@pytest.mark.parametrize(
    "given",
    ["https://me.example/back?code=c&state=s", "?code=c&state=s", "code=c&state=s", "http://[x?code=c&state=s#y"],
)
def test_a_redirect_is_taken_whole_or_as_a_query(given: str) -> None:
    assert read_redirect(query_of(given), errand()) == "c"


def test_what_is_secret_of_an_errand_is_not_shown() -> None:
    shown = repr(
        PendingAuthorization(
            issuer=ISSUER, announces_iss=True, state="S3", verifier="V3", redirect_uri="http://localhost/"
        )
    )
    assert "S3" not in shown
    assert "V3" not in shown
