"""Finding the authorization server of a server, and its rules."""

import attrs

from callboard.codecs.oauth.addresses import locate
from callboard.codecs.oauth.challenge import Challenge
from callboard.codecs.oauth.discovery import (
    DiscoveryRoute,
    canonical,
    check_resource,
    origin_metadata_url,
    origin_of,
    resource_metadata_urls,
    server_metadata_urls,
)
from callboard.codecs.oauth.metadata import (
    ResourceMetadata,
    ServerMetadata,
    agreed_server,
    read_resource,
    read_server,
)
from callboard.errors import FetchFailed, NotAuthorized
from callboard.transports.client.fetch import Fetched, Fetcher


@attrs.frozen(kw_only=True)
class DiscoveredServer:
    """An authorization server, and what the resource is called there."""

    way: DiscoveryRoute
    resource: str
    server: ServerMetadata
    scopes: list[str] | None = None
    """Scopes that the resource supports."""
    binds_tokens: bool = False
    """Whether the resource takes only tokens that are bound to a key."""

    @property
    def issuer(self) -> str:
        return self.server.issuer


async def find(server: str, challenge: Challenge, fetcher: Fetcher, preferred: str | None = None) -> DiscoveredServer:
    """The authorization server of the server at the URL *server*. Of several, the *preferred* issuer.

    Raises `NotAuthorized`, `UnsafeUrl`, `FetchFailed`.
    """
    resource = await _resource(server, challenge.resource_metadata, fetcher)
    if resource is None:
        return await _by_origin(server, fetcher)
    check_resource(resource.resource, server)
    issuers = resource.authorization_servers or []
    if not issuers:
        raise NotAuthorized("the server's metadata names no authorization server")
    issuer = preferred if preferred in issuers and preferred is not None else issuers[0]
    return DiscoveredServer(
        way=DiscoveryRoute.RESOURCE,
        resource=resource.resource,
        server=await server_at(issuer, fetcher),
        scopes=resource.scopes_supported,
        binds_tokens=resource.dpop_bound_access_tokens_required is True,
    )


async def _resource(server: str, named: str | None, fetcher: Fetcher) -> ResourceMetadata | None:
    for url in resource_metadata_urls(server, named):
        fetched = await fetcher.get(url)
        if _is_there(fetched):
            try:
                return read_resource(fetched.body)
            except FetchFailed:
                if url == named:
                    raise
                continue  # something that is said to every address: no metadata
    return None


async def server_at(issuer: str, fetcher: Fetcher) -> ServerMetadata:
    """The metadata of an authorization server. Raises `NotAuthorized`, `UnsafeUrl`, `FetchFailed`."""
    return read_server(await server_document(issuer, fetcher), issuer)


async def server_document(issuer: str, fetcher: Fetcher) -> bytes:
    """The same, as it is found."""
    locate(issuer, fetcher.reach)  # before anything is made of it
    for url in server_metadata_urls(issuer):
        fetched = await fetcher.get(url)
        if _is_there(fetched):
            return fetched.body
    raise NotAuthorized(f"no metadata found for the authorization server {issuer[:200]!r}")


async def _by_origin(server: str, fetcher: Fetcher) -> DiscoveredServer:
    fetched, origin = await fetcher.get(origin_metadata_url(server)), origin_of(server)
    if _is_there(fetched):
        # 2025-03-26 does not say how it calls itself, and nothing else does: most servers of then end it with a slash.
        metadata, way = read_server(fetched.body, origin, f"{origin}/"), DiscoveryRoute.ORIGIN
    else:
        metadata, way = agreed_server(server), DiscoveryRoute.DEFAULTS
    return DiscoveredServer(way=way, resource=canonical(server), server=metadata)


def _is_there(fetched: Fetched) -> bool:
    """Whether there is a document. Raises `FetchFailed` if that cannot be said."""
    if fetched.status == 200:
        return fetched.body.lstrip()[:1] == b"{"  # else it is a page that is shown for every address
    if 400 <= fetched.status < 500:
        return False
    raise FetchFailed(f"the request for metadata returned HTTP {fetched.status}")
