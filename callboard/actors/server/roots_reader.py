"""Reads the roots of a client that says that they have changed, for a server whose author wants to know."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Never, TypeAlias

import attrs
import trio

from callboard.actors.server.client_requests import ClientRequest, SessionKey
from callboard.actors.server.open_session import OpenSession
from callboard.codecs.revisions import Implementation, ListRootsRequestParams, ListRootsResult, Root, declares
from callboard.errors import CallboardError, SupervisorClosed
from callboard.supervisor import Actor, get_logger
from callboard.supervisor.ended import drop_frames, failure_text, where

log = get_logger("callboard.handlers")

PAUSE: Final = 1.0
"""Seconds between two readings of one client's roots: a client cannot make the server read them without end."""


@attrs.frozen(kw_only=True)
class ClientRoots:
    """The folders that a client works in now."""

    roots: Sequence[Root]
    principal: str
    client_info: Implementation | None = None
    session: SessionKey = attrs.field(repr=False)
    """Tells sessions apart: the same object each time."""


RootsListener: TypeAlias = Callable[[ClientRoots], Awaitable[None]]


@attrs.define(eq=False)
class RootsWatch:
    """What is done when the client of one session says that its roots have changed: they are read, once at a time."""

    session: OpenSession
    listeners: Sequence[RootsListener]
    is_due: bool = attrs.field(default=False, init=False)
    _is_reading: bool = attrs.field(default=False, init=False)

    def changed(self) -> None:
        """The client says so. Never waits."""
        self.is_due = True
        terms = self.session.terms
        if self._is_reading or terms is None or not declares(terms.capabilities, "roots"):
            return
        try:
            self.session.supervisor.spawn(RootsReader(self), name="roots", shutdown=0)
        except SupervisorClosed:  # the session ends
            return
        self._is_reading = True

    async def read(self) -> None:
        """Read them as often as they change, and tell the listeners. What fails is logged."""
        try:
            while self.is_due and self.session.key.home is not None:
                self.is_due = False
                await self._read_once(self.session.key.home.terms.client_info)
                await trio.sleep(PAUSE)
        finally:
            self._is_reading = False

    async def _read_once(self, client: Implementation | None) -> None:
        key = self.session.key
        if key.home is None:
            return
        try:
            result = await key.questions.ask(ClientRequest("roots/list", ListRootsRequestParams()), key.home)
        except CallboardError as error:
            log.warning("roots_not_read", principal=self.session.principal, failure=failure_text(error))
            return
        roots = result.roots if isinstance(result, ListRootsResult) else ()
        told = ClientRoots(roots=roots, principal=self.session.principal, client_info=client, session=key)
        for listener in self.listeners:
            try:
                await listener(told)
            except Exception as error:  # the author's own: it does not end the session
                log.error("roots_listener_failed", failure=failure_text(error), where=where(error))  # noqa: TRY400
                drop_frames(error)


@attrs.define(eq=False)
class RootsReader(Actor[Never]):
    """The task of a `RootsWatch`."""

    mailbox = None

    watch: RootsWatch

    async def run(self) -> None:
        await self.watch.read()
