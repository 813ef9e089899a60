"""How to come by a token: what every way has in common, and the one that asks a user."""

import secrets
from typing import Protocol

import attrs

from callboard.codecs.oauth.client import OAuthClient
from callboard.codecs.oauth.metadata import check_pkce
from callboard.codecs.oauth.redirect import PendingAuthorization, authorization_url, read_redirect
from callboard.codecs.oauth.scopes import Scopes, with_refresh
from callboard.codecs.oauth.tokens import CODE, TokenAnswer, TokenRefused
from callboard.oauth.consent import Browser, Consent
from callboard.oauth.identity import UNKNOWN, Identity, forget_client
from callboard.oauth.store import Store
from callboard.oauth.token_endpoint import TokenEndpoint


@attrs.frozen
class Granted:
    """Tokens, their client, and the requested scopes."""

    answer: TokenAnswer
    client: OAuthClient
    asked: Scopes


class Grant(Protocol):
    """A way to come by a token."""

    @property
    def issuer(self) -> str | None:
        """The authorization server to go to, if a resource names several."""

    async def obtain(self, desk: TokenEndpoint, scopes: Scopes, store: Store) -> Granted:
        """Raises `NotAuthorized`."""

    async def holder(self, desk: TokenEndpoint, store: Store) -> OAuthClient | None:
        """The client that may refresh what was given."""


@attrs.frozen(kw_only=True)
class AuthorizationCode:
    """A user gives leave, once; from then on it is refreshed, if the server allows."""

    consent: Consent = attrs.field(factory=Browser)
    identity: Identity = attrs.field(factory=Identity)
    offline: bool = True
    """Whether to ask that it may go on without the user."""

    @property
    def issuer(self) -> str | None:
        registered = self.identity.registered
        return None if registered is None else registered.issuer

    async def obtain(self, desk: TokenEndpoint, scopes: Scopes, store: Store) -> Granted:
        server = desk.found.server
        check_pkce(server, desk.found.way)
        scopes = with_refresh(scopes, server.scopes_supported, wants=self.offline)
        sent: list[tuple[OAuthClient, PendingAuthorization]] = []

        async def prepare(redirect_uri: str) -> tuple[str, str]:
            client = await self.identity.at(desk, redirect_uri, store)
            state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(64)
            errand = PendingAuthorization.of(server, redirect_uri, state=state, verifier=verifier)
            sent.append((client, errand))
            who, what, reach = client.client_id, desk.found.resource, desk.fetcher.reach
            return authorization_url(server, errand, who, resource=what, scopes=scopes, reach=reach), state

        known = await self.identity.known(desk, store)
        try:
            query = await self.consent.ask(prepare, None if known is None else known.redirect_uri)
        except BaseException:
            if sent:  # no redirect came: a server that does not know a client any more tells only the user
                await forget_client(server, store)
            raise
        client, errand = sent.pop()
        answer = await self._redeem(desk, client, errand, read_redirect(query, errand), store)
        return Granted(answer, client, scopes)

    async def _redeem(
        self, desk: TokenEndpoint, client: OAuthClient, errand: PendingAuthorization, code: str, store: Store
    ) -> TokenAnswer:
        parameters = {
            "grant_type": CODE,
            "code": code,
            "redirect_uri": errand.redirect_uri,
            "code_verifier": errand.verifier,
            "resource": desk.found.resource,
        }
        try:
            return await desk.exchange(client, parameters)
        except TokenRefused as refused:
            if refused.error in UNKNOWN:
                await forget_client(desk.found.server, store)
            raise

    async def holder(self, desk: TokenEndpoint, store: Store) -> OAuthClient | None:
        return await self.identity.known(desk, store)
