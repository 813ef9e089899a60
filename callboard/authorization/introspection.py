"""Asking an issuer about its tokens (RFC 7662): for those that only it can read, or may take back."""

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import trio

from callboard.codecs.oauth.addresses import Reach
from callboard.codecs.oauth.client import POST, PRIVATE_KEY, OAuthClient, identify
from callboard.codecs.oauth.issuer import IntrospectionSettings, IssuerSettings
from callboard.codecs.oauth.jwt import client_assertion, read_key
from callboard.codecs.oauth.metadata import read_issuer
from callboard.codecs.oauth.signed import NotSigned, read_object
from callboard.codecs.oauth.tokens import CLIENT_ASSERTION, write_form
from callboard.errors import AskFailed, BadToken, FetchFailed, IssuerUnavailable, NotAuthorized
from callboard.oauth.discovery import server_document
from callboard.supervisor import Actor, Ask, Fact, get_logger
from callboard.transports.client.fetch import FETCH_TIME, Fetcher

AT_ONCE: Final = 16
"""Questions to one issuer at a time. Further tokens wait."""

REFUSED_FOR: Final = 10.0
"""Seconds that a token stays refused after its issuer said so."""

MAX_REFUSED: Final = 10_000
"""Refused tokens that are remembered: with more, the oldest is asked about again."""

PAUSE: Final = 5.0
"""Seconds without any question after an issuer did not answer one."""

TOLD_WITHIN: Final = 6 * FETCH_TIME
"""Seconds that a token waits for what its issuer says of it, other tokens' turns included."""

log = get_logger("callboard.authorization")

Claims = Mapping[str, Any]

_REFUSED: Final = frozenset((400, 413, 414, 422, 431))


@attrs.frozen(eq=False)
class Introspect(Ask["Claims"]):
    """What does the issuer say of this token? Refused with `BadToken` or `IssuerUnavailable`."""

    token: str = attrs.field(repr=False)
    digest: bytes = attrs.field(repr=False)


@attrs.define(eq=False)
class Introspector(Actor[Introspect]):
    """Asks one issuer: once about each token, for all requests that wait for the answer."""

    issuer: IssuerSettings
    settings: IntrospectionSettings
    fetcher: Fetcher
    clock: Callable[[], float] = time.time
    asked: int = attrs.field(default=0, init=False)
    _waiting: dict[bytes, list[Introspect]] = attrs.field(factory=dict, init=False, repr=False)
    _refused: dict[bytes, float] = attrs.field(factory=dict, init=False, repr=False)
    _failed_at: float | None = attrs.field(default=None, init=False)
    _endpoint: str | None = attrs.field(default=None, init=False)

    @classmethod
    def of(
        cls,
        issuer: IssuerSettings,
        settings: IntrospectionSettings,
        fetcher: Fetcher | None = None,
        clock: Callable[[], float] = time.time,
    ) -> "Introspector":
        where = settings.endpoint or issuer.issuer
        return cls(issuer, settings, fetcher or Fetcher(Reach.of_server(where, issuer.trust)), clock)

    async def run(self) -> None:
        limit = trio.Semaphore(AT_ONCE)
        async with self.cancel_on_stop() as nursery:
            async for message in self.inbox:
                if message.digest in self._waiting:
                    self._waiting[message.digest].append(message)
                    continue
                await limit.acquire()
                self._waiting[message.digest] = [message]
                nursery.start_soon(self._answer, message, limit)

    async def claims(self, token: str, digest: bytes) -> Claims:
        """What the issuer says of an active token. Raises `BadToken`, `IssuerUnavailable`."""
        now = trio.current_time()
        if now < self._refused.get(digest, 0.0):
            raise BadToken(reason="not active, as the issuer said")
        if self._failed_at is not None and now < self._failed_at + PAUSE:
            raise IssuerUnavailable("the issuer does not answer")
        try:
            return await self.address.ask(Introspect(token, digest), within=TOLD_WITHIN)
        except AskFailed as error:
            raise IssuerUnavailable(f"the issuer was not asked: {error}") from None

    def forget(self) -> None:
        """Ask anew about tokens that were refused."""
        self._refused.clear()

    async def _answer(self, message: Introspect, limit: trio.Semaphore) -> None:
        try:
            answer = await self._outcome(message)
        finally:
            limit.release()
            waiting = self._waiting.pop(message.digest)
        for each in waiting:
            if isinstance(answer, Exception):
                each.refuse(type(answer)(*answer.args) if isinstance(answer, IssuerUnavailable) else _refusal())
            else:
                each.reply(answer)

    async def _outcome(self, message: Introspect) -> Claims | BadToken | IssuerUnavailable:
        try:
            answer = await self._ask(message.token)
        except NotAuthorized as error:
            self._failed_at, self._endpoint = trio.current_time(), None
            log.warning("introspection_failed", issuer=self.issuer.issuer, reason=str(error))
            return IssuerUnavailable("the issuer does not answer")
        self._failed_at = None
        if answer.get("active") is True:
            return answer
        if len(self._refused) >= MAX_REFUSED:
            del self._refused[next(iter(self._refused))]
        self._refused[message.digest] = trio.current_time() + REFUSED_FOR
        return _refusal()

    async def _ask(self, token: str) -> Claims:
        """Raises `NotAuthorized`, without a word of what was sent."""
        headers, form = self._identity()
        body = write_form({"token": token, "token_type_hint": "access_token", **form})
        kind = {"content-type": "application/x-www-form-urlencoded"}
        self.asked += 1
        fetched = await self.fetcher.post(await self._where(), body, {**kind, **headers})
        if fetched.status in _REFUSED:  # it does not like this token, and has nothing against the next one
            return {"active": False}
        if fetched.status != 200:
            raise FetchFailed(f"the introspection endpoint returned HTTP {fetched.status}")
        try:
            return read_object(fetched.body)
        except NotSigned as error:
            raise FetchFailed(f"invalid answer of the introspection endpoint: {error}") from None

    async def _where(self) -> str:
        if self.settings.endpoint is not None:
            return self.settings.endpoint
        if self._endpoint is None:
            issuer = self.issuer.issuer
            self._endpoint = read_issuer(await server_document(issuer, self.fetcher), issuer).introspection_endpoint
        if self._endpoint is None:
            raise FetchFailed("the metadata of the issuer names no introspection endpoint")
        return self._endpoint

    def _identity(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        said = self.settings
        if said.private_key is None:
            method = said.method if said.method == POST else "client_secret_basic"
            return identify(OAuthClient(client_id=said.client_id, secret=said.client_secret, method=method))
        jti = secrets.token_urlsafe(16)
        key = read_key(said.private_key)
        assertion = client_assertion(key, said.algorithm, said.client_id, self.issuer.issuer, now=self.clock(), jti=jti)
        headers, form = identify(OAuthClient(client_id=said.client_id, method=PRIVATE_KEY))
        return headers, {**form, "client_assertion_type": CLIENT_ASSERTION, "client_assertion": assertion}

    def facts(self) -> dict[str, Fact]:
        return {"issuer": self.issuer.issuer, "asked": self.asked}


def _refusal() -> BadToken:
    return BadToken(reason="not active, as the issuer says")
