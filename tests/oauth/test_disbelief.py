"""What a client does not believe, and what it takes on trust from servers that are older."""

from typing import Any

import pytest

from callboard.client import connect
from tests.oauth.house import Said
from tests.oauth.town import look, open_town, refused

# What is not believed.


REFUSED: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("an issuer that is another", {}, {"issuer": "https://attacker.example"}, "was issued by"),
    ("an issuer with a slash", {}, {"issuer": "{giver}/"}, "was issued by"),
    ("a resource that is another", {"resource": "https://evil.example/mcp"}, {}, "not for this server"),
    ("a resource below", {"resource": "{town}/mcp/below"}, {}, "not for this server"),
    ("no authorization server", {"authorization_servers": []}, {}, "names no authorization server"),
    ("no PKCE", {}, {"code_challenge_methods_supported": None}, "S256"),
    ("plain PKCE", {}, {"code_challenge_methods_supported": ["plain"]}, "S256"),
    ("nowhere to send a user", {}, {"authorization_endpoint": None}, "has no authorization endpoint"),
    ("a script", {}, {"authorization_endpoint": "javascript:alert(1)"}, "invalid authorization endpoint"),
    ("a file", {}, {"authorization_endpoint": "file:///etc/passwd"}, "invalid authorization endpoint"),
    ("data", {}, {"authorization_endpoint": "data:text/html,x"}, "invalid authorization endpoint"),
    ("plain http", {}, {"authorization_endpoint": "http://as.example/authorize"}, "not https"),
    ("a token endpoint in the house", {}, {"token_endpoint": "https://10.0.0.1/token"}, "not a public address"),
    ("an authorization server in the house", {"authorization_servers": ["https://192.168.1.1"]}, {}, "public"),
    (
        "methods of which none is known",
        {},
        {"token_endpoint_auth_methods_supported": ["tls_client_auth"]},
        "supports only",
    ),
]


@pytest.mark.parametrize(("resource", "server", "why"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
async def test_metadata_that_is_not_right_leads_nowhere(
    resource: dict[str, Any], server: dict[str, Any], why: str
) -> None:
    async with open_town() as town:

        def filled(changes: dict[str, Any]) -> dict[str, Any]:
            known = {"{giver}": town.giver.house.url, "{town}": town.house.url}
            return {
                name: value.replace(*next(iter(known.items()))).replace("{town}", town.house.url)
                if isinstance(value, str)
                else value
                for name, value in changes.items()
            }

        town.changes, town.giver.changes = filled(resource), filled(server)
        assert why in await refused(town, town.auth())
        assert not town.giver.tokens


NONSENSE = [
    "",
    "https://[::1",
    "https://a:b/",
    "http://",
    "https://[v1.x]/",
    "\x00",
    "é",
    "https://\u2028/",
    "x" * 5000,
    "//",
    "?",
    "#",
]
"""What strangers may write where a URL should stand."""


@pytest.mark.parametrize("nonsense", NONSENSE, ids=range(len(NONSENSE)))
async def test_nonsense_for_an_address_is_named_and_nothing_breaks(nonsense: str) -> None:
    places: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"resource": nonsense}, {}),
        ({"authorization_servers": [nonsense]}, {}),
        ({}, {"issuer": nonsense}),
        ({}, {"authorization_endpoint": nonsense}),
        ({}, {"token_endpoint": nonsense}),
        ({}, {"registration_endpoint": nonsense}),
    ]
    async with open_town() as town:
        for town.changes, town.giver.changes in places:
            assert await refused(town, town.auth())
        town.changes = town.giver.changes = {}
        challenge = f'Bearer resource_metadata="{nonsense}"'.encode("ascii", "ignore").replace(b"\x00", b"")
        town.house.rooms["/mcp"] = lambda _: Said(401, b"", {"www-authenticate": challenge.decode()})
        assert await refused(town, town.auth())


ISS: list[tuple[str, bool | None, str | None, bool]] = [
    ("announced and right", True, None, True),
    ("announced and absent", True, "", False),
    ("announced and wrong", True, "https://evil.example", False),
    ("announced, and right but for a slash", True, "{giver}/", False),
    ("not announced and wrong", None, "https://evil.example", False),
    ("not announced and right", None, None, True),
    ("denied and absent", False, "", True),
    ("not announced and absent", None, "", True),
]


@pytest.mark.parametrize(("announced", "iss", "is_good"), [row[1:] for row in ISS], ids=[row[0] for row in ISS])
@pytest.mark.requirement("M337", "M338")
async def test_who_sent_a_code_is_checked_before_it_is_redeemed(
    announced: bool | None, iss: str | None, is_good: bool
) -> None:
    async with open_town() as town:
        town.giver.changes = {"authorization_response_iss_parameter_supported": announced}
        town.giver.iss = iss if iss is None else iss.replace("{giver}", town.giver.house.url)
        if is_good:
            async with connect(town.url, auth=town.auth()) as client:
                await look(client)
        else:
            assert "authorization server" in await refused(town, town.auth())
        assert bool(town.giver.visits("/token")) == is_good


