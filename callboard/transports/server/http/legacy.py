"""Legacy sessions over HTTP: opened by `initialize`, found again by their id, ended by DELETE or by neglect."""

import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import count
from typing import Final, TypeVar

import attrs
import trio

from callboard.actors.server.host import Host
from callboard.actors.server.session import Session
from callboard.actors.server.session_record import SessionRecord
from callboard.actors.server.session_tree import add_session
from callboard.actors.shares import account_of
from callboard.codecs.caller import Caller, caller_of_key
from callboard.codecs.envelope import Envelope, Request, encode
from callboard.codecs.http.head import Head
from callboard.codecs.http.passed import passed_of
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.json_scan import check_modelled
from callboard.codecs.members import write_members
from callboard.codecs.replay_budget import ReplayBudget
from callboard.codecs.revisions import LEGACY, InitializeRequestParams, read
from callboard.codecs.routing import Route
from callboard.errors import Overloaded, UnsupportedVersion
from callboard.transports.limits import Settings
from callboard.transports.server.http.homes import Homes, not_found
from callboard.transports.server.http.keepalive import KeepAlive
from callboard.transports.server.http.legacy_streams import EventStore, LegacyStream
from callboard.transports.server.http.response import Response

T = TypeVar("T")

SESSION: Final = b"mcp-session-id"
VERSION: Final = b"mcp-protocol-version"
TOLD_FOR: Final = 10.0
"""Seconds that the events of an answer are kept when its end was written: its connection may have broken just then."""

_STANDALONE: Final = 0  # the number of the stream that GET opens


@attrs.define(eq=False)
class HttpSession(Session):
    """A legacy session over HTTP. It may have no open stream for a while, and ends when it is idle."""

    transport = "http"

    ways: "LegacySession" = attrs.field(kw_only=True)

    async def run(self) -> None:
        try:
            while True:
                message = await self.ways.wait_used(self.inbox.receive)
                await self._write(message.frame)
        except (trio.BrokenResourceError, trio.EndOfChannel):
            pass  # there is no stream to write to, and none will come
        finally:
            self.end()

    def end(self) -> None:
        super().end()
        del self.ways

    def on_stop(self) -> None:
        self.ways.stop_waiting()

    def noted(self) -> None:
        self.ways.keep(self.record)

    @property
    def is_busy(self) -> bool:
        return bool(self.requests.in_flight)

    @property
    def is_attached(self) -> bool:
        return self.ways.streams[_STANDALONE].response is not None


