"""A session that survives its socket, with its sent messages and the count of received ones.

A legacy session goes on for a while when its socket drops; so does all that a client of any era has going on if it
asked for that when it connected. Both sides count whole messages, each in its own direction: from `initialize` and its
result on, or all of them. A client that comes back says how many it has, is told how many arrived here, and gets the
rest. So nothing is lost, and nothing comes twice.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import attrs
import trio

from callboard.actors.lifecycle import RequestEvent
from callboard.actors.outlet import Carrier
from callboard.actors.server.host import Host
from callboard.actors.server.session import Session
from callboard.codecs.caller import Caller
from callboard.codecs.members import write_members
from callboard.codecs.revisions import UNSET, ResultMetaObject, UnsetType
from callboard.codecs.websocket.client import RESUMABLE_FROM_HERE
from callboard.codecs.websocket.client import RESUMED as RESUMED
from callboard.codecs.websocket.client import SESSION_KEY as SESSION_KEY
from callboard.codecs.websocket.frames import Close, Code, write_text
from callboard.codecs.websocket.replay_buffer import ReplayBuffer
from callboard.supervisor import Fact
from callboard.transports.limits import Settings
from callboard.transports.wire import Wire

_MAX_DIGITS: Final = 15  # of a number in a pong, which is the peer's


class AttachedSocket(Protocol):
    """The current connection of a session, as the session needs it."""

    @property
    def wire(self) -> Wire: ...

    def begin_close(self, close: Close) -> None:
        """Have the reading task say *close*."""


@attrs.define(eq=False, repr=False)
class SocketSession(Session):
    """A session that tells its client how to come back."""

    transport = "websocket"

    conversation: "ResumableSession" = attrs.field(kw_only=True)

    def greeting(self) -> ResultMetaObject | UnsetType:
        conversation = self.conversation
        if conversation.counts_all:  # it was told already, and counts from there on
            return UNSET
        return ResultMetaObject(extra={SESSION_KEY: conversation.ticket()})

    def end(self) -> None:
        super().end()
        del self.conversation

    def on_stop(self) -> None:
        self.conversation.stop_waiting()

    def facts(self) -> Mapping[str, Fact]:
        return {**super().facts(), **self.conversation.facts()}

    @property
    def in_flight(self) -> int:
        """How many requests of the client's are not answered yet."""
        return len(self.requests.in_flight)

    @property
    def is_attached(self) -> bool:
        return self.conversation.is_flowing

    @property
    def wire(self) -> Wire | None:
        """Its connection, if there is one now."""
        return self.conversation.wire

    def disconnect(self) -> None:
        """The socket is gone, and the session is not. What stands alone ends with its stream, as on HTTP, unless its
        client asked for more."""
        if self.conversation.counts_all:
            return
        for exchange in list(self.requests.in_flight.values()):
            if exchange.terms.revision.dialect.cancelled_by_close:
                exchange.cancel(RequestEvent.DISCONNECTED)


