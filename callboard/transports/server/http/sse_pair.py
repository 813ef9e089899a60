"""HTTP+SSE (2024-11-05): one stream for all that the server says, and a second address for all that the client says."""

from collections.abc import Sequence
from itertools import count
from urllib.parse import parse_qs

import attrs
import trio

from callboard.actors.server.host import Host
from callboard.actors.server.session import Session
from callboard.actors.server.session_tree import add_session
from callboard.codecs.caller import Caller
from callboard.codecs.http.head import Head
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.writer import STREAM
from callboard.codecs.sse import encode_event
from callboard.transports.limits import Settings
from callboard.transports.server.http.homes import Homes
from callboard.transports.server.http.keepalive import KeepAlive
from callboard.transports.server.http.places import MESSAGES_PATH, path_to
from callboard.transports.server.http.response import Response, cut


@attrs.frozen(eq=False)
class PairSink:
    """Writes each frame as an event on the one stream."""

    response: Response

    async def send(self, frame: bytes) -> None:
        await self.send_together([frame])

    async def send_together(self, frames: Sequence[bytes]) -> None:
        await self.response.write(b"".join([encode_event(frame, event="message") for frame in frames]))
        if self.response.is_lost:
            raise trio.BrokenResourceError("the stream is closed")


@attrs.define(eq=False)
class PairSession(Session):
    """A session over HTTP+SSE."""

    transport = "sse"


@attrs.define(eq=False)
class Pairs:
    """All sessions of this kind. A session is its stream: both end together, and neither comes back."""

    host: Host
    settings: Settings
    pulse: KeepAlive
    homes: Homes
    names: "count[int]" = attrs.field(factory=lambda: count(1))
    _sessions: dict[str, Session] = attrs.field(factory=dict, init=False)

    async def open(self, caller: Caller, response: Response) -> None:
        """Begin the stream, and say where to post. Raises `Overloaded` for one too many."""
        session_id = self.homes.new_id(caller)

        def ended() -> None:
            self._sessions.pop(session_id, None)
            self.pulse.discard(response)
            response.cut()

        session = PairSession(self.host, PairSink(response), caller, ended, peer=response.peer)
        supervisor = await add_session(self.host, session, f"e-{next(self.names)}")
        self._sessions[session_id] = session

        def lost() -> None:
            session.hang_up()  # what goes on in it has no client to answer, and need not be waited for
            supervisor.address.begin_stop()

        response.on_lost = lost
        self.host.expiry.add(response, lambda: session.caller, cut)
        await response.begin(STREAM)
        self.pulse.add(response)
        where = f"{path_to(MESSAGES_PATH, self.host.path).decode()}?session={session_id}"
        await response.write(encode_event(where.encode(), event="endpoint"))

    async def post(self, head: Head, body: bytes, caller: Caller, response: Response) -> None:
        """Take in what the client says; the answer goes out on its stream. Raises `HttpRefusal` (400, 404),
        and `Elsewhere`."""
        named = parse_qs(head.query.decode("latin-1")).get("session", [])
        if len(named) != 1:
            raise HttpRefusal(400, "post to the URL of the endpoint event")
        session = self._sessions.get(named[0])
        if session is None or session.principal != caller.key:
            raise self.homes.missing(named[0], caller)
        carrier = response.carrier
        await response.answer(202, ())
        if session.caller is not caller:  # last: another message may have brought another token meanwhile
            session.renew(caller)
        await session.receive(body, carrier)

    def __len__(self) -> int:
        return len(self._sessions)
