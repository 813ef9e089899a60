"""The keys of one issuer, fetched when they are first needed. One fetch serves all requests that wait for it."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec
import trio

from callboard.codecs.oauth.addresses import Reach
from callboard.codecs.oauth.issuer import IssuerSettings
from callboard.codecs.oauth.jwks import KEPT_LEAST, IssuerKeys, KeyCache, Refetch, kept_for
from callboard.codecs.oauth.metadata import read_issuer
from callboard.errors import AskFailed, FetchFailed, IssuerUnavailable, NotAuthorized
from callboard.oauth.discovery import server_document
from callboard.supervisor import Actor, Ask, Fact, get_logger
from callboard.transports.client.fetch import MAX_FETCHED, Fetcher

KEYS_TIME: Final = 10.0
"""Seconds to get the keys of an issuer: its metadata, which may be in three places, and the keys."""

log = get_logger("callboard.authorization")


@attrs.frozen
class RenewKeys(Ask[None]):
    """Fetch the keys, unless that was done since: *seen* is the number of fetches then."""

    seen: int


@attrs.define(eq=False)
class KeySource(Actor[RenewKeys]):
    """Has the keys of one issuer. They are read at once, and asked for by way of its mailbox."""

    issuer: IssuerSettings
    fetcher: Fetcher
    cache: KeyCache = attrs.field(init=False)
    _jwks_url: str | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        """Raises `FetchFailed` for keys in the settings that are none."""
        said = self.issuer.jwks
        if self.issuer.secret is not None:
            self.cache = KeyCache(IssuerKeys.shared(self.issuer.secret), is_fixed=True)
        elif isinstance(said, Mapping):
            self.cache = KeyCache(IssuerKeys.read(msgspec.json.encode(said)), is_fixed=True)
        else:
            self.cache = KeyCache()

    @classmethod
    def of(cls, issuer: IssuerSettings, fetcher: Fetcher | None = None) -> "KeySource":
        """With a fetcher that goes where the issuer is, and to the hosts that are trusted."""
        where = issuer.jwks if isinstance(issuer.jwks, str) else issuer.issuer
        return cls(issuer, fetcher or Fetcher(Reach.of_server(where, issuer.trust)))

    async def run(self) -> None:
        self.cache.lost()  # what an earlier incarnation was about to fetch
        async for message in self.inbox:
            if message.seen == self.cache.attempts:
                await self._fetch()
            message.reply(None)

    async def keys(self) -> tuple[IssuerKeys, bool]:
        """The keys, and whether they were waited for. Raises `IssuerUnavailable`."""
        decision = self.cache.before_check(trio.current_time())
        if decision is Refetch.WAIT:
            await self.renew()
        elif decision is Refetch.MEANWHILE:
            self._renew_meanwhile()
        keys = self.cache.usable(trio.current_time())
        if keys is None:
            raise IssuerUnavailable("the keys of the issuer cannot be had")
        return keys, decision is Refetch.WAIT

    async def newer_keys(self) -> IssuerKeys | None:
        """For a token by an unknown key: the keys, asked for again; None if there is no asking now.

        Raises `IssuerUnavailable`.
        """
        decision = self.cache.after_unknown(trio.current_time())
        if decision is Refetch.WAIT:
            await self.renew()
        if decision is Refetch.CANNOT or (decision is Refetch.WAIT and self.cache.is_failing):
            raise IssuerUnavailable("the keys of the issuer cannot be had")  # the token may be by a new one
        return self.cache.keys if decision is Refetch.WAIT else None

    async def renew(self) -> None:
        """Ask for the keys, and wait for them. Raises `IssuerUnavailable`."""
        try:
            await self.address.ask(RenewKeys(self.cache.ask()), within=2 * KEYS_TIME)
        except AskFailed as error:
            raise IssuerUnavailable(f"the keys of the issuer cannot be had: {error}") from None

    def _renew_meanwhile(self) -> None:
        with suppress(trio.WouldBlock):  # enough questions are waiting
            self.address.send_nowait(RenewKeys(self.cache.ask()))

    async def _fetch(self) -> None:
        try:
            with trio.fail_after(KEYS_TIME):
                body, kept = await self._load()
            keys = IssuerKeys.read(body)
        except (NotAuthorized, OSError, trio.TooSlowError) as error:
            self._jwks_url = None
            self.cache.failed(trio.current_time())
            reason = str(error) or f"timed out after {KEYS_TIME:g} s"
            log.warning("issuer_keys_not_fetched", issuer=self.issuer.issuer, reason=reason)
        else:
            self.cache.fetched(keys, trio.current_time(), kept)
            log.info("issuer_keys_fetched", issuer=self.issuer.issuer, keys=len(keys.keys), kept=kept)

    async def _load(self) -> tuple[bytes, float]:
        """The document, and for how long it is good. Raises `NotAuthorized`, OSError."""
        said: Any = self.issuer.jwks
        if isinstance(said, Path):
            return await trio.to_thread.run_sync(_read, said, abandon_on_cancel=True), KEPT_LEAST
        fetched = await self.fetcher.get(said if isinstance(said, str) else await self._found_url())
        if fetched.status != 200:
            raise FetchFailed(f"the request for keys returned HTTP {fetched.status}")
        return fetched.body, kept_for((fetched.head.get(b"cache-control") or b"").decode("latin-1"))

    async def _found_url(self) -> str:
        if self._jwks_url is None:
            issuer = self.issuer.issuer
            self._jwks_url = read_issuer(await server_document(issuer, self.fetcher), issuer).jwks_uri
        if self._jwks_url is None:
            raise FetchFailed("the metadata of the issuer names no keys")
        return self._jwks_url

    def facts(self) -> dict[str, Fact]:
        keys = self.cache.keys
        return {"issuer": self.issuer.issuer, "keys": 0 if keys is None else len(keys.keys)}


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        body = file.read(MAX_FETCHED + 1)
    if len(body) > MAX_FETCHED:
        raise FetchFailed(f"{path}: larger than {MAX_FETCHED} bytes")
    return body
