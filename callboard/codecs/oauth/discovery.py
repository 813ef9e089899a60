"""The order in which metadata is looked for, and what each way of finding it demands.

A client does not know the revision of a server that it may not yet speak to. So it goes by what it finds: metadata of
the resource (2025-06-18 and later); else, as 2025-03-26 has it, the server as its own authorization server, by metadata
at its origin, or by paths that are agreed upon.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final
from urllib.parse import SplitResult, urlsplit

import attrs

from callboard.errors import NotAuthorized

_RESOURCE: Final = "/.well-known/oauth-protected-resource"
_SERVER: Final = "/.well-known/oauth-authorization-server"
_OPENID: Final = "/.well-known/openid-configuration"
_PORTS: Final = {"https": 443, "http": 80}


class DiscoveryRoute(Enum):
    """How an authorization server was found."""

    RESOURCE = "metadata of the resource"
    ORIGIN = "metadata at the server's origin"
    DEFAULTS = "agreed paths at the server's origin"


@attrs.frozen(kw_only=True)
class Rules:
    """Requirements of a way of discovery."""

    revisions: str
    announces_pkce: bool
    """Whether the metadata must say that S256 is understood. Where it need not, S256 is used all the same."""
    has_metadata: bool = True


RULES: Final[Mapping[DiscoveryRoute, Rules]] = {
    DiscoveryRoute.RESOURCE: Rules(revisions="2025-06-18 and later", announces_pkce=True),
    DiscoveryRoute.ORIGIN: Rules(revisions="2025-03-26", announces_pkce=False),
    DiscoveryRoute.DEFAULTS: Rules(revisions="2025-03-26", announces_pkce=False, has_metadata=False),
}


def resource_metadata_urls(server: str, named: str | None) -> list[str]:
    """URLs at which the metadata of *server* may be: from the challenge, below its path, at its root."""
    parts = urlsplit(server)
    origin = _origin(parts)
    path = parts.path.rstrip("/") + (f"?{parts.query}" if parts.query else "")
    return _once([*([named] if named else []), f"{origin}{_RESOURCE}{path}", f"{origin}{_RESOURCE}"])


def server_metadata_urls(issuer: str) -> list[str]:
    """URLs at which the metadata of an authorization server may be: by OAuth, then by OpenID Connect."""
    parts = urlsplit(issuer)
    origin, path = _origin(parts), parts.path.rstrip("/")
    return _once([f"{origin}{_SERVER}{path}", f"{origin}{_OPENID}{path}", f"{origin}{path}{_OPENID}"])


def origin_metadata_url(server: str) -> str:
    """The URL of the metadata in 2025-03-26: at the origin, for any path."""
    return origin_of(server) + _SERVER


def origin_of(url: str) -> str:
    return _origin(urlsplit(url))


def canonical(server: str) -> str:
    """The one spelling of a server's URL: what it is called where it does not say so itself."""
    parts = urlsplit(server)
    path = "" if parts.path == "/" else parts.path
    return _origin(parts) + path + (f"?{parts.query}" if parts.query else "")


def check_resource(resource: str, server: str) -> None:
    """Metadata must be about the server that is spoken to: its URL, or one above it. Raises `NotAuthorized`."""
    try:
        is_good = _covers(urlsplit(resource), urlsplit(server)) and "#" not in resource
    except ValueError:
        is_good = False
    if not is_good:
        raise NotAuthorized(f"the metadata is for the resource {resource[:200]!r}, not for this server")


def _covers(above: SplitResult, server: SplitResult) -> bool:
    """Whether a URL is that of *server*, or one above it. Raises ValueError for what is no URL."""
    is_same = _origin(above) == _origin(server) and above.query in ("", server.query)
    return is_same and (server.path.rstrip("/") + "/").startswith(above.path.rstrip("/") + "/")


def _origin(parts: SplitResult) -> str:
    """Scheme, host and port. Raises ValueError."""
    scheme, host, port = parts.scheme.lower(), (parts.hostname or "").lower(), parts.port
    host = f"[{host}]" if ":" in host else host
    return f"{scheme}://{host}" if port in (None, _PORTS.get(scheme)) else f"{scheme}://{host}:{port}"


def _once(urls: list[str]) -> list[str]:
    return list(dict.fromkeys(urls))
