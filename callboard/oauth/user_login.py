"""A login of each user's own at one server behind the broker: its tokens are for that user's calls alone."""

import re
import secrets
import time
from collections import OrderedDict
from typing import Final

import attrs
import msgspec
import trio

from callboard.codecs.caller import Caller, caller_of_key
from callboard.codecs.http.response_parser import AnswerHead
from callboard.codecs.oauth.addresses import locate
from callboard.codecs.oauth.challenge import Challenge
from callboard.codecs.oauth.discovery import canonical, origin_of
from callboard.codecs.oauth.metadata import check_pkce
from callboard.codecs.oauth.scopes import Scopes, choose, with_refresh
from callboard.codecs.oauth.tokens import CODE, REFRESH, TokenAnswer, TokenRefused, Tokens, read_tokens
from callboard.errors import FetchFailed, NotAuthorized
from callboard.oauth.auth import check_private
from callboard.oauth.authorizer import PASSING
from callboard.oauth.discovery import DiscoveredServer, find
from callboard.oauth.identity import UNKNOWN, Identity, forget_client
from callboard.oauth.login_desk import LoginDesk, PendingLogin
from callboard.oauth.shield import shielded
from callboard.oauth.store import KEEP_TIME, keep, recall
from callboard.oauth.token_endpoint import Clock, TokenEndpoint
from callboard.supervisor import get_logger
from callboard.supervisor.audit import note
from callboard.transports.client.credentials import Auth, Credentials, Proof
from callboard.transports.client.fetch import Fetcher

log = get_logger("callboard.oauth")

MAX_CACHED: Final = 8192
"""Most tokens of users of one server in memory; others are read when they are wanted."""

FOUND_TIME: Final = 600.0
"""Seconds after which the authorization server of a server is looked up again."""

LOG_IN: Final = "needs a login: call again to be asked for it"

_ORIGIN: Final = re.compile(r"https?://[A-Za-z0-9.\-]+(:[0-9]{1,5})?|https?://\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")
_VISIBLE: Final = re.compile(r"[\x21-\x7e]{1,4096}")


@attrs.frozen
class UserTokens:
    """What is kept of a login. A refresh does not change its *serial*."""

    tokens: Tokens = attrs.field(repr=False)
    serial: str


