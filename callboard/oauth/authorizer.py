"""The credentials for one server: tokens that are had when they are wanted, kept, refreshed, and asked for anew.

All requests to a server share them. One at a time asks for tokens; the others wait, and use what it got. If it got
nothing, neither do they: a user that said no to one of them has said no to all of them. Later requests may ask again.
"""

import secrets
import time
from collections.abc import Sequence
from typing import Final

import attrs
import trio

from callboard.codecs.http.response_parser import AnswerHead
from callboard.codecs.oauth.challenge import Challenge, read_challenges, wanted
from callboard.codecs.oauth.discovery import origin_of
from callboard.codecs.oauth.jwt import PROOF_ALGORITHM, ProofKey
from callboard.codecs.oauth.scopes import Scopes, choose, split
from callboard.codecs.oauth.tokens import REFRESH, TokenRefused, Tokens, read_tokens
from callboard.errors import NotAuthorized
from callboard.oauth.discovery import DiscoveredServer, find
from callboard.oauth.grants import Grant
from callboard.oauth.identity import UNKNOWN, forget_client
from callboard.oauth.shield import shielded
from callboard.oauth.store import KEEP_TIME, Store, keep, recall, tokens_of
from callboard.oauth.token_endpoint import Clock, TokenEndpoint
from callboard.oauth.turn import own_turn
from callboard.supervisor import get_logger
from callboard.transports.client.credentials import Proof
from callboard.transports.client.fetch import Fetcher

log = get_logger("callboard.oauth")

MAX_AUTHORIZATIONS: Final = 3
"""How often leave is asked for in the name of one request."""

MAX_RENEWALS: Final = 6
"""How often one request is made again with another proof, for any reason."""

REFUSAL_MEMORY: Final = 600.0
"""Seconds for which it is remembered that asking for certain scopes was in vain, and users are left in peace."""

MAX_IN_VAIN: Final = 64
"""Most sets of scopes of which that is remembered; then it begins anew."""

PASSING: Final = frozenset(("temporarily_unavailable", "server_error", "slow_down"))
"""Refusals that say nothing about the token."""


@attrs.frozen(eq=False)
class _Failure:
    """No tokens were obtained. *challenge* is the one that led to the request, if any."""

    why: str
    challenge: Challenge | None = None


