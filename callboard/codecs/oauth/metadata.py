"""Metadata of resources and authorization servers, as far as a client uses it."""

import re
from typing import Final, TypeVar

import msgspec

from callboard.codecs.oauth.discovery import RULES, DiscoveryRoute, Rules, origin_of
from callboard.errors import FetchFailed, NotAuthorized

S256: Final = "S256"

_WORD: Final = re.compile(r"[0-9A-Za-z_.-]{1,64}")

T = TypeVar("T", bound=msgspec.Struct)


class ResourceMetadata(msgspec.Struct, frozen=True):
    """Of a protected resource (RFC 9728)."""

    resource: str
    authorization_servers: list[str] | None = None
    scopes_supported: list[str] | None = None
    dpop_bound_access_tokens_required: bool | None = None


class ServerMetadata(msgspec.Struct, frozen=True):
    """Of an authorization server (RFC 8414, OpenID Connect Discovery)."""

    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    scopes_supported: list[str] | None = None
    grant_types_supported: list[str] | None = None
    code_challenge_methods_supported: list[str] | None = None
    token_endpoint_auth_methods_supported: list[str] | None = None
    authorization_response_iss_parameter_supported: bool | None = None
    client_id_metadata_document_supported: bool | None = None
    dpop_signing_alg_values_supported: list[str] | None = None


class IssuerMetadata(msgspec.Struct, frozen=True):
    """The same, as far as a server uses it that checks tokens."""

    issuer: str
    jwks_uri: str | None = None
    introspection_endpoint: str | None = None


def read_resource(body: bytes) -> ResourceMetadata:
    """Raises `FetchFailed`."""
    return read(ResourceMetadata, body)


def read_server(body: bytes, issuer: str, *spellings: str) -> ServerMetadata:
    """The metadata of *issuer*: of no other, however alike, unless it is one of its *spellings*.

    Raises `FetchFailed`, `NotAuthorized`.
    """
    metadata = read(ServerMetadata, body)
    _check_issuer(metadata.issuer, issuer, *spellings)
    return metadata


def read_issuer(body: bytes, issuer: str) -> IssuerMetadata:
    """As `read_server`, for a server that checks its tokens. Raises `FetchFailed`, `NotAuthorized`."""
    metadata = read(IssuerMetadata, body)
    _check_issuer(metadata.issuer, issuer)
    return metadata


def _check_issuer(said: str, issuer: str, *spellings: str) -> None:
    if said not in (issuer, *spellings):
        raise NotAuthorized(f"the metadata of the authorization server {issuer[:200]!r} was issued by {said[:200]!r}")


def agreed_server(server: str) -> ServerMetadata:
    """The default endpoints of 2025-03-26, without metadata."""
    origin = origin_of(server)
    return ServerMetadata(
        issuer=origin,
        token_endpoint=f"{origin}/token",
        authorization_endpoint=f"{origin}/authorize",
        registration_endpoint=f"{origin}/register",
        token_endpoint_auth_methods_supported=["none", "client_secret_post", "client_secret_basic"],
    )


def check_pkce(metadata: ServerMetadata, way: DiscoveryRoute) -> None:
    """A code can only be protected by what the server understands. Raises `NotAuthorized`."""
    rules: Rules = RULES[way]
    methods = metadata.code_challenge_methods_supported
    if methods is None and not rules.announces_pkce:
        return
    if methods is None or S256 not in methods:
        raise NotAuthorized(f"the authorization server {metadata.issuer[:200]!r} does not support PKCE with S256")


def read(kind: type[T], body: bytes) -> T:
    """A JSON object, as far as *kind* knows it. Raises `FetchFailed`."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FetchFailed(f"invalid metadata: {str(error)[:200]}") from None


class _Refusal(msgspec.Struct, frozen=True):
    error: str


def read_refusal(status: int, body: bytes) -> str:
    """A server's word for why it refused, if it has one that may be shown."""
    try:
        error = read(_Refusal, body).error
    except FetchFailed:
        error = ""
    return plain(error) if error else f"HTTP {status}"


def plain(text: str) -> str:
    """The name of an error as it may be shown: a word. Anything else is no name."""
    return text if _WORD.fullmatch(text) else "(name not shown)"
