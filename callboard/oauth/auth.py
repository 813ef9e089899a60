"""The `auth` option of `connect`: OAuth, or a token."""

import re
import ssl
import time
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

import attrs

from callboard.codecs.http.response_parser import AnswerHead
from callboard.codecs.oauth.addresses import Reach, is_here
from callboard.errors import NotAuthorized
from callboard.oauth.authorizer import Authorizer
from callboard.oauth.grants import AuthorizationCode, Grant
from callboard.oauth.store import MemoryStore, Store, tokens_of
from callboard.oauth.token_endpoint import Clock
from callboard.transports.client.credentials import Credentials, Proof
from callboard.transports.client.fetch import Fetcher, Resolve, resolve

_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,16384}")


@attrs.frozen(kw_only=True)
class OAuth:
    """OAuth 2.1, as each revision of the protocol wants it: nothing is asked for before a server wants it.

    ```python
    async with connect("https://mcp.example.com/mcp", auth=OAuth()) as client: ...
    ```
    """

    grant: Grant = attrs.field(factory=AuthorizationCode)
    scopes: Sequence[str] = ()
    """Scopes to request in any case, beside those that a server requires."""
    store: Store = attrs.field(factory=MemoryStore)
    trust: Sequence[str] = ()
    """Hosts that may be asked although only we can reach them: of one's own network."""
    binds: bool = False
    """Whether to bind tokens to a key (DPoP) wherever that is possible, and not only where it is demanded."""
    tls: ssl.SSLContext | None = None
    resolve: Resolve = resolve
    clock: Clock = time.time

    def credentials(self, url: str) -> Credentials:
        """For the server at *url*. Raises `NotAuthorized` if a token could be overheard on the way there."""
        check_private(url)
        url = _opened(url)
        fetcher = Fetcher(Reach.of_server(url, self.trust), self.resolve, tls=self.tls)
        return Authorizer(url, self.grant, self.store, fetcher, self.scopes, self.binds, self.clock)

    async def forget(self, url: str) -> None:
        """Drop the tokens for the server at *url*, if any are kept: the next time leave is asked for anew."""
        await self.store.drop(tokens_of(_opened(url)))


@attrs.frozen
class BearerToken:
    """A token that came about elsewhere. It is shown as it is, and never renewed."""

    token: str = attrs.field(repr=False)

    def credentials(self, url: str) -> Credentials:
        """Raises `NotAuthorized` if it could be overheard on the way to *url*, or cannot be sent at all."""
        check_private(url)
        if _TOKEN.fullmatch(self.token) is None:
            raise NotAuthorized("invalid token: it has characters that are not allowed")
        return _Fixed(Proof(headers=[(b"authorization", b"Bearer " + self.token.encode("ascii"))]))


@attrs.frozen
class _Fixed:
    proof: Proof

    async def prove(self, method: bytes) -> Proof:
        return self.proof

    def helps(self, refusal: AnswerHead, used: Proof) -> bool:
        return False

    async def renew(self, method: bytes, refusal: AnswerHead, used: Proof) -> Proof:
        raise NotAuthorized("the server rejected the token")


def _opened(url: str) -> str:
    """A server that is opened by HTTP is called so, also if it becomes a WebSocket."""
    return f"http{url[2:]}" if url.startswith(("ws://", "wss://")) else url


def check_private(url: str) -> None:
    """Raises `NotAuthorized` if others could read what is sent to *url*."""
    parts = urlsplit(url)
    if parts.scheme not in ("https", "wss", "http+unix", "https+unix", "ws+unix") and not is_here(parts.hostname or ""):
        raise NotAuthorized(f"the URL of {parts.hostname!r} is not https: a token would be sent in clear text")