@attrs.define(eq=False)
class LegacySession:
    """One session and its streams. As a sink it waits until there is a stream for what belongs to no request."""

    id: str
    settings: Settings
    pulse: KeepAlive
    budget: ReplayBudget
    forget: Callable[[], None]
    keep: Callable[[Callable[[], bytes]], None]
    incarnation: str
    session: HttpSession = attrs.field(init=False)
    received: int = attrs.field(default=0, init=False)
    """Bytes of messages of the client."""
    store: EventStore = attrs.field(init=False)
    streams: dict[int, LegacyStream] = attrs.field(factory=dict, init=False)
    _numbers: "count[int]" = attrs.field(factory=lambda: count(1), init=False)
    _attached: trio.Event | None = attrs.field(default=None, init=False)
    _is_ending: bool = attrs.field(default=False, init=False)
    _told: list[tuple[float, LegacyStream]] = attrs.field(factory=list, init=False)
    _nap: trio.CancelScope | None = attrs.field(default=None, init=False)
    _used: float = attrs.field(default=-math.inf, init=False)

    def __attrs_post_init__(self) -> None:
        self.store = EventStore(self.settings.max_events, self.settings.max_event_bytes, self.budget)
        self.streams[_STANDALONE] = self._stream(_STANDALONE, None)
        self.touch()

    @property
    def sent(self) -> int:
        """Bytes of messages to the client."""
        return self.store.sent

    async def send(self, frame: bytes) -> None:
        await self.send_together([frame])

    async def send_together(self, frames: Sequence[bytes]) -> None:
        standalone = self.streams[_STANDALONE]
        while standalone.response is None:
            if self._is_ending:
                raise trio.BrokenResourceError("the session has ended")
            self._attached = trio.Event()
            await self.wait_used(self._attached.wait)
        await standalone.send_together(frames)

    def stop_waiting(self) -> None:
        """The session is asked to end: what has no reader now will have none."""
        self._is_ending = True
        self._tell_attached()

    def _tell_attached(self) -> None:
        if self._attached is not None:
            self._attached.set()

    # Its use.

    async def wait_used(self, wait: Callable[[], Awaitable[T]]) -> T:
        """Wait for something, as long as the session is in use. Raises `trio.BrokenResourceError` when not."""
        while True:
            with trio.CancelScope(deadline=min(self._kept_until(), self._due())) as self._nap:
                return await wait()
            self._forget_told()
            await self._close_quiet()
            if self._kept_until() <= trio.current_time():
                raise trio.BrokenResourceError("the session was idle too long")

    def _due(self) -> float:
        """When the next of the streams that were read to their end is forgotten, or one that is quiet is closed."""
        told = self._told[0][0] if self._told else math.inf
        return min((told, *(stream.closes_at for stream in self.streams.values()))) if self._polls else told

    @property
    def _polls(self) -> bool:
        """Whether streams that are quiet are closed. Not at the end: their clients would find no way back."""
        return self.settings.poll_after > 0 and not self.session.host.is_draining

    def _note_told(self, stream: LegacyStream) -> None:
        until = trio.current_time() + TOLD_FOR
        self._told.append((until, stream))
        self._wake_at(until)

    def _wake_at(self, time: float) -> None:
        if self._nap is not None and time < self._nap.deadline:
            self._nap.deadline = time

    def _forget_told(self) -> None:
        while self._told and self._told[0][0] <= trio.current_time():
            _, stream = self._told.pop(0)
            self.store.forget(stream)
            self.streams.pop(stream.number, None)

    async def _close_quiet(self) -> None:
        """Close the streams that were quiet for too long: their clients come back."""
        for stream in list(self.streams.values()) if self._polls else ():
            if stream.closes_at <= trio.current_time():
                await stream.close_stream(self.settings.retry)

    def _kept_until(self) -> float:
        if self.session.is_busy or any(stream.response is not None for stream in self.streams.values()):
            self.touch()
        return self._used + self.settings.session_idle

    def touch(self) -> None:
        """Note that it is in use."""
        self._used = trio.current_time()

    # What comes in.

    async def post(
        self,
        message: Envelope | bytes,
        response: Response,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        route: Route | None = None,
        head: Head | None = None,
    ) -> None:
        """Take in what was posted: a message, or a batch. Raises `Overloaded` for one stream too many."""
        self.touch()
        track = self.session.track
        if track is not None and not isinstance(message, bytes):  # a batch tells the session itself
            track.to_server(encode(message))
        if not isinstance(message, (Request, bytes)):  # needs no stream: an answer must get through when all are taken
            await self.session.take(message, self.session, response.carrier)
            await response.answer(202, ())
            return
        self._tidy()
        number = next(self._numbers)
        stream = self._stream(number, response)
        stream.headers, stream.track, host = headers, track, self.session.host
        if head is not None:
            stream.head = None if host.tracer is None else head
            stream.passed = passed_of(head, host.passes) if host.passes else ()
        stream.on_plain_end = partial(self._drop, number)
        response.on_lost = stream.detach
        stream.held, response.held = response.held, None  # the request goes on when its client has left
        self.streams[number] = stream
        if stream.poll_after:
            self._wake_at(stream.watch_quiet())
        if isinstance(message, Request):
            await self.session.take(message, stream, response.carrier, route)
        elif not await self.session.receive(message, response.carrier, stream):
            stream.on_plain_end()
            await response.answer(202, ())

    async def get(self, last_event: bytes | None, response: Response) -> None:
        """Open the stream that belongs to no request, or go on with one that was left. Raises `HttpRefusal`."""
        self.touch()
        if last_event is None:
            standalone = self.streams[_STANDALONE]
            standalone.is_polled = self._is_polled
            await standalone.attach(response)
        else:
            stream, last = self._place(last_event)
            await stream.resume(response, last)
            if stream.poll_after:
                self._wake_at(stream.watch_quiet())
        self._tell_attached()

    def ended(self) -> None:
        """The session is over: so are its streams."""
        self.forget()
        for stream in self.streams.values():
            stream.cut()
        self.store.clear()
        self._told.clear()

    @property
    def _is_polled(self) -> bool:
        terms = self.session.terms
        return terms is not None and terms.revision.dialect.polls_streams

    def _stream(self, number: int, response: Response | None) -> LegacyStream:
        is_polled = number != _STANDALONE and self._is_polled
        stream = LegacyStream(number, self.store, self.pulse, response, self.settings.retry, is_polled)
        stream.poll_after = self.settings.poll_after if is_polled else 0.0
        stream.incarnation = self.incarnation
        stream.on_left = self.touch
        if number != _STANDALONE:
            stream.on_told = self._note_told
        return stream

    def _drop(self, number: int) -> None:
        self.streams.pop(number, None)
        self.touch()

    def _tidy(self) -> None:
        """Forget the oldest of the streams that have ended, first those whose end was written. Raises `Overloaded` if
        too many are still open."""
        most = self.settings.max_streams
        if len(self.streams) > most:
            ended = sorted((not stream.is_told, number) for number, stream in self.streams.items() if stream.is_over)
            for _, number in ended[: len(self.streams) - most]:
                del self.streams[number]
            if len(self.streams) > most:
                raise Overloaded("too many open streams")

    def _place(self, last_event: bytes) -> tuple[LegacyStream, int]:
        is_ours = last_event.startswith(self.incarnation.encode()) and len(last_event) < 60
        number, dash, last = last_event[len(self.incarnation) :].partition(b"-")
        if is_ours and dash and number.isdigit() and last.isdigit():
            stream = self.streams.get(int(number))
            if stream is not None:
                return stream, int(last)
        raise HttpRefusal(400, "the event is not available for replay")


