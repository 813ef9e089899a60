"""Where metadata is looked for, in which order, and what it must say to be believed."""

import msgspec
import pytest

from callboard.codecs.oauth.discovery import (
    RULES,
    DiscoveryRoute,
    canonical,
    check_resource,
    origin_metadata_url,
    resource_metadata_urls,
    server_metadata_urls,
)
from callboard.codecs.oauth.metadata import (
    ServerMetadata,
    agreed_server,
    check_pkce,
    read_refusal,
    read_resource,
    read_server,
)
from callboard.errors import FetchFailed, NotAuthorized

PRM = "/.well-known/oauth-protected-resource"
ASM = "/.well-known/oauth-authorization-server"
OIDC = "/.well-known/openid-configuration"


@pytest.mark.parametrize(
    ("server", "named", "expected"),
    [
        ("https://a/mcp", None, [f"https://a{PRM}/mcp", f"https://a{PRM}"]),
        ("https://a/mcp", "https://b/x", ["https://b/x", f"https://a{PRM}/mcp", f"https://a{PRM}"]),
        ("https://a/mcp", f"https://a{PRM}/mcp", [f"https://a{PRM}/mcp", f"https://a{PRM}"]),
        ("https://a", None, [f"https://a{PRM}"]),
        ("https://a/", None, [f"https://a{PRM}"]),
        ("https://a/b/c/", None, [f"https://a{PRM}/b/c", f"https://a{PRM}"]),
        ("https://a:8443/mcp?x=1", None, [f"https://a:8443{PRM}/mcp?x=1", f"https://a:8443{PRM}"]),
        ("https://[::1]:9/mcp", None, [f"https://[::1]:9{PRM}/mcp", f"https://[::1]:9{PRM}"]),
    ],
)
@pytest.mark.requirement("M366", "L206")
def test_the_metadata_of_a_resource(server: str, named: str | None, expected: list[str]) -> None:
    assert resource_metadata_urls(server, named) == expected


@pytest.mark.parametrize(
    ("issuer", "expected"),
    [
        ("https://a", [f"https://a{ASM}", f"https://a{OIDC}"]),
        ("https://a/", [f"https://a{ASM}", f"https://a{OIDC}"]),
        ("https://a/t", [f"https://a{ASM}/t", f"https://a{OIDC}/t", f"https://a/t{OIDC}"]),
        ("https://a/t/u/", [f"https://a{ASM}/t/u", f"https://a{OIDC}/t/u", f"https://a/t/u{OIDC}"]),
    ],
)
@pytest.mark.requirement("M370", "L208")
def test_the_metadata_of_an_authorization_server(issuer: str, expected: list[str]) -> None:
    assert server_metadata_urls(issuer) == expected


def test_2025_03_26_drops_the_path() -> None:
    assert origin_metadata_url("https://a:8443/b/mcp?x=1") == f"https://a:8443{ASM}"
    assert agreed_server("https://a:8443/b/mcp").token_endpoint == "https://a:8443/token"  # noqa: S105  # a URL


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("HTTPS://A.example:443/Mcp", "https://a.example/Mcp"),
        ("https://a.example/", "https://a.example"),
        ("https://a.example/mcp/", "https://a.example/mcp/"),
        ("http://localhost:80/mcp?x=1#f", "http://localhost/mcp?x=1"),
    ],
)
def test_a_server_has_one_name(server: str, expected: str) -> None:
    assert canonical(server) == expected


@pytest.mark.parametrize(
    ("resource", "server", "is_good"),
    [
        ("https://a/mcp", "https://a/mcp", True),
        ("https://a/mcp/", "https://a/mcp", True),
        ("https://a", "https://a/mcp", True),
        ("https://a/", "https://a/mcp", True),
        ("https://a/x", "https://a/x/y/mcp", True),
        ("HTTPS://A:443/mcp", "https://a/mcp", True),
        ("https://a/mcp", "https://a/mcp?tenant=1", True),
        ("https://a/mcp?tenant=1", "https://a/mcp?tenant=1", True),
        ("https://a/mcp?tenant=2", "https://a/mcp?tenant=1", False),
        ("https://a/mc", "https://a/mcp", False),
        ("https://a/mcp/deeper", "https://a/mcp", False),
        ("https://b/mcp", "https://a/mcp", False),
        ("https://a.evil.example/mcp", "https://a/mcp", False),
        ("http://a/mcp", "https://a/mcp", False),
        ("https://a:444/mcp", "https://a/mcp", False),
        ("https://a/mcp#x", "https://a/mcp", False),
        ("https://a:x/mcp", "https://a/mcp", False),
        ("urn:a", "https://a/mcp", False),
        ("https://[a", "https://a/mcp", False),
        ("", "https://a/mcp", False),
    ],
)
def test_metadata_must_be_about_the_server_that_is_spoken_to(resource: str, server: str, is_good: bool) -> None:
    if is_good:
        check_resource(resource, server)
    else:
        with pytest.raises(NotAuthorized, match="not for this server"):
            check_resource(resource, server)


@pytest.mark.parametrize("issuer", ["https://a/", "https://A", "https://a:443", "https://b", ""])
@pytest.mark.requirement("M371", "M372")
def test_metadata_of_another_issuer_is_not_used_however_alike_they_are(issuer: str) -> None:
    body = msgspec.json.encode({"issuer": issuer, "token_endpoint": "https://a/token"})
    with pytest.raises(NotAuthorized, match="was issued by"):
        read_server(body, "https://a")
    assert read_server(body, issuer).token_endpoint == "https://a/token"  # noqa: S105  # a URL


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b"{}", b'{"resource": 1}', b'{"resource": "x", "scopes_supported": "y"}', b"[" * 9000]
)
def test_what_is_no_metadata_is_named(body: bytes) -> None:
    with pytest.raises(FetchFailed):
        read_resource(body)


def test_members_that_are_null_are_not_there() -> None:
    assert read_resource(b'{"resource": "x", "scopes_supported": null}').scopes_supported is None


@pytest.mark.parametrize(
    ("way", "methods", "is_good"),
    [
        (DiscoveryRoute.RESOURCE, ["S256"], True),
        (DiscoveryRoute.RESOURCE, ["plain", "S256"], True),
        (DiscoveryRoute.RESOURCE, ["plain"], False),
        (DiscoveryRoute.RESOURCE, [], False),
        (DiscoveryRoute.RESOURCE, None, False),
        (DiscoveryRoute.ORIGIN, None, True),
        (DiscoveryRoute.ORIGIN, ["plain"], False),
        (DiscoveryRoute.DEFAULTS, None, True),
    ],
)
@pytest.mark.requirement("M388", "M389", "L233", "L234")
def test_pkce_is_used_only_where_it_is_understood(
    way: DiscoveryRoute, methods: list[str] | None, is_good: bool
) -> None:
    metadata = ServerMetadata(issuer="a", token_endpoint="b", code_challenge_methods_supported=methods)  # noqa: S106
    if is_good:
        check_pkce(metadata, way)
    else:
        with pytest.raises(NotAuthorized, match="S256"):
            check_pkce(metadata, way)


def test_every_way_has_its_rules() -> None:
    assert set(RULES) == set(DiscoveryRoute)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": "invalid_redirect_uri"}', "invalid_redirect_uri"),
        (b'{"error": "<script>"}', "(name not shown)"),
        (b'{"error": ""}', "HTTP 400"),
        (b"no", "HTTP 400"),
    ],
)
def test_a_refusal_is_a_word_or_a_number(body: bytes, said: str) -> None:
    assert read_refusal(400, body) == said
