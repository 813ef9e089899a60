"""Logins of users at servers behind the broker that have begun and are not over: few, short, and each for one browser.

A login has two states of 256 random bits, each good for one use: the first leads to the page of ours where the user
agrees, the second brings the user back from the authorization server. The browser that agreed has a cookie; a code that
comes without it is not redeemed.
"""

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import parse_qsl

import attrs
import trio

from callboard.codecs.caller import Caller, caller_of_key
from callboard.codecs.oauth.addresses import Reach
from callboard.codecs.oauth.client import OAuthClient
from callboard.codecs.oauth.redirect import (
    MAX_PARAMETERS,
    MAX_QUERY,
    PendingAuthorization,
    authorization_url,
    read_redirect,
)
from callboard.codecs.oauth.scopes import Scopes
from callboard.errors import NotAuthorized, Overloaded
from callboard.oauth.discovery import DiscoveredServer
from callboard.oauth.store import Store
from callboard.supervisor import get_logger
from callboard.supervisor.audit import note

log = get_logger("callboard.oauth")

LOGIN_PATH: Final = "/callboard/login/"
CALLBACK_PATH: Final = "/callboard/callback"

LOGIN_TIME: Final = 600.0
"""Seconds that a user has for a login, from the question to the way back."""

MAX_PENDING: Final = 1024
"""Most logins that have begun and are not over."""

MAX_PENDING_EACH: Final = 8
"""Most of them that are one caller's; then the oldest of them is over."""


class LoginRefused(Exception):
    """A request for a page that is not a step of a login which has begun here. Nothing was done."""


Redeem = Callable[["PendingLogin", str], Awaitable[None]]
"""Turns the code of a login into tokens, and keeps them. Raises `NotAuthorized`."""


@attrs.define(eq=False, kw_only=True)
class PendingLogin:
    """One login, of one caller at one server."""

    key: str
    """The caller's."""
    backend: str
    found: DiscoveredServer
    client: OAuthClient
    scopes: Scopes
    reach: Reach
    redeem: Redeem = attrs.field(repr=False)
    expires: float = 0.0
    cookie: bytes = attrs.field(default=b"", init=False, repr=False)
    """Digest of the cookie of the browser that saw the page last."""
    errand: PendingAuthorization | None = attrs.field(default=None, init=False, repr=False)

    @property
    def caller(self) -> Caller:
        return caller_of_key(self.key)

    def check_cookie(self, cookie: str | None) -> None:
        if not cookie or not self.cookie or not hmac.compare_digest(_digest(cookie), self.cookie):
            raise LoginRefused


@attrs.define(eq=False)
class LoginDesk:
    """The logins that have begun, and where their tokens are kept."""

    origin: str
    """Of this server, as browsers reach it."""
    store: Store
    _pages: dict[bytes, PendingLogin] = attrs.field(factory=dict, init=False, repr=False)
    _gone: dict[bytes, PendingLogin] = attrs.field(factory=dict, init=False, repr=False)
    """Logins that were agreed to: their users are at the authorization server."""

    @property
    def redirect_uri(self) -> str:
        return f"{self.origin}{CALLBACK_PATH}"

    def __len__(self) -> int:
        return len(self._pages) + len(self._gone)

    def begin(self, login: PendingLogin) -> str:
        """The URL of the page of a new login. Raises `Overloaded`."""
        self._sweep()
        own = [(table, state) for table, state, one in self._all() if one.key == login.key]
        for table, digest in own[: max(0, len(own) + 1 - MAX_PENDING_EACH)]:
            del table[digest]
        if len(self) >= MAX_PENDING:
            raise Overloaded("too many logins have begun", for_all=True, retry_after=LOGIN_TIME / 10)
        login.expires = trio.current_time() + LOGIN_TIME
        state = secrets.token_urlsafe(32)
        self._pages[_digest(state)] = login
        return f"{self.origin}{LOGIN_PATH}{state}"

    def _all(self) -> list[tuple[dict[bytes, PendingLogin], bytes, PendingLogin]]:
        """Oldest first."""
        found = [(table, state, one) for table in (self._pages, self._gone) for state, one in table.items()]
        return sorted(found, key=lambda each: each[2].expires)

    def _sweep(self) -> None:
        now = trio.current_time()
        for table, state, one in self._all():
            if one.expires > now:
                break
            del table[state]

    def show(self, state: str) -> tuple[PendingLogin, str]:
        """The login of the page with this *state*, and the cookie for the browser. Raises `LoginRefused`."""
        login = self._page(state)
        cookie = secrets.token_urlsafe(32)
        login.cookie = _digest(cookie)
        return login, cookie

    def _page(self, state: str) -> PendingLogin:
        self._sweep()
        login = self._pages.get(_digest(state))
        if login is None:
            raise LoginRefused
        return login

    def agree(self, state: str, cookie: str | None) -> str:
        """The user agrees: where to send the browser. Raises `LoginRefused`, `NotAuthorized`."""
        login = self._page(state)
        login.check_cookie(cookie)
        del self._pages[_digest(state)]
        server, second = login.found.server, secrets.token_urlsafe(32)
        login.errand = PendingAuthorization.of(
            server, self.redirect_uri, state=second, verifier=secrets.token_urlsafe(64)
        )
        who, what = login.client.client_id, login.found.resource
        url = authorization_url(server, login.errand, who, resource=what, scopes=login.scopes, reach=login.reach)
        self._gone[_digest(second)] = login
        return url

    async def come_back(self, query: str, cookie: str | None) -> PendingLogin:
        """The browser is back with a code, which is redeemed. Raises `LoginRefused`, `NotAuthorized`."""
        self._sweep()
        login = self._gone.pop(_digest(_state_in(query)), None)
        if login is None or login.errand is None:
            raise LoginRefused
        login.check_cookie(cookie)
        about = {"caller": login.caller, "server": login.backend}
        try:
            await login.redeem(login, read_redirect(query, login.errand))
        except NotAuthorized as error:
            log.warning("upstream_login_failed", backend=login.backend, failure=str(error))
            note("upstream_token_failed", **about, outcome="failed", reason=str(error))
            raise
        note("upstream_token_obtained", **about, outcome="ok", at=login.found.issuer)
        return login


def _state_in(query: str) -> str:
    """Raises `LoginRefused`."""
    if len(query) > MAX_QUERY:
        raise LoginRefused
    try:
        found = [value for name, value in parse_qsl(query, max_num_fields=MAX_PARAMETERS) if name == "state"]
    except ValueError:
        raise LoginRefused from None
    if len(found) != 1:
        raise LoginRefused
    return found[0]


def _digest(secret: str) -> bytes:
    """What a state is found by: how long that takes tells nothing of it."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
