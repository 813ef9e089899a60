"""The identity of a client at an authorization server: its id, how it proves that, and how it comes by it."""

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlsplit

import attrs
import msgspec

from callboard.codecs.oauth.addresses import is_here
from callboard.codecs.oauth.metadata import ServerMetadata, read
from callboard.errors import NotAuthorized

BASIC: Final = "client_secret_basic"
POST: Final = "client_secret_post"
NONE: Final = "none"
PRIVATE_KEY: Final = "private_key_jwt"

_PREFERRED: Final = (NONE, BASIC, POST)
"""How to be known at a token endpoint, best first: a secret that every copy of a program has is none."""
_VISIBLE: Final = re.compile(r"[\x20-\x7e]{1,2048}")


@attrs.frozen(kw_only=True)
class OAuthClient:
    """A client, as one authorization server knows it."""

    client_id: str
    secret: str | None = attrs.field(default=None, repr=False)
    method: str = NONE
    redirect_uri: str | None = None
    expires_at: float | None = None
    """When the secret ends, in seconds since 1970."""

    def is_good(self, now: float, redirect_uri: str) -> bool:
        """Whether it can be used again."""
        return self.redirect_uri == redirect_uri and (self.expires_at is None or now < self.expires_at)


class _Registered(msgspec.Struct, frozen=True):
    client_id: str
    client_secret: str | None = None
    client_secret_expires_at: int | None = None
    token_endpoint_auth_method: str | None = None


def check_redirect_uri(uri: str) -> None:
    """A code may only come back by https, or inside this machine. Raises `NotAuthorized`."""
    scheme, host, _ = _parts(uri)
    if not host or "#" in uri or not (scheme == "https" or (scheme == "http" and is_here(host))):
        raise NotAuthorized(f"invalid redirect URI {uri[:200]!r}: expected https or a loopback address")


def check_document_url(url: str) -> None:
    """A client id that is a document: https, and with a path that leads there and not up. Raises `NotAuthorized`."""
    scheme, host, path = _parts(url)
    is_path = path not in ("", "/") and not {".", ".."} & set(path.split("/"))
    if scheme != "https" or not host or not is_path or "#" in url or "@" in url:
        raise NotAuthorized(f"invalid client metadata URL {url[:200]!r}: expected https and a path")


def _parts(url: str) -> tuple[str, str, str]:
    """Scheme, host and path; nothing of what is no URL."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "", "", ""
    return parts.scheme, parts.hostname or "", parts.path


def describe(name: str, redirect_uris: Sequence[str], *, method: str = NONE, refreshes: bool = True) -> dict[str, Any]:
    """The metadata of a client. It names no scopes: those that are needed later must not be ruled out here."""
    is_native = any(is_here(_parts(uri)[1]) for uri in redirect_uris)
    return {
        "client_name": name,
        "redirect_uris": list(redirect_uris),
        "grant_types": ["authorization_code", *(["refresh_token"] if refreshes else [])],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "application_type": "native" if is_native else "web",
    }


def document(url: str, name: str, redirect_uris: Sequence[str]) -> dict[str, Any]:
    """The document to put at *url*, which then is the client's id everywhere. Raises `NotAuthorized`."""
    check_document_url(url)
    for uri in redirect_uris:
        check_redirect_uri(uri)
    return {"client_id": url} | describe(name, redirect_uris)


def write_registration(name: str, redirect_uri: str, server: ServerMetadata) -> bytes:
    """The body of a dynamic registration (RFC 7591) at *server*."""
    grants = server.grant_types_supported
    refreshes = grants is None or "refresh_token" in grants
    method = method_for(server, has_secret=True)
    return msgspec.json.encode(describe(name, [redirect_uri], method=method, refreshes=refreshes))


def read_registration(body: bytes, server: ServerMetadata, redirect_uri: str) -> OAuthClient:
    """The registered client. Raises `FetchFailed`, `NotAuthorized`."""
    given = read(_Registered, body)
    method = given.token_endpoint_auth_method or method_for(server, has_secret=given.client_secret is not None)
    if method not in _PREFERRED or (method != NONE and not given.client_secret):
        raise NotAuthorized(
            f"client registered with the authentication method {method[:50]!r}, for which credentials are missing"
        )
    return OAuthClient(
        client_id=_visible(given.client_id),
        secret=None if method == NONE else given.client_secret,
        method=method,
        redirect_uri=redirect_uri,
        expires_at=given.client_secret_expires_at or None,
    )


def method_for(server: ServerMetadata, *, has_secret: bool, preferred: Iterable[str] = _PREFERRED) -> str:
    """How to be known to *server*, of what it supports. Raises `NotAuthorized`."""
    supported = server.token_endpoint_auth_methods_supported or [BASIC]  # RFC 8414: what is meant if nothing is said
    if not has_secret:
        return NONE
    for method in preferred:
        if method in supported:
            return method
    raise NotAuthorized(f"the token endpoint supports only {', '.join(supported)[:200]}")


def identify(client: OAuthClient) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The headers and the parameters by which *client* is known at a token endpoint."""
    if client.method == BASIC:
        pair = f"{quote(client.client_id, safe='')}:{quote(client.secret or '', safe='')}"
        # The id stands in the form too: it is no secret, and servers of PyPI's mcp need it there.
        return {"authorization": f"Basic {b64encode(pair.encode()).decode()}"}, {"client_id": client.client_id}
    if client.method == POST:
        return {}, {"client_id": client.client_id, "client_secret": client.secret or ""}
    return {}, {"client_id": client.client_id}


def _visible(client_id: str) -> str:
    if _VISIBLE.fullmatch(client_id) is None:
        raise NotAuthorized("registered with an invalid client_id")
    return client_id
