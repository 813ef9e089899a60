"""OAuth 2.1 for a client: leave to use a server, from a user or for a machine."""

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
