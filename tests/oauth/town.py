"""A resource and an authorization server, on real sockets, that do what a test tells them to."""

import hashlib
from base64 import b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any
from urllib.parse import unquote, urlencode

import attrs
import pytest
import trio

from callboard.client import Client, connect
from callboard.codecs.oauth.addresses import Reach
from callboard.codecs.revisions import TextContent
from callboard.errors import NotAuthorized
from callboard.oauth import AuthorizationCode, Headless, Identity, MemoryStore, OAuth, RegisteredClient, Store
from callboard.transports.client.fetch import Fetcher
from tests.oauth.house import Asked, House, Said, open_house

TOOL = {"name": "look", "inputSchema": {"type": "object"}}
WELL_KNOWN = "/.well-known/oauth-authorization-server"


@attrs.define(eq=False)
class Giver:
    """An authorization server: gives a code to everybody, and a token to whoever has one and can prove it."""

    house: House = attrs.field(factory=House)
    name: str = "one"
    changes: dict[str, Any] = attrs.field(factory=dict)
    """What the metadata says otherwise; None takes it out."""
    refusals: list[Said] = attrs.field(factory=list)
    """What the token endpoint says first."""
    iss: str | None = None
    """What comes back as `iss`; None is the truth, and nothing at all is nothing."""
    error: str = ""
    refreshes: bool = False
    life: float | None = 3600
    registration: dict[str, Any] = attrs.field(factory=dict)
    gives: str | None = None
    """The only scopes that are given, whatever is asked for."""
    token_type: str = "Bearer"  # noqa: S105  # a type
    _numbers: "count[int]" = attrs.field(factory=lambda: count(1))
    _codes: dict[str, tuple[str, str]] = attrs.field(factory=dict)
    tokens: dict[str, tuple[str, ...]] = attrs.field(factory=dict)
    """What was given, and the scopes that it is good for."""
    refreshers: dict[str, str] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.house.rooms |= {
            WELL_KNOWN: self._metadata,
            "/register": self._register,
            "/authorize": self._authorize,
            "/token": self._token,
        }

    def metadata(self) -> dict[str, Any]:
        url = self.house.url
        said: dict[str, Any] = {
            "issuer": url,
            "authorization_endpoint": f"{url}/authorize",
            "token_endpoint": f"{url}/token",
            "registration_endpoint": f"{url}/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
            "authorization_response_iss_parameter_supported": True,
        } | self.changes
        return {name: value for name, value in said.items() if value is not None}

    def visits(self, path: str) -> list[Asked]:
        return [asked for asked in self.house.asked if asked.path == path]

    def _metadata(self, _: Asked) -> Said:
        return Said.json(self.metadata())

    def _register(self, asked: Asked) -> Said:
        if "error" in self.registration:
            return Said.json(self.registration, 400)
        return Said.json({"client_id": f"{self.name}-client-{next(self._numbers)}"} | self.registration, 201)

    def _authorize(self, asked: Asked) -> Said:
        query = asked.query
        code = f"{self.name}-code-{next(self._numbers)}"
        self._codes[code] = query["code_challenge"], query.get("scope", "")
        back = {"state": query["state"]} | ({"error": self.error} if self.error else {"code": code})
        iss = self.house.url if self.iss is None else self.iss
        return Said(
            302, headers={"location": f"{query['redirect_uri']}?{urlencode(back | ({'iss': iss} if iss else {}))}"}
        )

    def _token(self, asked: Asked) -> Said:
        if self.refusals:
            return self.refusals.pop(0)
        form = asked.form
        if form["grant_type"] == "authorization_code":
            challenge, scope = self._codes.pop(form["code"])
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            if urlsafe_b64encode(digest).rstrip(b"=").decode() != challenge:
                return Said.json({"error": "invalid_grant"}, 400)
            return self.give(scope)
        if form["grant_type"] == "refresh_token":
            scope = self.refreshers.pop(form["refresh_token"], "-")
            return Said.json({"error": "invalid_grant"}, 400) if scope == "-" else self.give(scope)
        return self.give(form.get("scope", ""))

    def give(self, scope: str) -> Said:
        number, scope = next(self._numbers), scope if self.gives is None else self.gives
        token = f"{self.name}-token-{number}"
        self.tokens[token] = tuple(scope.split())
        said: dict[str, Any] = {"access_token": token, "token_type": self.token_type}
        if self.life is not None:
            said["expires_in"] = self.life
        if self.refreshes:
            said["refresh_token"] = f"{self.name}-refresh-{number}"
            self.refreshers[f"{self.name}-refresh-{number}"] = scope
        return Said.json(said)


