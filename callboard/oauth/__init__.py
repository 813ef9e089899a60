"""OAuth 2.1 for a client: leave to use a server, from a user or for a machine."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from callboard.codecs.oauth.client import document as client_document
    from callboard.oauth.auth import BearerToken, OAuth
    from callboard.oauth.consent import Browser, Consent, Headless
    from callboard.oauth.grants import AuthorizationCode, Grant
    from callboard.oauth.identity import Identity, RegisteredClient
    from callboard.oauth.machine_grants import ClientCredentials, EnterpriseManaged, WorkloadIdentity
    from callboard.oauth.store import FileStore, KeyringStore, MemoryStore, Store

__all__ = [
    "AuthorizationCode",
    "BearerToken",
    "Browser",
    "ClientCredentials",
    "Consent",
    "EnterpriseManaged",
    "FileStore",
    "Grant",
    "Headless",
    "Identity",
    "KeyringStore",
    "MemoryStore",
    "OAuth",
    "RegisteredClient",
    "Store",
    "WorkloadIdentity",
    "client_document",
]

_MODULES: Final = {
    "AuthorizationCode": "callboard.oauth.grants",
    "BearerToken": "callboard.oauth.auth",
    "Browser": "callboard.oauth.consent",
    "ClientCredentials": "callboard.oauth.machine_grants",
    "Consent": "callboard.oauth.consent",
    "EnterpriseManaged": "callboard.oauth.machine_grants",
    "FileStore": "callboard.oauth.store",
    "Grant": "callboard.oauth.grants",
    "Headless": "callboard.oauth.consent",
    "Identity": "callboard.oauth.identity",
    "KeyringStore": "callboard.oauth.store",
    "MemoryStore": "callboard.oauth.store",
    "OAuth": "callboard.oauth.auth",
    "RegisteredClient": "callboard.oauth.identity",
    "Store": "callboard.oauth.store",
    "WorkloadIdentity": "callboard.oauth.machine_grants",
    "client_document": "callboard.codecs.oauth.client",
}
"""The module of each name. It is loaded when the name is first asked for: most commands find no stored tokens, and need
no cryptography to see that."""


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_MODULES[name]), "document" if name == "client_document" else name)
    globals()[name] = found
    return found