@attrs.define(eq=False)
class Legacy:
    """All legacy sessions of one endpoint."""

    host: Host
    settings: Settings
    pulse: KeepAlive
    homes: Homes
    _versions: frozenset[bytes] = attrs.field(init=False)
    names: "count[int]" = attrs.field(factory=lambda: count(1))
    _sessions: dict[str, LegacySession] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._versions = frozenset(revision.value.encode() for revision in LEGACY & self.host.offer.revisions)

    async def initialize(self, message: Request, caller: Caller, response: Response) -> None:
        """Open a session; if the handshake fails there is none.

        Raises `UnsupportedVersion` where none is offered, `Draining`, and `Overloaded` for one too many.
        """
        self._check_offered(message)
        self.host.check_admits()
        self.host.sessions.check(account_of(caller.key, response.peer))
        session_id = self.homes.new_id(caller)
        opened = self._new(session_id, caller, response.peer)
        try:
            await add_session(self.host, opened.session, f"h-{next(self.names)}")
            await opened.post(message, response, ((SESSION, session_id.encode()),))
        finally:
            if opened.session.terms is None:
                self._forget(session_id)
        if opened.session.terms is None:
            opened.session.supervisor.address.begin_stop()

    async def open_again(self, session_id: str, record: SessionRecord, peer: str) -> None:
        """Open the session that another worker had. Raises `Draining`, `Overloaded` for one too many, and `HttpRefusal`
        (404) for one of another path."""
        self.host.check_admits()
        if record.path != self.host.path:
            raise not_found()
        opened = self._new(session_id, caller_of_key(record.principal), peer)
        is_open = False
        try:
            await add_session(self.host, opened.session, f"h-{next(self.names)}")
            await opened.session.open_again(record)
            is_open = True
        finally:
            if not is_open:
                self._sessions.pop(session_id, None)

    def _new(self, session_id: str, caller: Caller, peer: str) -> LegacySession:
        opened = LegacySession(
            *(session_id, self.settings, self.pulse, self.host.kept),
            forget=partial(self._forget, session_id),
            keep=partial(self.homes.keep, session_id),
            incarnation=self.homes.incarnation,
        )
        opened.session = HttpSession(self.host, opened, caller, opened.ended, peer=peer, ways=opened)
        opened.session.key.name = session_id
        self._sessions[session_id] = opened
        return opened

    def _check_offered(self, message: Request) -> None:
        spoken = self.host.offer.revisions
        if not LEGACY & spoken:
            members = message.members
            check_modelled(members)
            asked = read(max(LEGACY), InitializeRequestParams, write_members(members))
            error = UnsupportedVersion(asked.protocol_version, sorted(spoken))
            error.request_id = message.id
            raise error

    def find(self, head: Head, caller: Caller) -> LegacySession:
        """The session that a request names, if it is this caller's: whose scopes count for it from now on.

        Raises `HttpRefusal`: 400 if none is named, 404 if there is none such, or not for this caller: one answer.
        Raises `Elsewhere` if another worker has it.
        """
        named = head.get(SESSION)
        if named is None:
            raise HttpRefusal(400, "missing Mcp-Session-Id; this is no web page but an endpoint for MCP clients")
        name = named.decode("latin-1")
        found = self._sessions.get(name)
        if found is None or found.session.principal != caller.key:
            raise self.homes.missing(name, caller)
        if head.get(VERSION) is not None and any(
            name == VERSION and value not in self._versions for name, value in head.headers
        ):
            raise HttpRefusal(400, "unsupported MCP-Protocol-Version")
        if found.session.caller is not caller:
            found.session.renew(caller)
        return found

    async def end(self, session: LegacySession) -> None:
        """End a session, and all that goes on in it."""
        session.session.hang_up()
        session.ended()
        await session.session.supervisor.address.stop()

    def hand_over(self, release: Callable[[str], None]) -> None:
        """End the sessions here that wait for nothing, each after *release*, for another worker to go on with."""
        for session_id, opened in list(self._sessions.items()):
            if not opened.session.is_busy and opened.session.terms is not None:
                release(session_id)
                opened.session.hang_up()
                opened.ended()
                opened.session.supervisor.address.begin_stop()

    def _forget(self, session_id: str) -> None:
        if self._sessions.pop(session_id, None) is not None:
            self.homes.drop(session_id)

    def has(self, session_id: str) -> bool:
        return session_id in self._sessions

    def __len__(self) -> int:
        return len(self._sessions)
