"""Who a client is, what it says of itself, and which scopes it asks for."""

from base64 import b64decode

import msgspec
import pytest

from callboard.codecs.oauth.client import (
    OAuthClient,
    check_document_url,
    check_redirect_uri,
    document,
    identify,
    method_for,
    read_registration,
    write_registration,
)
from callboard.codecs.oauth.metadata import ServerMetadata
from callboard.codecs.oauth.scopes import MAX_SCOPES, choose, split, union, with_refresh
from callboard.errors import NotAuthorized

HERE = "http://127.0.0.1:1234/callback"


def server(**said: object) -> ServerMetadata:
    return msgspec.convert({"issuer": "https://as", "token_endpoint": "https://as/token", **said}, ServerMetadata)


@pytest.mark.parametrize(
    ("uri", "is_good"),
    [
        (HERE, True),
        ("http://localhost:3000/callback", True),
        ("http://[::1]:3000/callback", True),
        ("https://client.example/callback", True),
        ("http://client.example/callback", False),
        ("http://localhost.evil.example/", False),
        ("https:///callback", False),
        ("https://client.example/#x", False),
        ("javascript:alert(1)", False),
        ("client:/callback", False),
        ("https://[::1", False),
    ],
)
def test_a_code_may_come_back_here_or_by_https(uri: str, is_good: bool) -> None:
    if is_good:
        check_redirect_uri(uri)
    else:
        with pytest.raises(NotAuthorized):
            check_redirect_uri(uri)


@pytest.mark.parametrize(
    "url",
    [
        *("http://client.example/me.json", "https://client.example", "https://client.example/", "https:///me.json"),
        *("https://client.example/me.json#x", "https://user@client.example/me.json", "me.json", "https://[x/y"),
        *("https://client.example/./me.json", "https://client.example/a/../me.json", "https://client.example/a/.."),
    ],
)
@pytest.mark.requirement("M373", "L212")
def test_a_document_is_at_an_https_url_with_a_path(url: str) -> None:
    with pytest.raises(NotAuthorized, match="expected https and a path"):
        check_document_url(url)


@pytest.mark.requirement("M374", "M375", "L213", "L214")
def test_a_document_says_who_it_is_about() -> None:
    url = "https://client.example/me.json"
    said = document(url, "Me", [HERE])
    assert said["client_id"] == url
    assert said["client_name"] == "Me"
    assert said["redirect_uris"] == [HERE]
    with pytest.raises(NotAuthorized):
        document(url, "Me", ["http://client.example/"])


@pytest.mark.parametrize(
    ("uri", "kind"), [(HERE, "native"), ("http://localhost/", "native"), ("https://client.example/back", "web")]
)
@pytest.mark.requirement("M376")
def test_a_registration_says_what_kind_of_application_it_is(uri: str, kind: str) -> None:
    said = msgspec.json.decode(write_registration("Me", uri, server()))
    assert said["application_type"] == kind
    assert said["redirect_uris"] == [uri]
    assert "scope" not in said


@pytest.mark.parametrize(
    ("grants", "expected"),
    [
        (None, ["authorization_code", "refresh_token"]),
        (["authorization_code", "refresh_token"], ["authorization_code", "refresh_token"]),
        (["authorization_code"], ["authorization_code"]),
    ],
)
def test_refreshing_is_registered_for_where_it_is_known(grants: list[str] | None, expected: list[str]) -> None:
    said = msgspec.json.decode(write_registration("Me", HERE, server(grant_types_supported=grants)))
    assert said["grant_types"] == expected


@pytest.mark.parametrize(
    ("supported", "has_secret", "method"),
    [
        (["none", "client_secret_basic"], True, "none"),
        (["client_secret_post", "client_secret_basic"], True, "client_secret_basic"),
        (["client_secret_post"], True, "client_secret_post"),
        (["client_secret_post"], False, "none"),
        (None, True, "client_secret_basic"),
    ],
)
def test_how_to_be_known_is_chosen_of_what_is_supported(
    supported: list[str] | None, has_secret: bool, method: str
) -> None:
    assert method_for(server(token_endpoint_auth_methods_supported=supported), has_secret=has_secret) == method


