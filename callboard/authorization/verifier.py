"""Whether a token is good, and its caller: only tokens of configured issuers are."""

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Self, TypeAlias

import attrs

from callboard import tree
from callboard.authorization.introspection import Introspector
from callboard.authorization.keys import KeySource
from callboard.codecs.caller import MAX_CALLER, Caller, write_caller
from callboard.codecs.oauth.access_token import binding_of, caller_of, check_claims, check_header, check_signature
from callboard.codecs.oauth.dpop import Nonces, SeenProofs, bad_proof, check_proof
from callboard.codecs.oauth.issuer import IssuerSettings
from callboard.codecs.oauth.presented import PresentedToken
from callboard.codecs.oauth.signed import MAX_TOKEN, NotSigned, SignedStatement, read_signed
from callboard.codecs.oauth.token_cache import KNOWN_FOR, KnownToken, TokenCache
from callboard.errors import BadToken, IssuerUnavailable
from callboard.supervisor import Supervisor
from callboard.transports.client.fetch import Fetcher

TOLD_FOR: Final = 60.0
"""Seconds that is believed what an issuer says of a token: it may take it back."""

OPEN_FOR: Final = 300.0
"""Seconds that a stream or socket stays open by a token of which the issuer does not say when it ends."""

_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")

WallClock: TypeAlias = Callable[[], float]
"""Seconds since 1970."""

Source: TypeAlias = KeySource | Introspector


