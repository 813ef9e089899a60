"""Pings to legacy clients, for servers that want to know whether a quiet client is still there."""

from collections.abc import Mapping
from typing import Final, Never

import attrs
import trio

from callboard.actors.server.client_requests import OpenQuestion
from callboard.actors.server.open_session import OpenSession
from callboard.supervisor import Actor, Fact, Supervisor, get_logger

log = get_logger("callboard.actors")

AT_ONCE: Final = 100
"""Clients that are pinged in one turn of the loop: between two such turns calls are served."""


def begin_pings(root: Supervisor, sessions: Mapping[str, OpenSession], every: float) -> None:
    """Ping the clients of *sessions* every so many seconds; 0: never."""
    if every > 0:
        root.spawn(ClientPings(sessions, every), name="client-pings", shutdown=0)


@attrs.define(eq=False)
class ClientPings(Actor[Never]):
    """Pings each client of *sessions* every so many seconds. One that has not answered by then is disconnected.

    Only what has a way to be asked is pinged: a client over HTTP that has no stream open is left alone, and a modern
    one has no session.
    """

    mailbox = None

    sessions: Mapping[str, OpenSession]
    every: float
    _open: dict[str, tuple[OpenSession, OpenQuestion]] = attrs.field(factory=dict, init=False)

    async def run(self) -> None:
        while True:
            await trio.sleep(self.every)
            for count, (name, session) in enumerate(list(self.sessions.items()), 1):
                self._ping(name, session)
                if not count % AT_ONCE:
                    await trio.lowlevel.checkpoint()
            self._open = {name: kept for name, kept in self._open.items() if self.sessions.get(name) is kept[0]}

    def _ping(self, name: str, session: OpenSession) -> None:
        kept = self._open.pop(name, None)
        if session.key.is_over or session.key.home is None or not session.is_ready or not session.is_attached:
            return
        if kept is not None and kept[0] is session:
            session.key.questions.forget(kept[1])
            if not kept[1].answered.is_set():
                log.info("client_not_responding", session=name, principal=session.principal, after=self.every)
                session.hang_up()
                session.supervisor.address.begin_stop()
                return
        question = session.key.questions.ping(session.key.home)
        if question is not None:
            self._open[name] = session, question

    def facts(self) -> Mapping[str, Fact]:
        return {"every": self.every, "waiting": len(self._open)}
