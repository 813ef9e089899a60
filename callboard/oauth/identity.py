"""The client at an authorization server: registered by hand, known by a document, or registered on the spot."""

from typing import Final

import attrs

from callboard.codecs.oauth.client import (
    BASIC,
    POST,
    OAuthClient,
    check_document_url,
    method_for,
    read_registration,
    write_registration,
)
from callboard.codecs.oauth.metadata import ServerMetadata, read_refusal
from callboard.errors import NotAuthorized
from callboard.oauth.shield import shielded
from callboard.oauth.store import KEEP_TIME, Store, keep, recall
from callboard.oauth.token_endpoint import TokenEndpoint

_JSON: Final = {"content-type": "application/json"}
_WITH_SECRET: Final = (BASIC, POST)

UNKNOWN: Final = frozenset(("invalid_client", "unauthorized_client"))
"""Error codes of an authorization server for an unknown client."""


@attrs.frozen(kw_only=True)
class RegisteredClient:
    """A client that was registered by hand.

    Its credentials are for one authorization server: *issuer*, or the first one that they are used at.
    """

    client_id: str
    client_secret: str | None = attrs.field(default=None, repr=False)
    issuer: str | None = None

    async def at(self, server: ServerMetadata, store: Store) -> OAuthClient:
        """As *server* knows it. Raises `NotAuthorized` if that is not the one that knows it."""
        await self._check_issuer(server.issuer, store)
        has_secret = self.client_secret is not None
        method = method_for(server, has_secret=has_secret, preferred=_WITH_SECRET)
        return OAuthClient(client_id=self.client_id, secret=self.client_secret, method=method)

    async def _check_issuer(self, issuer: str, store: Store) -> None:
        name = f"issuer of {self.client_id}"
        known = self.issuer or await recall(store, name, str)
        if known is None:
            await keep(store, name, issuer)
        elif known != issuer:
            raise NotAuthorized(
                f"the client {self.client_id[:100]!r} is registered at {known[:200]!r}, "
                f"but the server now uses {issuer[:200]!r}: register the client there"
            )


@attrs.frozen(kw_only=True)
class Identity:
    """The ways to be known, best first: registered by hand, by a document, on the spot."""

    registered: RegisteredClient | None = None
    document: str | None = None
    """The URL of a document that describes this client, and is its id wherever that is understood."""
    name: str = "callboard"
    """Name of the client on the consent page."""

    async def known(self, desk: TokenEndpoint, store: Store) -> OAuthClient | None:
        """As the desk's server knows us already."""
        server = desk.found.server
        if self.registered is not None:
            return await self.registered.at(server, store)
        if self._goes_by_document(server):
            return OAuthClient(client_id=self.document or "")
        return await recall(store, _kept(server), OAuthClient)

    async def at(self, desk: TokenEndpoint, redirect_uri: str, store: Store) -> OAuthClient:
        """As the desk's server knows us from now on. Raises `NotAuthorized`."""
        client = await self.known(desk, store)
        if client is not None and (client.redirect_uri is None or client.is_good(desk.clock(), redirect_uri)):
            return client
        client = await self._register(desk, redirect_uri)
        await keep(store, _kept(desk.found.server), client)
        return client

    def _goes_by_document(self, server: ServerMetadata) -> bool:
        if self.document is None or server.client_id_metadata_document_supported is not True:
            return False
        check_document_url(self.document)
        return True

    async def _register(self, desk: TokenEndpoint, redirect_uri: str) -> OAuthClient:
        server = desk.found.server
        if server.registration_endpoint is None:
            raise NotAuthorized(
                f"the authorization server {server.issuer[:200]!r} has no dynamic client registration: "
                "register a client there and configure its client id"
            )
        body = write_registration(self.name, redirect_uri, server)
        fetched = await desk.fetcher.post(server.registration_endpoint, body, _JSON)
        if fetched.status not in (200, 201):
            raise NotAuthorized(
                f"the authorization server {server.issuer[:200]!r} refused to register {redirect_uri[:200]!r}: "
                f"{read_refusal(fetched.status, fetched.body)}"
            )
        return read_registration(fetched.body, server, redirect_uri)


async def forget_client(server: ServerMetadata, store: Store) -> None:
    """It does not know us any more: next time we are registered anew."""
    async with shielded(KEEP_TIME):
        await store.drop(_kept(server))


def _kept(server: ServerMetadata) -> str:
    return f"client at {server.issuer}"
