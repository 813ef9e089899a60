"""What a protected server says of itself: its metadata (RFC 9728), and the challenges of a 401 or 403 (RFC 6750).

Everything in a challenge comes from the configuration, or is a scope of a rule. Nothing of a request is repeated.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import msgspec

from callboard.codecs.oauth.discovery import canonical

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
"""Where clients look for the metadata: here, and below it at the path of the endpoint."""

_UNSAFE: Final = re.compile(r'[^\x20-\x7e]|["\\]')


def own_url(url: str) -> str:
    """The URL of a server in its one form, without a slash at the end. Raises ValueError if it cannot be one."""
    parts = urlsplit(url)
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname or parts.username is not None or parts.query:
        raise ValueError("expected an http or https URL without a user and a query")
    return canonical(url).rstrip("/")


@attrs.frozen(kw_only=True)
class ProtectedResource:
    """A server that takes tokens of these authorization servers."""

    url: str = attrs.field(converter=own_url)
    """Its address, as clients know it."""
    authorization_servers: tuple[str, ...]
    scopes: tuple[str, ...] = ()
    """The least that a token must have to be of any use."""
    name: str | None = None
    documentation: str | None = None
    dpop_algorithms: tuple[str, ...] = ()
    requires_dpop: bool = False
    extra: Mapping[str, Any] = attrs.field(factory=dict)
    """More members of the metadata."""

    @property
    def origin(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def metadata_url(self) -> str:
        """Where the metadata is: the path of the endpoint comes last."""
        return f"{self.origin}{WELL_KNOWN}{urlsplit(self.url).path}"

    def metadata(self) -> bytes:
        """The document."""
        said: dict[str, Any] = {
            **self.extra,
            "resource": self.url,
            "authorization_servers": list(self.authorization_servers),
            "bearer_methods_supported": ["header"],
        }
        if self.scopes:
            said["scopes_supported"] = list(self.scopes)
        if self.name:
            said["resource_name"] = self.name
        if self.documentation:
            said["resource_documentation"] = self.documentation
        if self.dpop_algorithms:
            said["dpop_signing_alg_values_supported"] = list(self.dpop_algorithms)
            said["dpop_bound_access_tokens_required"] = self.requires_dpop
        return msgspec.json.encode(said)


def write_challenge(scheme: str, parameters: Iterable[tuple[str, str | None]]) -> bytes:
    """The value of `WWW-Authenticate`. Parameters that are None or empty are left out; a character that could end a
    quoted string is dropped."""
    said = ", ".join(f'{name}="{_UNSAFE.sub("", value)}"' for name, value in parameters if value)
    return f"{scheme} {said}".rstrip().encode("ascii")