@attrs.define(eq=False)
class UserLogin:
    """The logins at one server. Tokens are refreshed by one request of a user at a time; the others wait for it."""

    backend: str
    url: str
    identity: Identity
    scopes: Scopes
    fetcher: Fetcher
    desk: LoginDesk
    clock: Clock = time.time
    _kept: "OrderedDict[str, UserTokens]" = attrs.field(factory=OrderedDict, init=False, repr=False)
    _turns: dict[str, trio.Lock] = attrs.field(factory=dict, init=False, repr=False)
    _awaited: dict[str, trio.Event] = attrs.field(factory=dict, init=False, repr=False)
    _found: tuple[DiscoveredServer, float] | None = attrs.field(default=None, init=False)
    _finding: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    # What a call asks.

    async def has(self, caller: Caller) -> bool:
        """Whether *caller* has logged in. Raises `NotAuthorized` if that cannot be told."""
        return caller.key in self._kept or await self._load(caller.key) is not None

    async def begin(self, caller: Caller) -> str:
        """The URL of the page where *caller* can log in. Raises `NotAuthorized`, `Overloaded`."""
        async with self._finding:
            found = await self._find()
            desk = TokenEndpoint(found, self.fetcher, clock=self.clock)
            client = await self.identity.at(desk, self.desk.redirect_uri, self.desk.store)
        server = found.server
        check_pkce(server, found.way)
        endpoint = server.authorization_endpoint or ""
        locate(endpoint, self.fetcher.reach)
        if _ORIGIN.fullmatch(origin_of(endpoint)) is None or _VISIBLE.fullmatch(endpoint) is None:
            raise NotAuthorized("invalid authorization endpoint")
        scopes = with_refresh(
            choose(None, None if self.scopes else found.scopes, self.scopes, ()), server.scopes_supported, wants=True
        )
        return self.desk.begin(
            PendingLogin(
                key=caller.key,
                backend=self.backend,
                found=found,
                client=client,
                scopes=scopes,
                reach=self.fetcher.reach,
                redeem=self._redeem,
            )
        )

    async def wait(self, caller: Caller, seconds: float) -> bool:
        """Wait until *caller* has logged in, but not longer; whether that is so."""
        if await self.has(caller):
            return True
        event = self._awaited.setdefault(caller.key, trio.Event())
        try:
            with trio.move_on_after(seconds):
                await event.wait()
        finally:
            if not event.statistics().tasks_waiting and self._awaited.get(caller.key) is event:
                del self._awaited[caller.key]
        return await self.has(caller)

    def mark_of(self, caller: Caller) -> bytes:
        """What tells connections of one login from those of another. Raises `NotAuthorized`."""
        kept = self._kept.get(caller.key)
        if kept is None:
            raise NotAuthorized(LOG_IN)
        return f"{caller.key}\0{kept.serial}".encode("utf-8", "surrogatepass")

    def auth_for(self, caller: Caller) -> Auth:
        """The `auth` of connections that are one caller's."""
        return UserAuth(self, caller.key)

    # Tokens.

    async def header_for(self, key: str, refused: bytes = b"") -> bytes:
        """The header for the caller with this *key*; another one than was *refused*. Raises `NotAuthorized`."""
        header = self._good(await self._load(key), refused)
        if header:
            return header
        turn = self._turns.setdefault(key, trio.Lock())
        try:
            async with turn:
                kept = await self._load(key)
                header = self._good(kept, refused)
                if header or kept is None:
                    if not header:
                        raise NotAuthorized(LOG_IN)
                    return header
                return await self._refreshed(key, kept, is_refused=_header(kept) == refused)
        finally:
            if not turn.locked():
                self._turns.pop(key, None)

    def _good(self, kept: UserTokens | None, refused: bytes) -> bytes:
        """The header of tokens that need not be renewed; empty if they do."""
        if kept is None or not kept.tokens.is_fresh(self.clock()):
            return b""
        header = _header(kept)
        return b"" if header == refused else header

    async def _refreshed(self, key: str, kept: UserTokens, *, is_refused: bool) -> bytes:
        tokens = kept.tokens
        try:
            renewed = await self._refresh(tokens)
        except NotAuthorized as error:
            is_passing = not isinstance(error, TokenRefused) or error.error in PASSING
            if is_passing and not is_refused and not tokens.is_over(self.clock()):
                return _header(kept)  # what there is may still do
            if is_passing and isinstance(error, FetchFailed | TokenRefused):
                raise
            await self._give_up(key, kept, str(error))
            raise NotAuthorized(LOG_IN) from None
        if (now := self._kept.get(key)) is not None and now is not kept:
            return _header(now)  # the user has logged in again meanwhile
        fresh = attrs.evolve(kept, tokens=renewed)
        await self._keep(key, fresh)
        return _header(fresh)

    async def _refresh(self, tokens: Tokens) -> Tokens:
        """Raises `TokenRefused` and `FetchFailed` as the token endpoint does, and plain `NotAuthorized` if there is no
        way to refresh them."""
        if tokens.refresh_token is None:
            raise NotAuthorized("the token has ended")
        async with self._finding:
            found = await self._find(tokens.issuer)
        desk = TokenEndpoint(found, self.fetcher, clock=self.clock)
        client = await self.identity.known(desk, self.desk.store)
        if found.issuer != tokens.issuer or client is None or client.client_id != tokens.client_id:
            raise NotAuthorized("the server has another authorization server, or another client there")
        parameters = {"grant_type": REFRESH, "refresh_token": tokens.refresh_token, "resource": tokens.resource}
        answer = await desk.exchange(client, parameters)
        return self._read(answer, found, client.client_id, tokens.asked, tokens)

    async def _redeem(self, login: PendingLogin, code: str) -> None:
        errand = login.errand
        if errand is None:
            raise NotAuthorized("the user has not agreed")
        desk = TokenEndpoint(login.found, self.fetcher, clock=self.clock)
        parameters = {
            "grant_type": CODE,
            "code": code,
            "redirect_uri": errand.redirect_uri,
            "code_verifier": errand.verifier,
            "resource": login.found.resource,
        }
        try:
            answer = await desk.exchange(login.client, parameters)
        except TokenRefused as refused:
            if refused.error in UNKNOWN:
                await forget_client(login.found.server, self.desk.store)
            raise
        tokens = self._read(answer, login.found, login.client.client_id, login.scopes)
        await self._keep(login.key, UserTokens(tokens, secrets.token_hex(16)))
        log.info("upstream_login", backend=self.backend, issuer=login.found.issuer)

    def _read(
        self,
        answer: TokenAnswer,
        found: DiscoveredServer,
        client_id: str,
        asked: Scopes,
        before: Tokens | None = None,
    ) -> Tokens:
        tokens = read_tokens(
            answer,
            now=self.clock(),
            issuer=found.issuer,
            client_id=client_id,
            resource=found.resource,
            asked=asked,
            proof_key=None,
            before=before,
        )
        if tokens.scheme != "Bearer":
            raise FetchFailed("the authorization server gave no bearer token")
        return tokens

    async def _find(self, preferred: str | None = None) -> DiscoveredServer:
        if self._found is not None and trio.current_time() < self._found[1] + FOUND_TIME:
            return self._found[0]
        registered = self.identity.registered
        issuer = preferred if registered is None else registered.issuer or preferred
        found = await find(self.url, Challenge(""), self.fetcher, issuer)
        self._found = found, trio.current_time()
        return found

    async def reject(self, key: str, refused: bytes) -> None:
        """Forget tokens that the server refuses although they are new. Raises `NotAuthorized`, always."""
        kept = await self._load(key)
        if kept is not None and _header(kept) == refused:
            await self._give_up(key, kept, "the server refuses a new token")
        raise NotAuthorized(LOG_IN)

    # What is kept.

    def _name(self, key: str) -> str:
        """Tokens are found by caller, backend and URL, and say themselves which issuer they are of."""
        return "login " + msgspec.json.encode((key, self.backend, canonical(self.url))).decode()

    async def _load(self, key: str) -> UserTokens | None:
        kept = self._kept.get(key)
        if kept is None:
            kept = await recall(self.desk.store, self._name(key), UserTokens)
            if kept is not None and key not in self._kept:
                self._cache(key, kept)
            return self._kept.get(key)
        self._kept.move_to_end(key)
        return kept

    def _cache(self, key: str, kept: UserTokens) -> None:
        self._kept[key] = kept
        self._kept.move_to_end(key)
        while len(self._kept) > MAX_CACHED:
            self._kept.popitem(last=False)

    async def _keep(self, key: str, kept: UserTokens) -> None:
        async with shielded(KEEP_TIME):  # what was given once is not given again
            await keep(self.desk.store, self._name(key), kept)
        self._cache(key, kept)
        if (event := self._awaited.pop(key, None)) is not None:
            event.set()

    async def _give_up(self, key: str, kept: UserTokens, why: str) -> None:
        """Forget tokens, so that the next call asks for a login."""
        log.info("upstream_token_refused", backend=self.backend, failure=why)
        about = {"caller": caller_of_key(key), "server": self.backend}
        note("upstream_token_failed", **about, outcome="refused", reason=why)
        if self._kept.get(key) not in (None, kept):
            return  # the user has logged in again meanwhile
        self._kept.pop(key, None)
        async with shielded(KEEP_TIME):
            await self.desk.store.drop(self._name(key))


@attrs.frozen
class UserAuth:
    """The `auth` of connections that are one caller's."""

    login: UserLogin
    key: str

    def credentials(self, url: str) -> Credentials:
        """Raises `NotAuthorized` if a token could be overheard on the way to *url*."""
        check_private(url)
        return _OfUser(self.login, self.key)


@attrs.frozen
class _OfUser:
    login: UserLogin
    key: str

    async def prove(self, method: bytes) -> Proof:
        return _proof(await self.login.header_for(self.key))

    def helps(self, refusal: AnswerHead, used: Proof) -> bool:
        return refusal.status == 401

    async def renew(self, method: bytes, refusal: AnswerHead, used: Proof) -> Proof:
        before = next((value for name, value in used.headers if name == b"authorization"), b"")
        if used.renewals:
            await self.login.reject(self.key, before)
        return attrs.evolve(_proof(await self.login.header_for(self.key, before)), renewals=used.renewals + 1)


def _header(kept: UserTokens) -> bytes:
    return f"Bearer {kept.tokens.access_token}".encode("ascii")


def _proof(header: bytes) -> Proof:
    return Proof(headers=((b"authorization", header),))
