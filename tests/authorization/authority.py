"""An authorization server of our own making: it signs what a test wants, shows its keys, and answers about tokens."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import attrs
import trio
from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

from callboard.authorization.verifier import TokenVerifier
from callboard.codecs.http.head import Head
from callboard.codecs.http.response_parser import AnswerHead
from callboard.codecs.oauth.addresses import Reach
from callboard.codecs.oauth.issuer import IssuerSettings
from callboard.codecs.oauth.jwt import Key
from callboard.codecs.oauth.presented import PresentedToken
from callboard.errors import FetchFailed
from callboard.supervisor import Supervisor, SupervisorSpec, open_tree
from callboard.transports.client.fetch import Fetched, Fetcher
from tests.oauth.house import Asked, House, Said, open_house

RESOURCE = "http://127.0.0.1:9000/mcp"
ISSUER = "https://login.example.com"
START = 1_900_000_000.0
"""When tests with a clock of their own begin."""

RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
ED = OKPKey.generate_key("Ed25519", {"kid": "ed"})
STRANGER = RSAKey.generate_key(2048, {"kid": "stranger"})


def public(key: Key, **more: Any) -> dict[str, Any]:
    return {**key.as_dict(private=False), **more}


def sign(claims: Mapping[str, Any], key: Any = RSA, algorithm: str = "RS256", **header: Any) -> str:
    """A token of any content. A header that is None is left out."""
    kid = key.as_dict(private=False).get("kid") if not isinstance(key, bytes) else None
    whole = {"alg": algorithm, "kid": kid, "typ": "at+jwt"} | header
    return jwt.encode(
        {name: value for name, value in whole.items() if value is not None}, dict(claims), key, algorithms=[algorithm]
    )


@attrs.define(eq=False)
class Authority:
    """The server, by socket or without."""

    house: House = attrs.field(factory=House)
    keys: list[dict[str, Any]] = attrs.field(factory=lambda: [public(RSA), public(EC), public(ED)])
    cache_control: str = ""
    changes: dict[str, Any] = attrs.field(factory=dict)
    """What the metadata says otherwise; None takes it out."""
    tokens: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    """What introspection says of each."""
    fault: Said | None = None
    """What the keys and the introspection endpoint say in place of all else."""
    is_down: bool = False
    delay: float = 0.0

    def __attrs_post_init__(self) -> None:
        self.house.url = self.house.url or ISSUER
        self.house.rooms |= {
            "/.well-known/oauth-authorization-server": self._metadata,
            "/jwks": self._jwks,
            "/introspect": self._introspect,
        }

    @property
    def url(self) -> str:
        return self.house.url

    def visits(self, path: str) -> int:
        return self.house.paths().count(path)

    def claims(self, now: float, **changes: Any) -> dict[str, Any]:
        said: dict[str, Any] = {
            "iss": self.url,
            "aud": RESOURCE,
            "sub": "alice",
            "client_id": "app",
            "scope": "read write",
            "iat": int(now),
            "exp": int(now) + 3600,
            "jti": "1",
        } | changes
        return {name: value for name, value in said.items() if value is not None}

    def token(self, now: float, key: Any = RSA, algorithm: str = "RS256", **changes: Any) -> str:
        return sign(self.claims(now, **changes), key, algorithm)

    def _metadata(self, _: Asked) -> Said:
        said = {
            "issuer": self.url,
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/jwks",
            "introspection_endpoint": f"{self.url}/introspect",
        } | self.changes
        return Said.json({name: value for name, value in said.items() if value is not None})

    def _jwks(self, _: Asked) -> Said:
        headers = {"cache-control": self.cache_control} if self.cache_control else {}
        return self.fault or Said(200, Said.json({"keys": self.keys}).body, headers)

    def _introspect(self, asked: Asked) -> Said:
        return self.fault or Said.json(self.tokens.get(asked.form["token"], {"active": False}))


@attrs.frozen
class Desk(Fetcher):
    """Fetches from an authority without a socket: so that virtual time passes where a test lets it."""

    authority: Authority = attrs.field(factory=Authority, kw_only=True, repr=False)

    async def get(self, url: str) -> Fetched:
        return await self._said("GET", url, b"", {})

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Fetched:
        return await self._said("POST", url, body, headers)

    async def _said(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Fetched:
        parts, authority = urlsplit(url), self.authority
        raw = tuple((name.encode(), value.encode()) for name, value in headers.items())
        asked = Asked(Head(method, parts.path.encode(), raw), body)
        authority.house.asked.append(asked)
        await trio.sleep(authority.delay)
        if authority.is_down:
            raise FetchFailed("login.example.com: connection refused")
        answer = authority.house.rooms.get(asked.path)
        said = Said(404) if answer is None else answer(asked)
        lines = [(name.encode(), value.encode()) for name, value in said.headers.items()]
        return Fetched(AnswerHead(said.status, lines), said.body)


@attrs.frozen
class Gate:
    """A verifier in a tree, and the authority that it believes."""

    verifier: TokenVerifier
    authority: Authority
    root: Supervisor

    def token(self, key: Any = RSA, algorithm: str = "RS256", **changes: Any) -> str:
        return self.authority.token(self.verifier.clock(), key, algorithm, **changes)


@asynccontextmanager
async def open_gate(
    authority: Authority | None = None, *, more: tuple[IssuerSettings, ...] = (), verifier: Any = None, **settings: Any
) -> AsyncIterator[Gate]:
    """With the authority by hand, and Trio's time for all clocks."""
    authority = authority or Authority()
    began = trio.current_time()

    def clock() -> float:
        return START + trio.current_time() - began

    desk = Desk(Reach(), authority=authority)
    options = {"fetcher": desk, "clock": clock} | (verifier or {})
    checks = TokenVerifier(RESOURCE, **options)
    async with open_tree(SupervisorSpec("test")) as root:
        await checks.open(root)
        await checks.use([IssuerSettings(issuer=authority.url, **settings), *more])
        yield Gate(checks, authority, root)


@asynccontextmanager
async def open_real_gate(authority: Authority | None = None, **settings: Any) -> AsyncIterator[Gate]:
    """With the authority behind a socket of this machine, and the time of day."""
    authority = authority or Authority()
    with trio.fail_after(20):
        async with open_house(authority.house), open_tree(SupervisorSpec("test")) as root:
            checks = await TokenVerifier(RESOURCE).open(root)
            await checks.use([IssuerSettings(issuer=authority.url, **settings)])
            yield Gate(checks, authority, root)


def bearer(token: str, **more: Any) -> PresentedToken:
    return PresentedToken(token=token, url=RESOURCE, **more)
