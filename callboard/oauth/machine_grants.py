"""Grants for machines: by their own rights, or by another issuer's assertion. No user is asked."""

import inspect
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import attrs

from callboard.codecs.oauth.client import PRIVATE_KEY, OAuthClient
from callboard.codecs.oauth.jwt import client_assertion, read_key
from callboard.codecs.oauth.scopes import Scopes
from callboard.codecs.oauth.tokens import (
    CLIENT_ASSERTION,
    CLIENT_CREDENTIALS,
    ID_JAG,
    ID_TOKEN,
    JWT_BEARER,
    TOKEN_EXCHANGE,
)
from callboard.errors import FetchFailed
from callboard.oauth.grants import Granted
from callboard.oauth.identity import RegisteredClient
from callboard.oauth.store import Store
from callboard.oauth.token_endpoint import TokenEndpoint

Word: TypeAlias = str | Callable[[], str | Awaitable[str]]
"""A signed statement, or a function that gets a new one; plain or async."""


@attrs.frozen(kw_only=True)
class ClientCredentials:
    """A client acts for itself: with a secret, or with a *private_key* (PEM) that the server has the public key of."""

    client_id: str
    client_secret: str | None = attrs.field(default=None, repr=False)
    private_key: str | None = attrs.field(default=None, repr=False)
    algorithm: str = "ES256"
    issuer: str | None = None

    async def obtain(self, desk: TokenEndpoint, scopes: Scopes, store: Store) -> Granted:
        client = await self.holder(desk, store)
        parameters = _asked(CLIENT_CREDENTIALS, desk, scopes) | self.authentication(desk)
        return Granted(await desk.exchange(client, parameters), client, scopes)

    async def holder(self, desk: TokenEndpoint, store: Store) -> OAuthClient:
        registered = RegisteredClient(client_id=self.client_id, client_secret=self.client_secret, issuer=self.issuer)
        client = await registered.at(desk.found.server, store)
        return client if self.private_key is None else attrs.evolve(client, method=PRIVATE_KEY, secret=None)

    def authentication(self, desk: TokenEndpoint) -> dict[str, str]:
        """Parameters by which a client with a private key is known; none for one with a secret."""
        if self.private_key is None:
            return {}
        key = read_key(self.private_key)
        issuer, jti = desk.found.issuer, secrets.token_urlsafe(16)
        signed = client_assertion(key, self.algorithm, self.client_id, issuer, now=desk.clock(), jti=jti)
        return {"client_assertion_type": CLIENT_ASSERTION, "client_assertion": signed}


@attrs.frozen(kw_only=True)
class WorkloadIdentity:
    """A platform vouches for the program that it runs, by a JWT. What is refused is not tried in another way."""

    client: RegisteredClient
    assertion: Word = attrs.field(repr=False)

    @property
    def issuer(self) -> str | None:
        return self.client.issuer

    async def obtain(self, desk: TokenEndpoint, scopes: Scopes, store: Store) -> Granted:
        client = await self.holder(desk, store)
        parameters = _asked(JWT_BEARER, desk, scopes) | {"assertion": await _word(self.assertion)}
        return Granted(await desk.exchange(client, parameters), client, scopes)

    async def holder(self, desk: TokenEndpoint, store: Store) -> OAuthClient:
        return await self.client.at(desk.found.server, store)


@attrs.frozen(kw_only=True)
class EnterpriseManaged:
    """The identity provider of an organization authorizes the client on behalf of a signed-in user."""

    client: RegisteredClient
    """As the authorization server of the resource knows it."""
    idp_token_endpoint: str
    idp_client_id: str
    id_token: Word = attrs.field(repr=False)

    @property
    def issuer(self) -> str | None:
        return self.client.issuer

    async def obtain(self, desk: TokenEndpoint, scopes: Scopes, store: Store) -> Granted:
        client = await self.holder(desk, store)
        parameters = _asked(JWT_BEARER, desk, scopes) | {"assertion": await self._leave(desk, scopes)}
        return Granted(await desk.exchange(client, parameters), client, scopes)

    async def holder(self, desk: TokenEndpoint, store: Store) -> OAuthClient:
        return await self.client.at(desk.found.server, store)

    async def _leave(self, desk: TokenEndpoint, scopes: Scopes) -> str:
        """Exchange a token of the identity provider for an assertion for one client at one authorization server."""
        parameters = _asked(TOKEN_EXCHANGE, desk, scopes) | {
            "client_id": self.idp_client_id,
            "requested_token_type": ID_JAG,
            "audience": desk.found.issuer,
            "subject_token": await _word(self.id_token),
            "subject_token_type": ID_TOKEN,
        }
        provider = TokenEndpoint(
            desk.found, desk.fetcher, clock=desk.clock
        )  # no key: what it gives is no token to be shown
        answer = await provider.ask(self.idp_token_endpoint, parameters)
        if answer.issued_token_type != ID_JAG:
            raise FetchFailed("the identity provider returned another type of token than requested")
        return answer.access_token


def _asked(grant: str, desk: TokenEndpoint, scopes: Scopes) -> dict[str, str]:
    asked = {"grant_type": grant, "resource": desk.found.resource}
    return asked | ({"scope": " ".join(scopes)} if scopes else {})


async def _word(word: Word) -> str:
    given: Any = word() if callable(word) else word
    return str(await given) if inspect.isawaitable(given) else str(given)