@pytest.mark.parametrize(
    ("said", "method", "secret"),
    [
        ({}, "none", None),
        ({"client_secret": "s"}, "client_secret_basic", "s"),
        ({"client_secret": "s", "token_endpoint_auth_method": "client_secret_post"}, "client_secret_post", "s"),
        ({"client_secret": "s", "token_endpoint_auth_method": "none"}, "none", None),
    ],
)
def test_what_was_registered_is_what_the_server_says(said: dict[str, str], method: str, secret: str | None) -> None:
    client = read_registration(msgspec.json.encode({"client_id": "me", **said}), server(), HERE)
    assert (client.method, client.secret, client.redirect_uri) == (method, secret, HERE)


@pytest.mark.parametrize(
    "said",
    [
        {"token_endpoint_auth_method": "client_secret_basic"},
        {"token_endpoint_auth_method": "tls_client_auth"},
        {"client_id": ""},
        {"client_id": "line\nbreak"},
        {"client_id": "x" * 3000},
    ],
)
def test_a_registration_that_cannot_be_used_is_named(said: dict[str, str]) -> None:
    with pytest.raises(NotAuthorized, match="registered"):
        read_registration(msgspec.json.encode({"client_id": "me", **said}), server(), HERE)


def test_a_secret_that_ends_is_not_used_beyond_its_end_nor_for_another_way_back() -> None:
    body = msgspec.json.encode({"client_id": "me", "client_secret": "s", "client_secret_expires_at": 1000})
    client = read_registration(body, server(), HERE)
    assert client.is_good(999.0, HERE)
    assert not client.is_good(1000.0, HERE)
    assert not client.is_good(999.0, "http://127.0.0.1:9/callback")
    forever = read_registration(body.replace(b"1000", b"0"), server(), HERE)
    assert forever.is_good(1e12, HERE)


def test_an_id_and_a_secret_are_encoded_before_they_are_joined() -> None:
    headers, parameters = identify(OAuthClient(client_id="a:b", secret="c%d é", method="client_secret_basic"))  # noqa: S106
    assert b64decode(headers["authorization"].removeprefix("Basic ")) == b"a%3Ab:c%25d%20%C3%A9"
    assert parameters == {"client_id": "a:b"}


# Scopes.


@pytest.mark.parametrize(
    ("challenged", "supported", "own", "earlier", "expected"),
    [
        ("a b", ["c"], [], [], ("a", "b")),
        (None, ["c", "d"], [], [], ("c", "d")),
        (None, None, [], [], ()),
        ("", ["c"], [], [], ("c",)),
        ("b", ["c"], ["o"], ["a", "b"], ("o", "a", "b")),
        ("z", None, [], ["a"], ("a", "z")),
    ],
)
def test_scopes_are_chosen(
    challenged: str | None, supported: list[str] | None, own: list[str], earlier: list[str], expected: tuple[str, ...]
) -> None:
    assert choose(challenged, supported, own, earlier) == expected


def test_what_is_no_scope_is_left_out_and_there_are_not_too_many() -> None:
    assert split('a  a "b" c\\d é \x00 e') == ("a", "e")
    assert len(union(str(number) for number in range(1000))) == MAX_SCOPES


@pytest.mark.parametrize(
    ("scopes", "offered", "wants", "expected"),
    [
        (("a",), ["a", "offline_access"], True, ("a", "offline_access")),
        (("a",), ["a", "offline_access"], False, ("a",)),
        (("a",), ["a"], True, ("a",)),
        (("a",), None, True, ("a",)),
        (("offline_access", "a"), ["a"], True, ("a",)),
        (("offline_access", "a"), ["offline_access"], False, ("a", "offline_access")),
        ((), ["offline_access"], True, ()),
    ],
)
def test_offline_access_is_asked_for_only_where_it_is_offered(
    scopes: tuple[str, ...], offered: list[str] | None, wants: bool, expected: tuple[str, ...]
) -> None:
    assert with_refresh(scopes, offered, wants=wants) == expected
