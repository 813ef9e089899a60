"""A link over Streamable HTTP: every request is a POST, and the asking task reads its answer itself.

No task stands between a call and its socket. Leaving the scope of a call closes its stream: for a modern server that
is the cancellation, a legacy one is told in so many words.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Final

import attrs
import trio

from callboard.actors.client.link import Hear, Hold, OutgoingRequest, held
from callboard.actors.frames import notification_frame
from callboard.codecs.envelope import ErrorResponse, ResultResponse, decode, is_batch, split_batch
from callboard.codecs.http.response_parser import AnswerHead
from callboard.codecs.lines import MAX_ANSWER
from callboard.codecs.revisions import CancelledNotificationParams, Dialect, Revision
from callboard.errors import (
    BadAnswer,
    CallboardError,
    CannotConnect,
    ConnectionLost,
    HttpRefused,
    PeerError,
    RequestTimedOut,
    SessionGone,
)
from callboard.transports.client.answer_stream import AnswerStream, check_passing
from callboard.transports.client.credentials import Credentials, Headers
from callboard.transports.client.pool import Channel, Pool, Use, shown

FAREWELL: Final = 2.0
"""Seconds in which a server is told that a request, or the session, is no longer wanted; then it is not told."""

TELL_TIME: Final = 60.0
"""Seconds for a server to take in a notification, or an answer to what it asked."""

RESUMPTIONS: Final = 8
"""How often in a row a stream is resumed that brings nothing."""

LISTEN_TIME: Final = 1.0
"""Seconds for a legacy server to open the stream on which it asks and tells. Then it may say it late, or never."""

REFUSALS: Final = 3
"""How often in a row a connection may be refused where the stream came from, before it is given up."""

MAX_REFUSAL: Final = 64 * 1024
"""Largest body of a refusal that is looked at, in bytes."""

MAX_HEADS: Final = 256
"""Most heads of requests that are remembered: one for each method and name. Then it begins anew."""

MAX_HEAD: Final = 2048
"""Longest of them, in bytes."""

_POSTED: Final = b"content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
STREAMED: Final = b"accept: text/event-stream\r\n"
_SESSION: Final = b"mcp-session-id"
_USES: Final[Mapping[str, Use]] = {"subscriptions/listen": "stream"}
_SPECIAL: Final = frozenset({"initialize", *_USES})
"""Requests that open a session, or have connections of their own."""


def _is_versioned_here(dialect: Dialect) -> bool:
    """Whether the link adds the version header. Where headers mirror the body, the request brings it along."""
    return dialect.versioned_header and not dialect.mirrors_headers


@attrs.define(eq=False)
class HttpLink:
    """Speaks to one endpoint. A legacy session's id and revision go with every request, once there are any."""

    pool: Pool
    target: bytes
    headers: Headers = attrs.field(default=(), repr=False)
    credentials: Credentials | None = attrs.field(default=None, repr=False)
    is_http: bool = attrs.field(default=True, init=False)
    ignored: int = attrs.field(default=0, init=False)
    session: bytes | None = attrs.field(default=None, init=False)
    revision: Revision | None = attrs.field(default=None, init=False)
    is_stale: bool = attrs.field(default=False, init=False)
    """Whether the server has ended the session. A new handshake opens another."""
    heard: int = attrs.field(default=0, init=False)  # not counted: each answer has a stream of its own
    process: trio.Process | None = attrs.field(default=None, init=False)
    tail: Sequence[str] = attrs.field(default=(), init=False)
    is_unread: bool = attrs.field(default=False, init=False)
    lost: str = attrs.field(default="", init=False)  # only if closed: the next request may find the server again
    _is_listening: trio.Event = attrs.field(factory=trio.Event, init=False)
    _heads: dict[tuple[bytes, bytes, bytes | None, Revision | None], bytes] = attrs.field(
        factory=dict, init=False, repr=False
    )

    async def attend(self) -> None:
        await self.pool.attend()

    async def ask(self, outgoing: OutgoingRequest, hear: Hear) -> ResultResponse | ErrorResponse | None:
        if self.lost:
            raise ConnectionLost(self.lost)
        is_waiting = not outgoing.revision.dialect.cancelled_by_close and outgoing.method != "initialize"
        is_plain = self.credentials is None and outgoing.method not in _SPECIAL
        channel = self.pool.take_attended() if is_plain else None
        try:
            if channel is None:
                answer = await self._ask_slowly(outgoing, hear)
            else:
                answer = await self._ask_on(channel, outgoing, hear)
            is_waiting = is_waiting and answer is None
        except CallboardError:
            is_waiting = False  # the server is through with it, or gone
            raise
        finally:
            if is_waiting:
                await self._take_back(outgoing)
        return answer

    async def _ask_on(
        self, channel: Channel, outgoing: OutgoingRequest, hear: Hear
    ) -> ResultResponse | ErrorResponse | None:
        """Ask on a channel that was idle. If the time passes, the pool closes it, and that is heard here: a cancel
        scope for each request would cost 13 us. None if so."""
        session, reading, is_done = self.session, None, False
        outgoing.on_late = channel.wire.close
        self.pool.times.keep(outgoing)
        try:
            lines = _POSTED + outgoing.headers
            await channel.send(self.request(b"POST", lines, outgoing.frame, session, outgoing.trace))
            head = await channel.head()
            if head.media_type == b"text/event-stream":
                reading = AnswerStream(outgoing, hear)
                answer = await reading.read(channel)
            else:
                answer = await self._whole(channel, head, outgoing, session)
            is_done = True
        except ConnectionLost:
            if outgoing.is_late:
                return None
            if reading is None or not reading.last_event_id:
                raise
            answer = None
        finally:
            self.pool.times.forget(outgoing)
            outgoing.on_late = None
            self.pool.give_back(channel, is_done=is_done)
        if answer is None and reading is not None:
            with outgoing.scope():
                return await self._go_on(reading)
        return answer

    async def _ask_slowly(self, outgoing: OutgoingRequest, hear: Hear) -> ResultResponse | ErrorResponse | None:
        """Ask where there may be more to wait for than the answer: a channel, or credentials."""
        with outgoing.scope():
            return await self._ask(outgoing, hear)
        return None

    async def _ask(self, outgoing: OutgoingRequest, hear: Hear) -> ResultResponse | ErrorResponse:
        opens_session = outgoing.method == "initialize" and outgoing.revision.dialect.has_sessions
        if opens_session:
            self.session = self.revision = None
        reading = AnswerStream(outgoing, hear)
        try:
            lines, use = _POSTED + outgoing.headers, _USES.get(outgoing.method, "call")
            async with PostedRequest(
                *(self, b"POST", lines, outgoing.frame, outgoing.hold), use=use, own=outgoing.trace
            ) as asked:
                head = await asked.head()
                if opens_session:
                    self.session, self.is_stale = head.get(_SESSION), self.is_stale and head.status != 200
                if head.media_type != b"text/event-stream":
                    return await self._whole(asked.channel, head, outgoing, asked.session)
                answer = await reading.read(asked.channel)
                if answer is not None:
                    return answer
        except ConnectionLost:
            if not reading.last_event_id:
                raise
        return await self._go_on(reading)

    async def _go_on(self, reading: AnswerStream) -> ResultResponse | ErrorResponse:
        """Read the rest of a stream that ended before its answer. Raises `ConnectionLost` if there is none."""
        outgoing, answer = reading.outgoing, None
        if outgoing is not None and not outgoing.revision.dialect.cancelled_by_close:
            answer = await self._resume(reading)
        if answer is None:
            raise ConnectionLost("the stream ended without a response")
        return answer

    async def tell(self, frame: bytes, headers: bytes = b"") -> None:
        await self._tell(frame, headers)

    async def _tell(self, frame: bytes, headers: bytes = b"", *, may_renew: bool = True) -> None:
        with trio.move_on_after(TELL_TIME) as scope:
            hold = partial(held, scope)
            async with PostedRequest(
                *(self, b"POST", _POSTED + headers, frame, hold), may_renew=may_renew, use="word"
            ) as asked:
                head = await asked.head()
                body = await _start_of(asked.channel)
                if head.status == 404 and asked.session is not None:
                    raise self._gone(asked.session)
                if head.status >= 300:
                    raise HttpRefused(head.status, _said(head, body))
                return
        raise RequestTimedOut(after=TELL_TIME)

    async def listen(self, hear: Hear) -> None:
        """The GET stream of a legacy session, opened again whenever it ends."""
        if self.revision is None or not self.revision.dialect.has_sessions:
            return
        try:
            await self._listen(hear)
        finally:
            self._is_listening.set()

    async def _listen(self, hear: Hear) -> None:
        session, reading, fruitless, refusals, is_open = self.session, AnswerStream(None, hear), 0, 0, False
        while self._goes_on(session):
            before = reading.last_event_id
            try:
                async with PostedRequest(self, b"GET", self._resuming(reading), b"", use="stream") as asked:
                    head = await asked.head()
                    if head.status == 404 and is_open and session is not None:
                        self._gone(session)
                        return
                    check_passing(head)
                    if head.status != 200 or head.media_type != b"text/event-stream":
                        return  # 405: this server has nothing to say unasked
                    is_open, refusals = True, 0
                    self._is_listening.set()
                    await reading.read(asked.channel)
            except (ConnectionLost, CannotConnect, BadAnswer) as error:
                if not self._goes_on(session):
                    return  # otherwise it is resumed, like a stream that ended
                refusals = refusals + 1 if isinstance(error, CannotConnect) and error.is_refused else 0
                if refusals >= REFUSALS:
                    self._forget(session)
                    raise ConnectionLost(f"connection lost: {error}") from None
            fruitless = 0 if reading.last_event_id != before else fruitless + 1
            await trio.sleep(reading.pause(fruitless))

    def _goes_on(self, session: bytes | None) -> bool:
        return self.session == session and not self.lost

    async def wait_dropped(self) -> bool:
        """Hold an idle connection until the server lets go of it. False, at once, if there is none."""
        return await self.pool.wait_dropped()

    async def wait_listening(self) -> None:
        with trio.move_on_after(LISTEN_TIME):
            await self._is_listening.wait()

    def agree(self, revision: Revision) -> None:
        self.revision = revision
        self._is_listening = trio.Event()

    def _gone(self, session: bytes) -> SessionGone:
        """The server does not know *session*. If that is not the session any more, another request was faster."""
        self._forget(session)
        return SessionGone("the server has ended the session")

    def _forget(self, session: bytes | None) -> None:
        if self.session == session:
            self.session, self.is_stale = None, True

    async def aclose(self) -> None:
        """End the session, if there is one, and the connections."""
        self.lost = "closed locally"
        try:
            if self.session is not None:
                with trio.move_on_after(FAREWELL):
                    async with PostedRequest(self, b"DELETE", b"", b"", may_renew=False, use="word") as asked:
                        await asked.head()
        except CallboardError:
            pass  # it ends by itself
        finally:
            self.pool.close()

    def request(self, method: bytes, lines: bytes, body: bytes, session: bytes | None, own: Headers = ()) -> bytes:
        """The bytes of one request; *lines* are the headers of its kind, *own* those that no other has."""
        key = (method, lines, session, self.revision)
        head = self._heads.get(key)
        if head is None:
            head = self._head(method, lines, session)
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            if len(head) <= MAX_HEAD:
                self._heads[key] = head
        for header in own:
            head += b"%b: %b\r\n" % header
        return b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body) if body else head + b"\r\n"

    def _head(self, method: bytes, lines: bytes, session: bytes | None) -> bytes:
        first = b"%b %b HTTP/1.1\r\nhost: %b\r\n" % (method, self.target, self.pool.origin.authority)
        own: list[tuple[bytes, bytes]] = []
        if session is not None:
            own.append((_SESSION, session))
        if self.revision is not None and _is_versioned_here(self.revision.dialect):
            own.append((b"mcp-protocol-version", self.revision.value.encode()))
        return b"".join((first, lines, *(b"%b: %b\r\n" % header for header in (*own, *self.headers))))

    async def _whole(
        self, channel: Channel, head: AnswerHead, outgoing: OutgoingRequest, session: bytes | None
    ) -> ResultResponse | ErrorResponse:
        is_fine = head.status == 200
        body = await channel.whole(MAX_ANSWER) if is_fine else await _start_of(channel)
        if head.status == 404 and session is not None:
            raise self._gone(session)
        if head.media_type == b"application/json":
            try:
                messages = [decode(member) for member in (split_batch(body) if is_batch(body) else [body])]
            except PeerError as error:
                if is_fine:
                    raise BadAnswer(str(error)) from None
            else:
                for message in messages:
                    if isinstance(message, (ResultResponse, ErrorResponse)) and message.id == outgoing.id:
                        return message
                    if isinstance(message, ErrorResponse) and not is_fine:
                        raise HttpRefused(head.status, message.message, error=message)
        if not is_fine:
            raise HttpRefused(head.status, _said(head, body))
        if head.media_type != b"application/json":
            kind = head.media_type[:100].decode("ascii", "replace") or "(none)"
            raise BadAnswer(f"unexpected content type {kind}: expected JSON or an event stream")
        raise BadAnswer("the response is for another request")

    async def _resume(self, reading: AnswerStream) -> ResultResponse | ErrorResponse | None:
        """Come back to a stream that ended before its answer. Raises `ConnectionLost` if that leads nowhere."""
        session, fruitless, refusals = self.session, 0, 0
        while reading.last_event_id and fruitless < RESUMPTIONS and refusals < REFUSALS and not self.lost:
            await trio.sleep(reading.pause(fruitless))
            before = reading.last_event_id
            try:
                async with PostedRequest(self, b"GET", self._resuming(reading), b"") as asked:
                    head = await asked.head()
                    if head.status == 404 and session is not None:
                        raise self._gone(session)
                    check_passing(head)
                    if head.status != 200 or head.media_type != b"text/event-stream":
                        return None
                    answer = await reading.read(asked.channel)
                if answer is not None:
                    return answer
                refusals = 0
            except SessionGone:
                raise
            except CannotConnect as away:
                refusals = refusals + 1 if away.is_refused else 0
            except ConnectionLost:
                pass
            fruitless = 0 if reading.last_event_id != before else fruitless + 1
        if reading.last_event_id:
            raise ConnectionLost(self.lost or "the stream cannot be resumed")
        return None

    def _resuming(self, reading: AnswerStream) -> bytes:
        last = reading.last_event_id
        return STREAMED + b"last-event-id: %b\r\n" % last.encode() if last else STREAMED

    async def _take_back(self, outgoing: OutgoingRequest) -> None:
        params = CancelledNotificationParams(request_id=outgoing.id, reason=outgoing.reason)
        frame = notification_frame(outgoing.revision, "notifications/cancelled", params)
        with trio.CancelScope(shield=True, deadline=trio.current_time() + FAREWELL):
            try:
                await self._tell(frame, may_renew=False)
            except CallboardError:
                return  # the server is gone


