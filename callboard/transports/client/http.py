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
from callboard.codecs.lines import MAX_FRAME
from callboard.codecs.revisions import CancelledNotificationParams, Dialect, Revision
from callboard.codecs.sse import Event, EventDecoder
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
from callboard.transports.client.credentials import Credentials, Headers
from callboard.transports.client.pool import Channel, Pool, Use, shown

FAREWELL: Final = 2.0
"""Seconds in which a server is told that a request, or the session, is no longer wanted; then it is not told."""

TELL_TIME: Final = 60.0
"""Seconds for a server to take in a notification, or an answer to what it asked."""

RETRY: Final = 1.0
"""Seconds before a stream that ended is resumed, unless the server says otherwise."""

RESUMPTIONS: Final = 8
"""How often in a row a stream is resumed that brings nothing."""

LISTEN_TIME: Final = 1.0
"""Seconds for a legacy server to open the stream on which it asks and tells. Then it may say it late, or never."""

REFUSALS: Final = 3
"""How often in a row a connection may be refused where the stream came from, before it is given up."""

LONGEST_PAUSE: Final = 30.0
"""Longest time between two attempts to open a stream that brings nothing, unless the server says otherwise."""

MAX_REFUSAL: Final = 64 * 1024
"""Largest body of a refusal that is looked at, in bytes."""

_POSTED: Final = (
    (b"content-type", b"application/json"),
    (b"accept", b"application/json, text/event-stream"),
)
STREAMED: Final = ((b"accept", b"text/event-stream"),)
_SESSION: Final = b"mcp-session-id"
_PASSING: Final = frozenset({409, 429, 502, 503, 504})
"""Answers to a client that comes back for a stream too soon: the server restarts, or has not missed the client yet."""
_USES: Final[Mapping[str, Use]] = {"subscriptions/listen": "stream"}


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

    async def ask(self, outgoing: OutgoingRequest, hear: Hear) -> ResultResponse | ErrorResponse | None:
        if self.lost:
            raise ConnectionLost(self.lost)
        is_waiting = not outgoing.revision.dialect.cancelled_by_close and outgoing.method != "initialize"
        answer: ResultResponse | ErrorResponse | None = None
        with outgoing.scope():
            try:
                answer = await self._ask(outgoing, hear)
                is_waiting = False
            except CallboardError:
                is_waiting = False  # the server is through with it, or gone
                raise
            finally:
                if is_waiting:
                    await self._take_back(outgoing)
        return answer

    async def _ask(self, outgoing: OutgoingRequest, hear: Hear) -> ResultResponse | ErrorResponse:
        opens_session = outgoing.method == "initialize" and outgoing.revision.dialect.has_sessions
        if opens_session:
            self.session = self.revision = None
        reading = _Reading(outgoing, hear)
        answer: ResultResponse | ErrorResponse | None = None
        try:
            headers, use = (*_POSTED, *outgoing.headers), _USES.get(outgoing.method, "call")
            async with PostedRequest(self, b"POST", headers, outgoing.frame, outgoing.hold, use=use) as asked:
                head = await asked.head()
                if opens_session:
                    self.session, self.is_stale = head.get(_SESSION), self.is_stale and head.status != 200
                if head.media_type != b"text/event-stream":
                    return await self._whole(asked, head, outgoing)
                answer = await reading.read(asked.channel)
        except ConnectionLost:
            if not reading.last_event_id:
                raise
        if answer is None and not outgoing.revision.dialect.cancelled_by_close:
            answer = await self._resume(reading)
        if answer is None:
            raise ConnectionLost("the stream ended without a response")
        return answer

    async def tell(self, frame: bytes) -> None:
        await self._tell(frame)

    async def _tell(self, frame: bytes, *, may_renew: bool = True) -> None:
        with trio.move_on_after(TELL_TIME) as scope:
            hold = partial(held, scope)
            async with PostedRequest(self, b"POST", _POSTED, frame, hold, may_renew=may_renew, use="word") as asked:
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
        session, reading, fruitless, refusals, is_open = self.session, _Reading(None, hear), 0, 0, False
        while self._goes_on(session):
            before = reading.last_event_id
            try:
                async with PostedRequest(self, b"GET", self._resuming(reading), b"", use="stream") as asked:
                    head = await asked.head()
                    if head.status == 404 and is_open and session is not None:
                        self._gone(session)
                        return
                    _check_passing(head)
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
            await trio.sleep(_pause(reading, fruitless))

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
                    async with PostedRequest(self, b"DELETE", (), b"", may_renew=False, use="word") as asked:
                        await asked.head()
        except CallboardError:
            pass  # it ends by itself
        finally:
            self.pool.close()

    def request(self, method: bytes, headers: Headers, body: bytes, session: bytes | None) -> bytes:
        """The bytes of one request."""
        lines = [b"%b %b HTTP/1.1\r\nhost: %b\r\n" % (method, self.target, self.pool.origin.authority)]
        own: list[tuple[bytes, bytes]] = []
        if session is not None:
            own.append((_SESSION, session))
        if self.revision is not None and _is_versioned_here(self.revision.dialect):
            own.append((b"mcp-protocol-version", self.revision.value.encode()))
        if body:
            own.append((b"content-length", b"%d" % len(body)))
        lines += [b"%b: %b\r\n" % header for header in (*headers, *own, *self.headers)]
        return b"".join((*lines, b"\r\n", body))

    async def _whole(
        self, asked: "PostedRequest", head: AnswerHead, outgoing: OutgoingRequest
    ) -> ResultResponse | ErrorResponse:
        is_fine = head.status == 200
        body = await asked.channel.whole(2 * MAX_FRAME) if is_fine else await _start_of(asked.channel)
        if head.status == 404 and asked.session is not None:
            raise self._gone(asked.session)
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

    async def _resume(self, reading: "_Reading") -> ResultResponse | ErrorResponse | None:
        """Come back to a stream that ended before its answer. Raises `ConnectionLost` if that leads nowhere."""
        session, fruitless, refusals = self.session, 0, 0
        while reading.last_event_id and fruitless < RESUMPTIONS and refusals < REFUSALS and not self.lost:
            await trio.sleep(_pause(reading, fruitless))
            before = reading.last_event_id
            try:
                async with PostedRequest(self, b"GET", self._resuming(reading), b"") as asked:
                    head = await asked.head()
                    if head.status == 404 and session is not None:
                        raise self._gone(session)
                    _check_passing(head)
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

    def _resuming(self, reading: "_Reading") -> Headers:
        last = reading.last_event_id
        return (*STREAMED, (b"last-event-id", last.encode())) if last else STREAMED

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
    headers: Headers
    body: bytes
    hold: Hold = nullcontext
    may_renew: bool = True
    """Whether leave may be asked for: not for a good-bye."""
    use: Use = "call"
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
        await self.channel.send(self.link.request(self.method, (*self.headers, *proof), self.body, self.session))
        return await self.channel.head()


