"""The token endpoint of one authorization server, as one client uses it."""

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import attrs

from callboard.codecs.oauth.client import OAuthClient, identify
from callboard.codecs.oauth.jwt import ProofKey
from callboard.codecs.oauth.tokens import SECRETS, TokenAnswer, TokenRefused, read_answer, write_form
from callboard.errors import NotAuthorized
from callboard.oauth.discovery import DiscoveredServer
from callboard.oauth.shield import shielded
from callboard.transports.client.fetch import FETCH_TIME, Fetcher

NONCES: Final = 2
"""How often a token endpoint may want its proof with another nonce."""

ANSWER_TIME: Final = FETCH_TIME * (1 + NONCES)
"""Seconds after which a cancelled caller no longer waits for the answer: each question has its own bound as well."""

Clock: TypeAlias = Callable[[], float]
"""Seconds since 1970."""

_FORM: Final = {"content-type": "application/x-www-form-urlencoded"}


@attrs.define(eq=False)
class TokenEndpoint:
    """A client of the token endpoint."""

    found: DiscoveredServer
    fetcher: Fetcher
    key: ProofKey | None = None
    """The key that tokens shall be bound to."""
    clock: Clock = time.time
    _nonce: str | None = attrs.field(default=None, init=False)

    async def exchange(self, client: OAuthClient, parameters: Mapping[str, str]) -> TokenAnswer:
        """Ask for tokens as *client*. Raises `NotAuthorized`: `TokenRefused`, `FetchFailed`, `UnsafeUrl`."""
        headers, own = identify(client)
        return await self.ask(self.found.server.token_endpoint, {**own, **parameters}, headers, client.secret)

    async def ask(
        self,
        endpoint: str,
        parameters: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
        secret: str | None = None,
    ) -> TokenAnswer:
        """Ask at any *endpoint*. *secret* stands in the headers, in any form. Raises as `exchange` does.

        A caller that is cancelled waits for the answer all the same, for `ANSWER_TIME` at most: a code or a refresh
        token is taken once, and if the answer is not heard, there is nothing left.
        """
        body = write_form(parameters)
        sent = [value for name, value in parameters.items() if name in SECRETS]
        sent += [*(headers or {}).values(), *([secret] if secret else [])]
        async with shielded(ANSWER_TIME):
            for _ in range(1 + NONCES):
                fetched = await self.fetcher.post(endpoint, body, {**_FORM, **(headers or {}), **self._proof(endpoint)})
                nonce = fetched.head.get(b"dpop-nonce")
                try:
                    return read_answer(fetched.status, fetched.body, sent)
                except TokenRefused as refused:
                    if refused.error != "use_dpop_nonce" or nonce is None or self.key is None:
                        raise
                    self._nonce = nonce.decode("latin-1")
        raise NotAuthorized("the token endpoint keeps asking for a new DPoP nonce")

    def _proof(self, endpoint: str) -> Mapping[str, str]:
        if self.key is None:
            return {}
        return {
            "dpop": self.key.prove("POST", endpoint, now=self.clock(), jti=secrets.token_urlsafe(16), nonce=self._nonce)
        }