@attrs.define(eq=False)
class PostedRequest:
    """One request on a channel of the pool, for as long as its answer is read."""

    link: HttpLink
    method: bytes
    lines: bytes
    """The headers of its kind."""
    body: bytes
    hold: Hold = nullcontext
    may_renew: bool = True
    """Whether leave may be asked for: not for a good-bye."""
    use: Use = "call"
    own: Headers = ()
    """Headers that no other request has."""
    channel: Channel = attrs.field(init=False)
    session: bytes | None = attrs.field(init=False)
    """The one that it belongs to, however long it waits for its turn."""
    _is_taken: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.session = self.link.session

    async def __aenter__(self) -> "PostedRequest":
        await self._take()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._give_back(is_done=error[0] is None)

    async def head(self) -> AnswerHead:
        """Send the request and read the head of the answer; again if other credentials may help."""
        credentials = self.link.credentials
        if credentials is None:
            return await self._send(())
        proof = await credentials.prove(self.method)
        head = await self._send(proof.headers)
        while self.may_renew and credentials.helps(head, proof):
            await _start_of(self.channel)
            self._give_back(is_done=True)  # a callback may ask the user, which takes time
            with self.hold():
                proof = await credentials.renew(self.method, head, proof)
            await self._take()
            head = await self._send(proof.headers)
        return head

    async def _take(self) -> None:
        self.channel = await self.link.pool.take(self.use)
        self._is_taken = True

    def _give_back(self, *, is_done: bool) -> None:
        if self._is_taken:
            self._is_taken = False
            self.link.pool.give_back(self.channel, is_done=is_done)

    async def _send(self, proof: Headers) -> AnswerHead:
        own = (*self.own, *proof)
        await self.channel.send(self.link.request(self.method, self.lines, self.body, self.session, own))
        return await self.channel.head()


async def _start_of(channel: Channel) -> bytes:
    """The body of a refusal, as far as it is looked at. A longer one costs the connection, and not its status."""
    body = b""
    while len(body) < MAX_REFUSAL:
        piece = await channel.piece()
        if piece is None:
            return body
        body += piece
    channel.is_spent = True
    return body


def _said(head: AnswerHead, body: bytes) -> str:
    """Text of an error response. A redirect is named, and not followed."""
    place = head.get(b"location")
    if head.status // 100 == 3 and place is not None:
        return f"not followed to {shown(place.decode('utf-8', 'replace'))}"
    return body[:200].decode("utf-8", "replace").strip()