@attrs.define(eq=False)
class Authorizer:
    """The tokens for the server at *url*, and how to come by others."""

    url: str
    grant: Grant
    store: Store
    fetcher: Fetcher
    scopes: Sequence[str] = ()
    binds: bool = False
    """Whether tokens shall be bound to a key wherever that is possible."""
    clock: Clock = time.time
    _tokens: Tokens | None = attrs.field(default=None, init=False)
    _key: tuple[str, ProofKey] | None = attrs.field(default=None, init=False, repr=False)
    _generation: int = attrs.field(default=0, init=False)
    _is_loaded: bool = attrs.field(default=False, init=False)
    _nonce: str | None = attrs.field(default=None, init=False, repr=False)
    _found: DiscoveredServer | None = attrs.field(default=None, init=False)
    _in_vain: dict[frozenset[str], float] = attrs.field(factory=dict, init=False)
    _failure: _Failure | None = attrs.field(default=None, init=False)
    """The last one: another than before one's turn came is one that was waited for."""
    _turn: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    # What a link asks.

    async def prove(self, method: bytes) -> Proof:
        if not self._is_loaded:
            async with self._turn:
                await self._load()
        tokens = self._tokens
        if tokens is not None and tokens.refresh_token and not tokens.is_fresh(self.clock()):
            await self._refresh_early(tokens)
        return self._proof(method, Proof())

    async def _refresh_early(self, tokens: Tokens) -> None:
        """Before it ends. If that cannot be done now, what there is may still do."""
        before = self._failure
        async with self._turn:
            if self._tokens is not tokens or self._failure is not before:
                return
            try:
                async with own_turn(self.store, self._name):
                    await self._load()  # another process may have done it, and then ours is worth nothing any more
                    if not self._tokens.is_fresh(self.clock()) and not await self._refresh(self._tokens):
                        self._failure = _Failure("refused")
            except NotAuthorized as error:
                self._failure = _Failure(str(error))
                log.warning("refresh_failed", server=self._server, failure=str(error))

    def helps(self, refusal: AnswerHead, used: Proof) -> bool:
        challenges = _challenges(refusal)
        if refusal.status == 403:
            return wanted(challenges).error == "insufficient_scope"
        return refusal.status == 401 and (not challenges or wanted(challenges).scheme != "")

    async def renew(self, method: bytes, refusal: AnswerHead, used: Proof) -> Proof:
        if used.renewals >= MAX_RENEWALS:
            raise NotAuthorized(f"the server rejected {1 + used.renewals} different tokens")
        challenge = wanted(_challenges(refusal))
        nonce = refusal.get(b"dpop-nonce")
        before = self._failure
        async with self._turn:
            if nonce is not None and challenge.error == "use_dpop_nonce":
                self._nonce = nonce.decode("latin-1")
            elif self._generation == used.generation:  # otherwise another request got another token meanwhile
                if self._failure is not None and self._failure is not before and self._failure.challenge == challenge:
                    raise NotAuthorized(self._failure.why)
                try:
                    used = await self._replace(challenge, refusal.status, used)
                except NotAuthorized as error:
                    self._failure = _Failure(str(error), challenge)
                    raise
        return self._proof(method, attrs.evolve(used, renewals=used.renewals + 1))

    # What becomes of a refusal.

    async def _replace(self, challenge: Challenge, status: int, used: Proof) -> Proof:
        """Get other tokens; what it took in the name of the request that showed *used*."""
        tokens = self._tokens
        if status == 403:
            self._check_hope(split(challenge.scope), used)
        elif tokens is not None and used.refreshes == 0 and await self._renew_kept(tokens, challenge):
            return attrs.evolve(used, refreshes=1)
        if used.authorizations >= MAX_AUTHORIZATIONS:
            raise NotAuthorized(
                f"authorization was granted {used.authorizations} times and the server still answers 403"
            )
        await self._authorize(challenge, is_vain=status == 401 and used.authorizations > 0)
        return attrs.evolve(used, authorizations=used.authorizations + 1)

    def _check_hope(self, needed: Scopes, used: Proof) -> None:
        """Raises `NotAuthorized` if these scopes were asked for just now, or lately, and it did not help."""
        key, now = frozenset(needed), self.clock()
        asked = () if self._tokens is None else self._tokens.asked
        if used.authorizations > 0 and key <= frozenset(asked):
            if len(self._in_vain) >= MAX_IN_VAIN:
                self._in_vain.clear()
            self._in_vain[key] = now
        if now < self._in_vain.get(key, -REFUSAL_MEMORY) + REFUSAL_MEMORY:
            raise NotAuthorized(f"the server requires the scopes {' '.join(needed)[:200]!r}, which were not granted")

    async def _authorize(self, challenge: Challenge, *, is_vain: bool) -> None:
        """Ask for leave. *is_vain*: a token that was just issued was refused, so asking the same server is no use."""
        before = self._tokens
        preferred = self.grant.issuer or (None if before is None else before.issuer)
        found = self._found = await find(self.url, challenge, self.fetcher, preferred)
        is_same = before is not None and before.issuer == found.issuer
        if is_vain and is_same:
            raise NotAuthorized("the server rejects a token that its authorization server has just issued")
        earlier = before.asked if before is not None and is_same else ()
        scopes = choose(challenge.scope, found.scopes, self.scopes, earlier)
        desk = TokenEndpoint(found, self.fetcher, self._key_for(found, challenge), self.clock)
        granted = await self.grant.obtain(desk, scopes, self.store)
        tokens = read_tokens(
            granted.answer,
            now=self.clock(),
            issuer=found.issuer,
            client_id=granted.client.client_id,
            resource=found.resource,
            asked=granted.asked,
            proof_key=None if desk.key is None else desk.key.written(),
        )
        await self._adopt(tokens)
        log.info("authorized", server=self._server, issuer=found.issuer, scopes=" ".join(tokens.granted))

    def _key_for(self, found: DiscoveredServer, challenge: Challenge) -> ProofKey | None:
        is_wanted = self.binds or found.binds_tokens or challenge.scheme == "dpop"
        if not is_wanted or PROOF_ALGORITHM not in (found.server.dpop_signing_alg_values_supported or ()):
            return None
        return ProofKey.make()

    # What is kept.

    async def _load(self) -> bool:
        """Look at what is kept; whether it is another token than ours, and no older one."""
        kept = await recall(self.store, self._name, Tokens)
        is_first, self._is_loaded = not self._is_loaded, True
        ours = self._tokens
        if kept is None or (ours is not None and not kept.replaces(ours)):
            return False
        self._tokens = kept
        self._generation += 1
        return not is_first

    async def _renew_kept(self, tokens: Tokens, challenge: Challenge) -> bool:
        """Have other tokens than those that were refused: of another process, or refreshed."""
        async with own_turn(self.store, self._name):
            return await self._load() or await self._refresh(tokens, challenge)

    async def _refresh(self, tokens: Tokens, challenge: Challenge | None = None) -> bool:
        """Have *tokens* renewed by their issuer, without asking a user; whether that worked.

        After a *challenge* the issuer is found out anew: a server may have gone to another.
        """
        if tokens.refresh_token is None:
            return False
        found = self._found if challenge is None else None
        if found is None:
            found = self._found = await find(self.url, challenge or Challenge(""), self.fetcher, tokens.issuer)
        if found.issuer != tokens.issuer:
            return False  # what one server gave is nothing that another may see
        key = None if tokens.proof_key is None else ProofKey.read(tokens.proof_key)
        desk = TokenEndpoint(found, self.fetcher, key, self.clock)
        client = await self.grant.holder(desk, self.store)
        if client is None or client.client_id != tokens.client_id:
            return False
        parameters = {"grant_type": REFRESH, "refresh_token": tokens.refresh_token, "resource": tokens.resource}
        try:
            answer = await desk.exchange(client, parameters)
        except TokenRefused as refused:
            log.info("refresh_refused", server=self._server, issuer=found.issuer, error=refused.error)
            if refused.error in PASSING:
                return False
            if refused.error in UNKNOWN:
                await forget_client(found.server, self.store)
            if await self._load():  # another process was faster, and what it got is good
                return True
            self._tokens = attrs.evolve(tokens, refresh_token=None)  # not in the store: that may be another's by now
            return False
        renewed = read_tokens(
            answer,
            now=self.clock(),
            issuer=tokens.issuer,
            client_id=tokens.client_id,
            resource=tokens.resource,
            asked=tokens.asked,
            proof_key=tokens.proof_key,
            before=tokens,
        )
        await self._adopt(renewed)
        log.info("token_refreshed", server=self._server, issuer=found.issuer)
        return True

    async def _adopt(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._generation += 1
        async with shielded(KEEP_TIME):  # what was given once is not given again
            await keep(self.store, self._name, tokens)

    @property
    def _name(self) -> str:
        return tokens_of(self.url)

    @property
    def _server(self) -> str:
        """The server for the log, without the query of the URL, which may contain a key."""
        return origin_of(self.url)

    # What is shown.

    def _proof(self, method: bytes, used: Proof) -> Proof:
        tokens, now = self._tokens, self.clock()
        if tokens is None or tokens.is_over(now):
            return attrs.evolve(used, headers=(), generation=self._generation)
        headers = [(b"authorization", f"{tokens.scheme} {tokens.access_token}".encode("ascii"))]
        if tokens.scheme == "DPoP" and tokens.proof_key is not None:
            if self._key is None or self._key[0] != tokens.proof_key:
                self._key = tokens.proof_key, ProofKey.read(tokens.proof_key)
            key, jti, token = self._key[1], secrets.token_urlsafe(16), tokens.access_token
            proof = key.prove(method.decode(), self.url, now=now, jti=jti, token=token, nonce=self._nonce)
            headers.append((b"dpop", proof.encode("ascii")))
        return attrs.evolve(used, headers=headers, generation=self._generation)


def _challenges(refusal: AnswerHead) -> list[Challenge]:
    return read_challenges(value for name, value in refusal.headers if name == b"www-authenticate")