@attrs.define(eq=False)
class _Reading:
    """State of reading one stream, over as many connections as it takes."""

    outgoing: OutgoingRequest | None
    hear: Hear
    last_event_id: str = attrs.field(default="", init=False)
    retry: float = attrs.field(default=RETRY, init=False)
    """Seconds before it is resumed: the server may have said how many."""

    async def read(self, channel: Channel) -> ResultResponse | ErrorResponse | None:
        """Read to the answer, or to the end. Raises `ConnectionLost` if it is cut off, `BadAnswer`."""
        decoder = EventDecoder(2 * MAX_FRAME)  # what was cut off is no part of what follows
        while (piece := await channel.piece()) is not None:
            events = decoder.feed(piece)
            self.retry = self.retry if decoder.retry is None else decoder.retry / 1000
            for event in events:
                self.last_event_id = decoder.last_event_id or self.last_event_id
                if not isinstance(event, Event):
                    raise BadAnswer(str(event))
                if event.event != "message":
                    continue  # some servers show in this way that they are alive
                if event.data and (answer := await self._take_in(event.data)) is not None:
                    await self._finish(channel)
                    return answer
        return None

    async def _take_in(self, data: bytes) -> ResultResponse | ErrorResponse | None:
        found: ResultResponse | ErrorResponse | None = None
        try:
            for member in split_batch(data) if is_batch(data) else [data]:
                message = decode(member)
                if not isinstance(message, (ResultResponse, ErrorResponse)):
                    await self.hear(message)
                elif self.outgoing is not None and message.id == self.outgoing.id:
                    found = message
        except PeerError as error:
            raise BadAnswer(str(error)) from None
        return found

    async def _finish(self, channel: Channel) -> None:
        """Most servers end the stream with the answer; one that does not loses the connection."""
        with trio.move_on_after(0.05):
            while await channel.piece() is not None:
                pass
            return
        channel.is_spent = True


def _check_passing(head: AnswerHead) -> None:
    """Raises `ConnectionLost` for what may be otherwise in a moment."""
    if head.status in _PASSING:
        raise ConnectionLost(f"HTTP {head.status}")


def _pause(reading: _Reading, fruitless: int) -> float:
    """Seconds before a stream is resumed: as many as the server wants, and more each time that this brings nothing."""
    return max(reading.retry, min(RETRY * 2 ** (fruitless - 2), LONGEST_PAUSE) if fruitless > 1 else 0.0)


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
