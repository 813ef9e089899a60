"""Whether an HTTP server is still there: nothing ends at once when it does, as a process or a socket would.

One of the connections that it keeps alive is held and listened to. A server that dies lets go of it, and is asked then;
so it is when a request fails, and now and then in any case, because a vanished machine releases nothing. (Not a
connection on which nothing was said yet: there are servers that serve no other client until something is.)
"""

from collections.abc import Callable
from typing import Final, Never

import attrs
import trio

from callboard.actors.broker.connection import BackendConnection
from callboard.actors.client.conversation import Patience
from callboard.actors.client.link import Link
from callboard.errors import CallboardError, ConnectionLost, RequestTimedOut
from callboard.supervisor import Actor, get_logger

log = get_logger("callboard.broker")

SILENT: Final = 3
"""Requests in a row that a server on a pipe or a socket leaves without an answer before it is asked whether it is
there. One request may simply take long."""

HEALTH: Final = 10.0
"""Seconds between two looks at a backend on which nothing else would tell that it is gone, and for its answer."""

PAUSE: Final = 0.5
"""Seconds before a server is asked that has let go of a connection, as some do all the time; and before another one is
looked for, if all are in use."""


@attrs.define(eq=False)
class BackendHealth:
    """Looks after the shared connection of one backend."""

    _doubted: trio.Event = attrs.field(factory=trio.Event, init=False)

    def doubt(self) -> None:
        """Check soon: there is a reason to think that the server is gone."""
        self._doubted.set()

    async def watch(
        self, connection: BackendConnection, patience: float, is_busy: Callable[[], bool]
    ) -> CallboardError:
        """Wait until the server does not answer, and return what came instead. One that *is_busy* has *patience*
        seconds: many do one thing at a time."""
        heard = trio.current_time()
        while True:
            with trio.move_on_after(HEALTH):
                await self._wait_doubt(connection)
            self._doubted = trio.Event()
            try:
                await _ask(connection)
                heard = trio.current_time()
            except CallboardError as error:
                if isinstance(error, RequestTimedOut) and is_busy() and trio.current_time() - heard < patience:
                    continue
                return error

    async def _wait_doubt(self, connection: BackendConnection) -> None:
        link = connection.conversation.link
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._hold, link)
            await self._doubted.wait()
            nursery.cancel_scope.cancel()

    async def _hold(self, link: Link) -> None:
        while not await link.wait_dropped():  # noqa: ASYNC110 -- all are in use, and no event tells when one is not
            await trio.sleep(PAUSE)
        await trio.sleep(PAUSE)
        self.doubt()


@attrs.define(eq=False)
class Check(Actor[Never]):
    """Asks a server that has let requests time out whether it is there. One that sends nothing at all is hung: its
    connection is ended, and with it the process."""

    mailbox = None

    connection: BackendConnection
    within: float

    async def run(self) -> None:
        connection = self.connection
        before, timeouts = connection.heard, connection.timeouts
        try:
            await _ask(connection, self.within)
            connection.timeouts = 0
        except RequestTimedOut:
            if connection.heard == before:
                log.warning("backend_hung", backend=connection.backend, timeouts=timeouts)
                connection.is_broken = True
                connection.fail(ConnectionLost(f"the server is hung: {timeouts} requests and a ping were not answered"))
        except CallboardError:
            return  # the connection broke, which is noticed where it is read
        finally:
            connection.is_checked = False


async def _ask(connection: BackendConnection, within: float = HEALTH) -> None:
    patience = Patience(timeout=within, cap=within)
    await connection.conversation.send(
        connection.revision.dialect.probe_method, {"_meta": dict(connection.conversation.said())}, patience=patience
    )