@attrs.define(eq=False, repr=False)
class ResumableSession:
    """One session's messages in both directions, over one socket after the other. It is the session's sink."""

    id: str
    host: Host
    settings: Settings
    caller: Caller
    forget: Callable[[str], None]
    peer: str
    counts_all: bool = False
    """Whether all messages count, in any era: the client asked for that when it connected."""
    session: SocketSession = attrs.field(init=False)
    received: int = attrs.field(default=0, init=False)
    kept: ReplayBuffer = attrs.field(init=False)
    _link: AttachedSocket | None = attrs.field(default=None, init=False)
    _flows: bool = attrs.field(default=False, init=False)  # the link has all that was said before, and takes more
    _is_over: bool = attrs.field(default=False, init=False)
    _is_leaving: bool = attrs.field(default=False, init=False)
    _is_expiring: bool = attrs.field(default=False, init=False)  # without a socket
    _changed: trio.Event | None = attrs.field(default=None, init=False)  # only while a task waits

    def __attrs_post_init__(self) -> None:
        self.kept = ReplayBuffer(self.settings.max_events, self.settings.max_event_bytes, self.host.kept)
        self.session = SocketSession(self.host, self, self.caller, self._ended, peer=self.peer, conversation=self)

    def renew(self, caller: Caller) -> None:
        """The client is back, perhaps with another token."""
        self.caller = caller
        self.session.renew(caller)

    @property
    def wire(self) -> Wire | None:
        return None if self._link is None else self._link.wire

    # What is said.

    async def send(self, frame: bytes) -> None:
        """Say it on the socket that there is, or wait for the next one. Raises BrokenResourceError if none can come."""
        await self.send_together([frame])

    async def send_together(self, frames: Sequence[bytes]) -> None:
        """As `send`, in one piece."""
        link = await self._wait_flowing()
        for frame in frames:
            if self.counts_all or self.kept.sent or self._is_greeting(frame):
                self.kept.add(frame)
        try:
            await link.wire.send(b"".join([write_text(frame) for frame in frames]))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            link.wire.close()
            self.drop(link)
        self._end_if_idle()

    def post(self, frame: bytes) -> bool:
        """Say it without waiting, if that is possible."""
        link = self._link
        if link is None or not self._flows or not link.wire.send_soon(write_text(frame)):
            return False
        if self.counts_all or self.kept.sent or self._is_greeting(frame):
            self.kept.add(frame)
        self._end_if_idle()
        return True

    @property
    def is_flowing(self) -> bool:
        """Whether there is a socket for what is said."""
        return self._flows

    def _is_greeting(self, frame: bytes) -> bool:
        """Whether it is the result of `initialize`: nothing before that can name the session."""
        return self.session.terms is not None and self.id.encode() in frame

    async def _wait_flowing(self) -> AttachedSocket:
        while self._link is None or not self._flows:
            if self._is_over:
                raise trio.BrokenResourceError("the client disconnected")
            if self._changed is None:
                self._changed = trio.Event()
            await self._changed.wait()
        return self._link

    def _change(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    # What is heard.

    async def receive(self, frame: bytes, carrier: Carrier | None) -> None:
        """Take one message of the client's. What comes before `initialize` does not count, unless all do."""
        self.received = self.received + 1 if self.counts_all or self.session.terms is not None else 1
        await self.session.receive(frame, carrier)
        self._end_if_idle()

    def acknowledge(self, payload: bytes) -> None:
        """A pong gave back what a ping had said: the number of messages sent before it. They have arrived."""
        if payload.isdigit() and len(payload) <= _MAX_DIGITS:
            self.kept.acknowledge(int(payload))

    # Sockets come and go.

    def is_on(self, link: AttachedSocket) -> bool:
        """Whether *link* is the socket. What another one had read of the client's is not heard: it is sent again."""
        return self._link is link

    @property
    def is_resumable(self) -> bool:
        """Whether it goes on without a socket."""
        return self.counts_all or self.session.terms is not None

    def can_resume(self, caller: Caller, received: int) -> bool:
        """Whether a client of this name that has so many messages can be given the rest."""
        return self.is_resumable and self.caller.key == caller.key and self.kept.has_after(received)

    def claim(self, link: AttachedSocket) -> None:
        """From now on *link* is the socket. An older one may look alive: the client that comes back knows better."""
        older, self._link, self._flows = self._link, link, False
        if older is not None:
            self.session.disconnect()
            older.begin_close(Close(Code.TAKEN_OVER, "the session was resumed on another connection"))
        if self._is_expiring:
            self._is_expiring = False
            self.session.expire(math.inf)

    def ticket(self) -> dict[str, str | float]:
        """What its client needs to come back."""
        return {"id": self.id, "grace": self.settings.grace}

    def first_word(self, received: int | None) -> bytes:
        """The first message for a client that resumes and has *received* so many; of None, for one that may later."""
        if received is None:
            return _tell(RESUMABLE_FROM_HERE, self.ticket())
        return _tell(RESUMED, {"received": self.received, "replayed": self.kept.sent - received})

    async def catch_up(self, link: AttachedSocket, received: int) -> None:
        """Say again, on *link*, all that followed *received*; then go on. Raises as the wire does."""
        for frame in self.kept.after(received):
            if self._link is not link:
                return
            await link.wire.send(write_text(frame))
        if self._link is link:
            self._flows = True
            self._change()

    def drop(self, link: AttachedSocket) -> None:
        """A socket is gone, not by the client's will. Harmless if it was not the latest one."""
        if self._link is not link:
            return
        self._link, self._flows = None, False
        if not self.is_resumable or self._is_leaving or self._is_over:
            self.end()
        else:
            self.session.disconnect()
            self._is_expiring = True
            self.session.expire(trio.current_time() + self.settings.grace)

    # The end.

    def end(self) -> None:
        """The client will not come back: the session ends at once, and all that goes on in it."""
        self.stop_waiting()
        self.forget(self.id)
        self.session.hang_up()
        self.session.supervisor.address.begin_stop()

    def leave(self) -> None:
        """The server ends: so does the session, as soon as what is in flight is answered."""
        self._is_leaving = True
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._is_leaving and not self.session.in_flight:
            self.session.supervisor.address.begin_stop()

    def stop_waiting(self) -> None:
        """Wait for no resumption: messages that were not sent are dropped."""
        self._is_over = True
        self._change()

    def _ended(self) -> None:
        """The session is over: the socket hears why."""
        self.stop_waiting()
        self.forget(self.id)
        self.kept.clear()
        if self._link is not None:
            is_wanted = self.session.supervisor.stopping or self.host.is_draining
            self._link.begin_close(
                Close(Code.GOING_AWAY, "the server is shutting down")
                if is_wanted
                else Close(Code.INTERNAL, "the session failed")
            )

    def facts(self) -> dict[str, Fact]:
        return {
            "socket": "none" if self._link is None else "open",
            "sent": self.kept.sent,
            "kept": len(self.kept),
            "received": self.received,
        }


def _tell(method: str, params: Mapping[str, str | float]) -> bytes:
    return write_text(write_members({"jsonrpc": "2.0", "method": method, "params": params}))
