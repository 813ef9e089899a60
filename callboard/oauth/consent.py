"""How a user is asked for leave: in a browser, with a listener on this machine for the way back, or by a function."""

import sys
import webbrowser
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeAlias
from urllib.parse import urlsplit

import attrs
import trio

from callboard.codecs.oauth.client import check_redirect_uri
from callboard.codecs.oauth.redirect import query_of
from callboard.errors import NotAuthorized
from callboard.oauth.loopback import Loopback, listen

CONSENT_TIME: Final = 600.0
"""Seconds that a user has to authorize the client. Then the state of the request expires."""

Open: TypeAlias = Callable[[str], object]
"""Shows a URL to the user, if that works. Called in a thread."""

Visit: TypeAlias = Callable[[str], Awaitable[str]]
"""Given the authorization URL, returns the query of the redirect that came of it, or the whole redirect."""


Prepare: TypeAlias = Callable[[str], Awaitable[tuple[str, str]]]
"""Called with the redirect URI; returns the authorization URL, and its state."""


class Consent(Protocol):
    """A way to ask a user."""

    async def ask(self, prepare: Prepare, registered: str | None) -> str:
        """Send the user to the authorization page; returns the query of the redirect.

        *registered* is the URI of an earlier way back, which would do if it can be had again. Raises `NotAuthorized`,
        and what *prepare* raises.
        """


def _show(url: str) -> None:
    """Open the user's browser: never by a shell."""
    webbrowser.open(url)


def _tell(url: str) -> None:
    sys.stderr.write(f"Authorize access in the browser; if it does not open, visit:\n  {url}\n")
    sys.stderr.flush()


@attrs.frozen(kw_only=True)
class Browser:
    """Asks in the user's browser. The way back leads to a listener on this machine, open for as long as it takes.

    *port* is for authorization servers that insist on the one that was registered; 0 is any that is free.
    """

    host: str = "127.0.0.1"
    port: int = 0
    path: str = "/callback"
    open: Open = _show
    tell: Callable[[str], None] = _tell
    """Called with the URL before a browser is opened: where there is none, that may fail and say that it did not."""

    async def ask(self, prepare: Prepare, registered: str | None) -> str:
        with await listen(self.host, self._ports(registered)) as listener:
            host = f"[{self.host}]" if ":" in self.host else self.host
            authority = f"{host}:{listener.getsockname()[1]}"
            url, state = await prepare(f"http://{authority}{self.path}")
            loopback = Loopback(authority.encode(), self.path.encode(), state)
            self.tell(url)
            await trio.to_thread.run_sync(self.open, url, abandon_on_cancel=True)
            with trio.move_on_after(CONSENT_TIME):
                return await loopback.wait_redirect(listener)
        raise NotAuthorized(f"authorization timed out: no response of the user within {CONSENT_TIME:g} s")

    def _ports(self, registered: str | None) -> list[int]:
        """The port of an earlier way back comes first: many authorization servers know no other."""
        before = None if registered is None else urlsplit(registered)
        if self.port or before is None or (before.hostname, before.path) != (self.host, self.path):
            return [self.port]
        return [before.port or 0, 0]


@attrs.frozen
class Headless:
    """Asks by a function: for machines, and for hosts that have a user interface of their own."""

    visit: Visit
    redirect_uri: str = "http://localhost:3000/callback"

    async def ask(self, prepare: Prepare, registered: str | None) -> str:
        check_redirect_uri(self.redirect_uri)
        url, _ = await prepare(self.redirect_uri)
        with trio.move_on_after(CONSENT_TIME):
            return query_of(await self.visit(url))
        raise NotAuthorized(f"authorization timed out: no response of the user within {CONSENT_TIME:g} s")
