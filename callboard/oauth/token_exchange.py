"""Token exchange (RFC 8693): a caller's token becomes another one, which is good for one backend.

The caller's own token goes to the authorization server that the operator named, and nowhere else.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

import attrs
import trio

from callboard.codecs.http.response_parser import AnswerHead
from callboard.codecs.oauth.discovery import DiscoveryRoute, canonical
from callboard.codecs.oauth.scopes import Scopes
from callboard.codecs.oauth.tokens import ACCESS_TOKEN, TOKEN_EXCHANGE, read_tokens
from callboard.errors import FetchFailed, NotAuthorized
from callboard.oauth.auth import check_private
from callboard.oauth.discovery import DiscoveredServer, server_at
from callboard.oauth.machine_grants import ClientCredentials
from callboard.oauth.store import MemoryStore, Store
from callboard.oauth.token_endpoint import Clock, TokenEndpoint
from callboard.supervisor import get_logger
from callboard.transports.client.credentials import Auth, Credentials, Proof
from callboard.transports.client.fetch import Fetcher

log = get_logger("callboard.oauth")

EXCHANGED_TIME: Final = 300.0
"""Seconds for which a token that was had in exchange is used, if it does not end before: then a caller that was revoked
at the authorization server is so here as well."""

REFUSED_TIME: Final = 5.0
"""Seconds for which it is remembered that a token was refused: a client that calls in a loop asks no faster."""

MAX_EXCHANGED: Final = 8192
"""Most tokens of callers that are remembered for one backend; then the one that was not used for longest goes."""


@attrs.frozen
class ExchangedToken:
    """What came of the exchange: the value of a header, or why there is none."""

    until: float
    header: bytes = attrs.field(default=b"", repr=False)
    refusal: str = ""


@attrs.define(eq=False)
class TokenExchange:
    """The exchange for one backend. Each token is exchanged by one request at a time; the others wait for it."""

    client: ClientCredentials
    issuer: str
    fetcher: Fetcher
    wanted: Mapping[str, str]
    """Parameters: `resource`, `audience`, `scope`, `requested_token_type`."""
    store: Store = attrs.field(factory=MemoryStore)
    clock: Clock = time.time
    _kept: "OrderedDict[bytes, ExchangedToken]" = attrs.field(factory=OrderedDict, init=False, repr=False)
    _turns: dict[bytes, trio.Lock] = attrs.field(factory=dict, init=False, repr=False)
    _found: DiscoveredServer | None = attrs.field(default=None, init=False)

    def auth_for(self, token: str) -> Auth:
        """The `auth` of connections that are one caller's."""
        return ExchangedAuth(self, token)

    def __len__(self) -> int:
        return len(self._kept)

    async def header_for(self, token: str, refused: bytes = b"") -> bytes:
        """The header for the caller with this *token*; another one than was *refused*. Raises `NotAuthorized`."""
        digest = digest_of(token)
        kept = self._fresh(digest, refused)
        if kept is None:
            turn = self._turns.setdefault(digest, trio.Lock())
            try:
                async with turn:
                    kept = self._fresh(digest, refused)
                    if kept is None:
                        kept = await self._exchange(token)
                        self._keep(digest, kept)
            finally:
                if not turn.locked():
                    self._turns.pop(digest, None)
        if not kept.header:
            raise NotAuthorized(kept.refusal)
        return kept.header

    def _fresh(self, digest: bytes, refused: bytes) -> ExchangedToken | None:
        kept = self._kept.get(digest)
        if kept is None or kept.until <= self.clock() or (refused and kept.header == refused):
            return None
        self._kept.move_to_end(digest)
        return kept

    def _keep(self, digest: bytes, kept: ExchangedToken) -> None:
        self._kept[digest] = kept
        self._kept.move_to_end(digest)
        while len(self._kept) > MAX_EXCHANGED:
            self._kept.popitem(last=False)

    async def _exchange(self, token: str) -> ExchangedToken:
        try:
            return await self._ask(token)
        except NotAuthorized as error:
            self._found = None  # the authorization server may have moved
            log.warning("token_exchange_failed", issuer=self.issuer, failure=str(error))
            return ExchangedToken(self.clock() + REFUSED_TIME, refusal=str(error))

    async def _ask(self, token: str) -> ExchangedToken:
        if self._found is None:
            server = await server_at(self.issuer, self.fetcher)
            self._found = DiscoveredServer(way=DiscoveryRoute.RESOURCE, resource="", server=server)
        desk = TokenEndpoint(self._found, self.fetcher, clock=self.clock)
        client = await self.client.holder(desk, self.store)
        parameters = {
            "grant_type": TOKEN_EXCHANGE,
            "subject_token": token,
            "subject_token_type": ACCESS_TOKEN,
            **self.wanted,
            **self.client.authentication(desk),
        }
        answer = await desk.exchange(client, parameters)
        wanted = self.wanted.get("requested_token_type")
        if wanted is not None and answer.issued_token_type not in (None, wanted):
            raise FetchFailed("the authorization server returned another type of token than requested")
        now = self.clock()
        tokens = read_tokens(
            *(answer,), now=now, issuer=self.issuer, client_id=client.client_id, resource="", asked=(), proof_key=None
        )
        if tokens.scheme != "Bearer" or tokens.access_token == token:  # RFC 8693 lets it give the same one back
            raise FetchFailed("the authorization server gave no token of another kind in exchange")
        until = min(now + EXCHANGED_TIME, now + EXCHANGED_TIME if tokens.renew_at is None else tokens.renew_at)
        return ExchangedToken(until, f"Bearer {tokens.access_token}".encode("ascii"))


@attrs.frozen
class ExchangedAuth:
    """The `auth` of connections that are one caller's: what its *token* is exchanged for."""

    exchange: TokenExchange
    token: str = attrs.field(repr=False)

    def credentials(self, url: str) -> Credentials:
        """Raises `NotAuthorized` if a token could be overheard on the way to *url*."""
        check_private(url)
        return _Exchanged(self.exchange, self.token)


@attrs.frozen
class _Exchanged:
    exchange: TokenExchange
    token: str = attrs.field(repr=False)

    async def prove(self, method: bytes) -> Proof:
        return _proof(await self.exchange.header_for(self.token))

    def helps(self, refusal: AnswerHead, used: Proof) -> bool:
        return refusal.status == 401 and not used.renewals

    async def renew(self, method: bytes, refusal: AnswerHead, used: Proof) -> Proof:
        before = next((value for name, value in used.headers if name == b"authorization"), b"")
        return attrs.evolve(_proof(await self.exchange.header_for(self.token, before)), renewals=used.renewals + 1)


def _proof(header: bytes) -> Proof:
    return Proof(headers=((b"authorization", header),))


def digest_of(token: str) -> bytes:
    """What a token is remembered by."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def wanted_of(url: str, audience: str | None, resource: str | None, scopes: Scopes, kind: str | None) -> dict[str, str]:
    """The parameters that say what for: the server at *url* itself, unless the operator says otherwise."""
    wanted = {"audience": audience, "resource": resource, "scope": " ".join(scopes), "requested_token_type": kind}
    if audience is None and resource is None:
        wanted["resource"] = canonical(url)
    return {name: value for name, value in wanted.items() if value}
