"""Credentials for a backend: OAuth for a program, which has no user to ask but its operator."""

import os
import re
from pathlib import Path
from typing import Final, assert_never, get_args

import attrs

from callboard.codecs.oauth.addresses import Reach
from callboard.codecs.oauth.jwt import ALGORITHMS, read_key
from callboard.config.model import GrantName, UpstreamAuth
from callboard.config.reader import Place, Table
from callboard.config.variables import has_variable
from callboard.errors import NotAuthorized
from callboard.oauth import (
    AuthorizationCode,
    ClientCredentials,
    FileStore,
    Grant,
    Identity,
    MemoryStore,
    OAuth,
    RegisteredClient,
    Store,
    WorkloadIdentity,
)
from callboard.oauth.auth import check_private
from callboard.oauth.consent import Prepare
from callboard.oauth.login_desk import LoginDesk
from callboard.oauth.token_exchange import TokenExchange, wanted_of
from callboard.oauth.user_login import UserLogin
from callboard.transports.client.credentials import Auth
from callboard.transports.client.fetch import Fetcher

GRANTS: Final[tuple[GrantName, ...]] = get_args(GrantName)

OAUTH_KEYS: Final = (
    "grant",
    "client_id",
    "client_secret_env",
    "client_secret",
    "private_key_env",
    "private_key",
    "private_key_file",
    "algorithm",
    "assertion_file",
    "issuer",
    "scope",
    "trust",
    "bind",
    "audience",
    "resource",
    "requested_token_type",
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def oauth_for(upstream: UpstreamAuth) -> Auth:
    """Authorization for all connections to a server. Consent of a user is stored for the next run."""
    is_kept = upstream.grant in ("authorization_code", "user")
    store: Store = FileStore.at_home() if is_kept else MemoryStore()
    scopes, trust = upstream.scopes, upstream.trust
    return OAuth(grant=_grant(upstream), scopes=scopes, store=store, trust=trust, binds=upstream.binds)


def exchange_for(upstream: UpstreamAuth, url: str) -> TokenExchange:
    """The exchange of callers' tokens for the server at *url*."""
    issuer = upstream.issuer or ""
    wanted = wanted_of(url, upstream.audience, upstream.resource, upstream.scopes, upstream.requested_token_type)
    return TokenExchange(_machine(upstream), issuer, Fetcher(Reach.of_server(issuer, upstream.trust)), wanted)


def login_for(upstream: UpstreamAuth, name: str, url: str, desk: LoginDesk) -> UserLogin:
    """The logins of callers at the server *name* at *url*."""
    fetcher = Fetcher(Reach.of_server(url, upstream.trust))
    return UserLogin(name, url, _identity(upstream), upstream.scopes, fetcher, desk)


@attrs.frozen
class _OperatorAbsent:
    """Asks no user: the operator of a server for many users is not there when it needs tokens."""

    async def ask(self, prepare: Prepare, registered: str | None) -> str:
        raise NotAuthorized("its lists need a login of the operator's: run callboard login with its URL")


def _identity(upstream: UpstreamAuth) -> Identity:
    return Identity(registered=None if upstream.client_id is None else _registered(upstream))


def _grant(upstream: UpstreamAuth) -> Grant:
    match upstream.grant:
        case "client_credentials" | "token_exchange":  # what the broker asks for itself, the lists, is no caller's
            return _machine(upstream)
        case "authorization_code":
            return AuthorizationCode(identity=_identity(upstream))
        case "user":
            return AuthorizationCode(identity=_identity(upstream), consent=_OperatorAbsent())
        case "workload_identity":
            return WorkloadIdentity(client=_registered(upstream), assertion=lambda: _assertion(upstream))
        case never:
            assert_never(never)


def _machine(upstream: UpstreamAuth) -> ClientCredentials:
    return ClientCredentials(
        client_id=upstream.client_id or "",
        client_secret=upstream.client_secret,
        private_key=upstream.private_key,
        algorithm=upstream.algorithm,
        issuer=upstream.issuer,
    )


def _registered(upstream: UpstreamAuth) -> RegisteredClient:
    who, secret, issuer = upstream.client_id or "", upstream.client_secret, upstream.issuer
    return RegisteredClient(client_id=who, client_secret=secret, issuer=issuer)


def _assertion(upstream: UpstreamAuth) -> str:
    """Read anew each time: platforms replace it."""
    try:
        return "" if upstream.assertion_file is None else upstream.assertion_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NotAuthorized(f"{upstream.assertion_file}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None


def read_auth(place: Place, url: str) -> UpstreamAuth | None:
    """The `oauth` table of the server at *url*. Errors are reported, and the result is then not used."""
    table = place.table()
    table.warn_unknown(OAUTH_KEYS)
    try:
        check_private(url)
    except NotAuthorized:
        place.wrong("the server URL is not https: a token would be sent in clear text")
    auth = UpstreamAuth(
        grant=table.choice("grant", GRANTS, GRANTS[0]),
        client_id=table.text("client_id", None),
        client_secret=read_secret(table, "client_secret"),
        private_key=read_private_key(table),
        algorithm=table.choice("algorithm", ALGORITHMS, "ES256"),
        assertion_file=_assertion_file(table),
        issuer=table.text("issuer", None),
        scopes=_scopes(table),
        trust=table.texts("trust"),
        binds=table.flag("bind"),
        audience=table.text("audience", None),
        resource=table.text("resource", None),
        requested_token_type=table.text("requested_token_type", None),
    )
    _check(place, table, auth)
    return auth


def _check(place: Place, table: Table, auth: UpstreamAuth) -> None:
    """Report missing settings of each grant."""
    has_secret = any(key in table.members for key in OAUTH_KEYS if key.startswith(("client_secret", "private_key")))
    if auth.grant not in ("authorization_code", "user") and "client_id" not in table.members:
        place.wrong(f"{auth.grant} needs a `client_id`")
    if auth.grant == "client_credentials" and not has_secret:
        place.wrong("client_credentials needs `client_secret_env` or `private_key_file`")
    if auth.grant == "token_exchange":
        if not has_secret:
            place.wrong("token_exchange needs `client_secret_env` or `private_key_file`")
        if auth.issuer is None:  # a server that could name it would get the tokens of all callers
            place.wrong("token_exchange needs an `issuer`: callers' tokens are sent there")
        if auth.binds:
            place.wrong("token_exchange excludes `bind`")
    if auth.grant == "user" and auth.binds:
        place.wrong("user excludes `bind`")
    for key in ("audience", "resource", "requested_token_type"):
        if auth.grant != "token_exchange" and key in table.members:
            table.members[key].warn("is only for token_exchange")
    if auth.grant == "workload_identity" and "assertion_file" not in table.members:
        place.wrong("workload_identity needs an `assertion_file`")
    if auth.client_secret is not None and auth.private_key is not None:
        place.wrong("has both a secret and a private key: use one")


def read_secret(table: Table, key: str) -> str | None:
    """By the name of a variable, or with one in it: in the file itself it would be none for long."""
    named, written = table.members.get(f"{key}_env"), table.members.get(key)
    if named is not None and written is not None:
        written.wrong(f"excludes `{key}_env`: use one")
    if named is not None:
        name = named.node.value
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            named.wrong("must be the name of an environment variable")
            return None
        if not os.environ.get(name):
            named.wrong(f"environment variable not set: {name}")
        return os.environ.get(name)
    if written is None:
        return None
    if isinstance(written.node.value, str) and not has_variable(written.node.value):
        written.wrong(f"must not be a secret in plain text: use `{key}_env` or ${{VAR}}")
        return None
    return written.text()


def read_private_key(table: Table) -> str | None:
    pem = read_secret(table, "private_key")
    place = table.members.get("private_key_env") or table.members.get("private_key")
    from_file = table.members.get("private_key_file")
    if from_file is not None:
        if place is not None:
            place.wrong("excludes `private_key_file`: use one")
        place = from_file
        pem = _content(from_file)
    if place is None or pem is None:
        return None
    try:
        read_key(pem)
    except NotAuthorized:
        place.wrong("is not a private key in PEM format")
    return pem


def _content(place: Place) -> str | None:
    path = place.path()
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        place.wrong(f"cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8'}")
        return None


def _assertion_file(table: Table) -> Path | None:
    place = table.members.get("assertion_file")
    return None if place is None else place.path()


def _scopes(table: Table) -> tuple[str, ...]:
    place = table.members.get("scope")
    if place is None:
        return ()
    return place.texts() if place.node.items is not None else tuple((place.text() or "").split())