@pytest.mark.requirement("M342")
async def test_a_refusal_is_shown_only_if_it_is_sure_who_said_it() -> None:
    async with open_town() as town:
        town.giver.error = "access_denied"
        assert await refused(town, town.auth()) == "the authorization server refused: access_denied"
        town.giver.iss = "https://evil.example"
        assert "access_denied" not in await refused(town, town.auth())
        assert town.giver.visits("/token") == []


async def test_a_redirect_of_metadata_is_not_followed() -> None:
    async with open_town() as town:
        town.giver.house.rooms["/.well-known/oauth-authorization-server"] = lambda _: Said(
            302, b"", {"location": f"{town.other.house.url}/"}
        )
        assert "HTTP 302" in await refused(town, town.auth())
        assert town.other.house.asked == []


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b'{"access_token": 7, "token_type": "Bearer"}', b"[" * 60_000])
async def test_a_token_endpoint_that_answers_anything_else_is_named(body: bytes) -> None:
    async with open_town() as town:
        town.giver.refusals = [Said(200, body)]
        assert await refused(town, town.auth()) == "the response of the token endpoint has no token"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"access_token": "two words", "token_type": "Bearer"}, "has an invalid token"),
        ({"access_token": "line\r\nbreak", "token_type": "Bearer"}, "has an invalid token"),
        ({"access_token": "t", "token_type": "mac"}, "'mac'"),
    ],
)
async def test_a_token_that_cannot_be_shown_is_refused(answer: dict[str, str], why: str) -> None:
    async with open_town() as town:
        town.giver.refusals = [Said.json(answer)]
        assert why in await refused(town, town.auth())


# Pages that are shown for every address.

PAGE = Said(200, b"<!doctype html><title>Welcome</title>", {"content-type": "text/html"})


async def test_a_page_where_metadata_could_be_is_passed_by() -> None:
    async with open_town() as town:
        rooms = town.giver.house.rooms
        rooms["/.well-known/openid-configuration"] = rooms["/.well-known/oauth-authorization-server"]
        rooms["/.well-known/oauth-authorization-server"] = lambda _: PAGE
        async with connect(town.url, auth=town.auth()) as client:
            await look(client)


async def test_an_authorization_server_that_shows_nothing_but_pages_is_named() -> None:
    async with open_town() as town:
        for path in ("/.well-known/openid-configuration", "/.well-known/oauth-authorization-server"):
            town.giver.house.rooms[path] = lambda _: PAGE
        assert "no metadata found for the authorization server" in await refused(town, town.auth())


# Older servers.


async def test_a_server_of_2025_03_26_that_shows_a_page_for_everything_is_one_without_metadata() -> None:
    async with open_town() as town:
        town.names_metadata = False
        town.giver.house.url = town.house.url
        town.house.rooms |= town.giver.house.rooms
        for path in ("protected-resource/mcp", "protected-resource", "authorization-server"):
            town.house.rooms[f"/.well-known/oauth-{path}"] = lambda _: PAGE
        async with connect(town.url, auth=town.auth()) as client:
            await look(client)


@pytest.mark.requirement("M344", "L216")
async def test_a_server_of_2025_03_26_is_its_own_authorization_server() -> None:
    async with open_town() as town:
        town.house.rooms.pop("/.well-known/oauth-protected-resource/mcp")
        town.names_metadata = False
        town.giver.house.url = town.house.url
        town.house.rooms |= town.giver.house.rooms
        town.giver.changes = {"code_challenge_methods_supported": None}
        async with connect(town.url, auth=town.auth()) as client:
            await look(client)
        assert town.house.paths()[:4] == [
            "/mcp",
            "/.well-known/oauth-protected-resource/mcp",
            "/.well-known/oauth-protected-resource",
            "/.well-known/oauth-authorization-server",
        ]
        assert [asked.query["resource"] for asked in town.house.asked if asked.path == "/authorize"] == [town.url]


@pytest.mark.parametrize(("issuer", "is_good"), [("{town}/", True), ("{town}//", False), ("{town}/mcp", False)])
async def test_a_server_of_2025_03_26_may_end_its_own_name_with_a_slash(issuer: str, is_good: bool) -> None:
    async with open_town() as town:
        town.house.rooms.pop("/.well-known/oauth-protected-resource/mcp")
        town.names_metadata = False
        town.giver.house.url = town.house.url
        town.house.rooms |= town.giver.house.rooms
        town.giver.iss = issuer.replace("{town}", town.house.url)
        town.giver.changes = {"issuer": town.giver.iss}
        if is_good:
            async with connect(town.url, auth=town.auth()) as client:
                await look(client)
        else:
            assert "was issued by" in await refused(town, town.auth())


async def test_a_server_of_2025_03_26_may_have_no_metadata_at_all() -> None:
    async with open_town() as town:
        town.house.rooms.pop("/.well-known/oauth-protected-resource/mcp")
        town.names_metadata = False
        town.giver.house.url = town.house.url
        town.house.rooms |= town.giver.house.rooms
        town.house.rooms.pop("/.well-known/oauth-authorization-server")
        async with connect(town.url, auth=town.auth()) as client:
            await look(client)
        assert {"/register", "/authorize", "/token"} <= set(town.house.paths())
