"""Where the names lead that clients hold: to this process, or to another worker."""

import secrets
from collections.abc import Callable
from typing import Protocol

from callboard.actors.server.session_record import SessionRecord
from callboard.codecs.caller import Caller
from callboard.codecs.envelope import Request
from callboard.codecs.http.head import Head
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.routing import Route
from callboard.errors import InvalidState, PeerError
from callboard.transports.server.http.response import Response
from callboard.transports.server.http.upgraded import Upgraded
from callboard.transports.wire import Wire


class Elsewhere(Exception):
    """What a request names is not here: another worker has it, or had it."""

    def __init__(self, name: str, home: bytes, caller: Caller, gone: PeerError | None = None) -> None:
        super().__init__("another worker has it")
        self.name = name
        self.home = home
        self.caller = caller
        self.gone = gone or InvalidState()
        """What is said if that worker has ended, of what is not a session."""


class LocalEndpoint(Protocol):
    """The endpoint of this process."""

    async def serve(self, head: Head, body: bytes, response: Response, caller: Caller | None = None) -> None:
        """Answer a request here."""

    async def refuse(self, refusal: HttpRefusal, response: Response) -> None:
        """Answer what HTTP alone says no to."""

    def has_session(self, name: str) -> bool:
        """Whether a session is here."""

    async def open_again(self, name: str, record: SessionRecord, peer: str) -> None:
        """Open the session that another worker had. Raises `Draining`, and `Overloaded` for one too many."""


class Homes(Protocol):
    """Makes the ids of sessions, and finds those that are not here."""

    @property
    def incarnation(self) -> str:
        """What event ids begin with: those of another worker's stream are never taken for this one's."""

    def new_id(self, caller: Caller) -> str:
        """An id for a session of *caller* that begins here."""

    def missing(self, name: str, caller: Caller) -> HttpRefusal | Elsewhere:
        """What is raised for a session that is not here."""

    def keep(self, name: str, record: Callable[[], bytes]) -> None:
        """A session that is here has changed: write it down, where that is done."""

    def drop(self, name: str) -> None:
        """It has ended."""

    def check_home(self, request: Request, route: Route, caller: Caller) -> None:
        """Raises `Elsewhere` for a retry, or a request about a task, that belongs to another worker."""

    async def tunnel(self, found: Elsewhere, head: Head, rest: bytes, wire: Wire, peer: str) -> Upgraded:
        """Pass a WebSocket on to the worker that has its session. Raises `HttpRefusal`."""

    async def serve_elsewhere(
        self, endpoint: LocalEndpoint, found: Elsewhere, head: Head, body: bytes, caller: Caller, response: Response
    ) -> None:
        """Have the worker that has it answer a request; or this one, if that one is gone. Never raises what a peer
        could cause."""


class Alone:
    """The homes of a server in one process."""

    incarnation = ""

    def new_id(self, caller: Caller) -> str:
        return secrets.token_urlsafe(24)

    def missing(self, name: str, caller: Caller) -> HttpRefusal | Elsewhere:
        return not_found()

    def keep(self, name: str, record: Callable[[], bytes]) -> None:
        """It ends with this process."""

    def drop(self, name: str) -> None:
        """Nothing was written down."""

    def check_home(self, request: Request, route: Route, caller: Caller) -> None:
        """There is no other."""

    async def tunnel(self, found: Elsewhere, head: Head, rest: bytes, wire: Wire, peer: str) -> Upgraded:
        raise not_found()

    async def serve_elsewhere(
        self, endpoint: LocalEndpoint, found: Elsewhere, head: Head, body: bytes, caller: Caller, response: Response
    ) -> None:
        await endpoint.refuse(not_found(), response)


def not_found() -> HttpRefusal:
    """One answer for every cause."""
    return HttpRefusal(404, "session not found")