@attrs.define(eq=False)
class TokenVerifier:
    """Checks tokens.

    ```python
    verifier = TokenVerifier(resource="https://tools.example.com/mcp")
    await verifier.open(root)
    await verifier.use([IssuerSettings(issuer="https://login.example.com")])
    caller = verifier.known(presented.token) or await verifier.verify(presented)
    ```
    """

    resource: str
    """The URL of the server: the audience of tokens where nothing else is said."""
    requires_proof: bool = False
    """Whether only tokens are taken that are bound to a key (DPoP)."""
    nonces: Nonces | None = None
    """Given: a proof must have one of these."""
    fetcher: Fetcher | None = None
    """Given: used for all issuers, in place of one for each."""
    keeps_tokens: Callable[[], bool] = lambda: False
    """Whether callers must bring their tokens along, to be exchanged for others."""
    clock: WallClock = time.time
    cache: TokenCache = attrs.field(factory=lambda: TokenCache(os.urandom(32)))
    proofs: SeenProofs = attrs.field(factory=lambda: SeenProofs(os.urandom(32)))
    checked: int = attrs.field(default=0, init=False)
    """How many tokens were checked by their signature, well or not."""
    _sources: dict[str, Source] = attrs.field(factory=dict, init=False, repr=False)
    _group: Supervisor | None = attrs.field(default=None, init=False, repr=False)
    _numbers: int = attrs.field(default=0, init=False)

    # Its life.

    async def open(self, root: Supervisor) -> Self:
        """Take a place below *root*."""
        self._group = await root.add(tree.issuers())
        return self

    async def use(self, issuers: Iterable[IssuerSettings], *, resource: str | None = None) -> None:
        """Go by these *issuers* from now on. One that stays as it is keeps its keys, and its tokens stay known.

        Raises ValueError for two of one name, `FetchFailed` for keys in the settings that are none; then nothing
        changes.
        """
        if self._group is None:
            raise RuntimeError("the verifier is not open")
        several = list(issuers)
        wanted = {issuer.issuer: issuer for issuer in several}
        if len(wanted) < len(several):
            raise ValueError("two issuers with one name")
        made = {name: self._source(each) for name, each in wanted.items() if not self._has(each)}
        for source in made.values():
            self._numbers += 1
            await self._group.add(tree.issuer(f"issuer-{self._numbers}", partial(_itself, source)))
        before = self._sources
        self._sources = {name: made.get(name) or before[name] for name in wanted}
        if resource is not None and resource != self.resource:
            self.resource = resource
            self.clear()
        for name, source in before.items():
            if self._sources.get(name) is not source:
                self.cache.forget(issuer=name)
                await source.address.stop()

    @property
    def issuers(self) -> tuple[IssuerSettings, ...]:
        return tuple(source.issuer for source in self._sources.values())

    # What the endpoint calls.

    def known(self, token: str) -> Caller | None:
        """The caller of a bearer token that was found good a little while ago. None for all that is to be verified:
        also for tokens that are bound to something, which is looked at each time."""
        known = self._known(self.cache.digest(token))
        return None if known is None or known.binding.is_bound or self.requires_proof else known.caller

    async def verify(self, presented: PresentedToken) -> Caller:
        """The caller. Raises `BadToken`, `IssuerUnavailable`."""
        if len(presented.token) > MAX_TOKEN or _VISIBLE.fullmatch(presented.token) is None:
            raise BadToken(reason="too long, or with odd characters")
        digest = self.cache.digest(presented.token)
        known = self._known(digest) or await self._check(presented.token, digest)
        known.binding.check_certificate(presented.certificate)
        self._check_proof(presented, known)
        return known.caller

    def forget(self, key: str) -> int:
        """Look anew at the tokens of the caller with this key; how many those are."""
        return self.cache.forget(key=key)

    def clear(self) -> None:
        """Look anew at all tokens."""
        self.cache.forget()
        for source in self._sources.values():
            if isinstance(source, Introspector):
                source.forget()

    # How a token is checked.

    def _known(self, digest: bytes) -> KnownToken | None:
        known = self.cache.get(digest, self.clock())
        if known is None or (known.caller.token is None and self.keeps_tokens()):
            return None
        source = self._sources.get(known.caller.issuer)
        return known if source is not None and known.generation == _generation(source) else None

    async def _check(self, token: str, digest: bytes) -> KnownToken:
        try:
            statement = read_signed(token)
        except NotSigned as error:
            source: Source | None = self._opaque()
            if source is None:
                raise BadToken(reason=str(error)) from None
        else:
            source = self._sources.get(str(statement.claims.get("iss")))
        if isinstance(source, KeySource):
            await self._check_signed(statement, source)
            known = self._understood(statement.claims, source, KNOWN_FOR, token)
        elif source is not None:
            claims = await source.claims(token, digest)
            check_claims(claims, source.issuer, self.resource, now=self.clock(), is_told=True)
            known = self._understood(claims, source, TOLD_FOR, token)
        else:
            raise BadToken(reason="unknown issuer")
        if self._sources.get(source.issuer.issuer) is source:  # unless that has changed meanwhile
            self.cache.keep(digest, known)
        return known

    def _opaque(self) -> Source | None:
        """The issuer to ask about a token that names no issuer. The token is shown to one issuer, never to several."""
        asking = [source for source in self._sources.values() if isinstance(source, Introspector)]
        return asking[0] if len(asking) == 1 else None

    async def _check_signed(self, statement: SignedStatement, source: KeySource) -> None:
        """Raises `BadToken`, `IssuerUnavailable`."""
        check_header(statement, source.issuer)
        check_claims(statement.claims, source.issuer, self.resource, now=self.clock())
        keys, is_new = await source.keys()
        self.checked += 1
        if check_signature(statement, keys):
            return
        newer = None if is_new else await source.newer_keys()
        if newer is None or not check_signature(statement, newer):
            raise BadToken(reason="by an unknown key")

    def _understood(self, claims: Mapping[str, object], source: Source, lasts: float, token: str) -> KnownToken:
        caller, now = caller_of(claims, source.issuer), self.clock()
        if len(write_caller(caller)) > MAX_CALLER:
            raise BadToken(reason="too many claims")
        if caller.expires is None:  # an issuer that is asked need not say: then what is open is looked at again
            caller = attrs.evolve(caller, expires=now + OPEN_FOR)
        if self.keeps_tokens():
            caller = attrs.evolve(caller, token=token)
        until = now + lasts
        if caller.expires is not None:
            until = min(until, caller.expires + source.issuer.leeway)
        return KnownToken(caller, until, len(token), binding_of(claims), _generation(source))

    def _check_proof(self, presented: PresentedToken, known: KnownToken) -> None:
        key, is_proven = known.binding.key, presented.scheme == "dpop"
        if key is None:
            if is_proven or self.requires_proof:
                raise BadToken(reason="the token is not bound to a key", scheme="DPoP")
            return
        if not is_proven:
            raise BadToken(reason="a bound token without its proof", scheme="DPoP")
        now = self.clock()
        proof = check_proof(
            presented.proof, token=presented.token, key=key, method=presented.method, url=presented.url, now=now
        )
        if self.nonces is not None:
            self.nonces.check(proof.nonce, now)
        try:
            is_first = self.proofs.take(proof, now)
        except OverflowError:
            raise IssuerUnavailable("too many DPoP proofs to remember") from None
        if not is_first:
            raise bad_proof("used before")

    def _has(self, issuer: IssuerSettings) -> bool:
        source = self._sources.get(issuer.issuer)
        return source is not None and source.issuer == issuer

    def _source(self, issuer: IssuerSettings) -> Source:
        if issuer.introspection is not None:
            return Introspector.of(issuer, issuer.introspection, self.fetcher, self.clock)
        return KeySource.of(issuer, self.fetcher)


def _itself(source: Source) -> Source:
    return source


def _generation(source: Source) -> int:
    return source.cache.generation if isinstance(source, KeySource) else 0