@attrs.define(eq=False)
class Town:
    """An MCP server that wants a token, and those who give it."""

    house: House = attrs.field(factory=House)
    giver: Giver = attrs.field(factory=Giver)
    other: Giver = attrs.field(factory=lambda: Giver(name="two"))
    issuers: list[str] = attrs.field(factory=list)
    """Those that the metadata names; none is the giver."""
    changes: dict[str, Any] = attrs.field(factory=dict)
    names_metadata: bool = True
    scope: str = ""
    """What the challenge names."""
    needs: dict[str, str] = attrs.field(factory=dict)
    """The scope that a method needs."""
    is_open: bool = False
    """Whether it wants no token after all."""
    revoked: set[str] = attrs.field(factory=set)
    shown: list[str | None] = attrs.field(factory=list)
    """What each request to it showed."""

    def __attrs_post_init__(self) -> None:
        self.house.rooms |= {"/.well-known/oauth-protected-resource/mcp": self._metadata, "/mcp": self._mcp}

    @property
    def url(self) -> str:
        return f"{self.house.url}/mcp"

    def auth(
        self,
        store: Store | None = None,
        *,
        registered: RegisteredClient | None = None,
        document: str | None = None,
        **options: Any,
    ) -> OAuth:
        """What a client is given: its user says yes to everything."""
        grant = AuthorizationCode(
            consent=Headless(visit), identity=Identity(registered=registered, document=document, name="tests")
        )
        given: dict[str, Any] = {"grant": grant, "store": store or MemoryStore()} | options
        return OAuth(**given)

    def good_tokens(self) -> dict[str, tuple[str, ...]]:
        good = self.giver.tokens | self.other.tokens
        return {token: scopes for token, scopes in good.items() if token not in self.revoked}

    def _metadata(self, _: Asked) -> Said:
        issuers = self.issuers or [self.giver.house.url]
        said = {"resource": self.url, "authorization_servers": issuers} | self.changes
        return Said.json({name: value for name, value in said.items() if value is not None})

    def _mcp(self, asked: Asked) -> Said:
        authorization = asked.header("authorization")
        self.shown.append(authorization)
        token = (authorization or " ").split(" ", 1)[1]
        where = f"{self.house.url}/.well-known/oauth-protected-resource/mcp"
        named = f', resource_metadata="{where}"' if self.names_metadata else ""
        if token not in self.good_tokens() and not self.is_open:
            scope = f', scope="{self.scope}"' if self.scope else ""
            return Said(401, b"", {"www-authenticate": f'Bearer error="invalid_token"{scope}{named}'})
        method = asked.json["method"]
        needed = self.needs.get(method)
        if needed and needed not in self.good_tokens().get(token, ()):
            challenge = f'Bearer error="insufficient_scope", scope="{needed}"{named}'
            return Said(403, b"", {"www-authenticate": challenge})
        return Said.json({"jsonrpc": "2.0", "id": asked.json["id"], "result": RESULTS[method]})


RESULTS: dict[str, dict[str, Any]] = {
    "server/discover": {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "ttlMs": 0,
        "cacheScope": "private",
    },
    "tools/list": {"resultType": "complete", "tools": [TOOL], "ttlMs": 0, "cacheScope": "private"},
    "tools/call": {"resultType": "complete", "content": [{"type": "text", "text": "seen"}]},
}


async def visit(url: str) -> str:
    """A user who gives leave."""
    fetched = await Fetcher(Reach(loopback=True)).get(url)
    return (fetched.head.get(b"location") or b"").decode()


def basic(asked: Asked) -> tuple[str, str] | None:
    """The client's id and secret, if it showed them so."""
    scheme, _, value = (asked.header("authorization") or "").partition(" ")
    if scheme != "Basic":
        return None
    client_id, _, secret = b64decode(value).decode().partition(":")
    return unquote(client_id), unquote(secret)


@asynccontextmanager
async def open_town(town: Town | None = None, *, within: float = 20) -> AsyncIterator[Town]:
    town = town or Town()
    with trio.fail_after(within):
        async with open_house(town.house), open_house(town.giver.house), open_house(town.other.house):
            yield town


async def look(client: Client) -> None:
    """Use the server."""
    result = await client.call("look")
    assert [block.text for block in result.content if isinstance(block, TextContent)] == ["seen"]


async def refused(town: Town, auth: OAuth) -> str:
    """Why there is no leave to be had."""
    with pytest.raises(NotAuthorized) as caught:
        async with connect(town.url, auth=auth):
            pass
    return str(caught.value)
