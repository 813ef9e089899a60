"""A link over HTTP+SSE (2024-11-05): one stream for all that the server says, and a second address for all we say."""

from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Self
from urllib.parse import urljoin, urlsplit

import attrs
import trio

from callboard.actors.client.duplex_link import DuplexLink
from callboard.actors.client.link import Hear, held
from callboard.codecs.lines import MAX_ANSWER
from callboard.codecs.sse import Event, EventDecoder
from callboard.errors import BadAnswer, CannotConnect, ConnectionLost, HttpRefused, PeerError
from callboard.transports.client.http import STREAMED, HttpLink, PostedRequest
from callboard.transports.client.pool import Channel, Origin

ENDPOINT_TIME: Final = 10.0
"""Seconds for a server to say where to post to. It is the first thing that it says."""


@attrs.define(eq=False)
class PairConnection:
    """Both directions: events that come in, and posts that go out."""

    channel: Channel
    decoder: EventDecoder
    post: HttpLink
    why: str = attrs.field(default="the server ended the stream", init=False)
    """Why it is over, once it is."""
    _frames: deque[bytes | PeerError] = attrs.field(factory=deque, init=False)

    async def send(self, frame: bytes) -> None:
        """Raises as `HttpLink.tell` does."""
        await self.post.tell(frame)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes | PeerError:
        while not self._frames:
            try:
                piece = await self.channel.piece()
            except (ConnectionLost, BadAnswer) as error:
                self.why, piece = str(error), None
            if piece is None:
                raise StopAsyncIteration
            self.take(self.decoder.feed(piece))
        return self._frames.popleft()

    def take(self, items: Sequence[Event | PeerError]) -> None:
        """Events other than messages mean nothing here."""
        for item in items:
            if not isinstance(item, Event):
                self._frames.append(item)
            elif item.event == "message" and item.data:
                self._frames.append(item.data)


@attrs.define(eq=False)
class PairLink(DuplexLink):
    """A link over such a pair."""

    pair: PairConnection = attrs.field(kw_only=True)

    async def listen(self, hear: Hear) -> None:
        try:
            await self.read(hear)
        finally:
            self.lose(self.pair.why)


@asynccontextmanager
async def open_pair(stream: HttpLink) -> AsyncIterator[PairLink]:
    """The pair with the stream at *stream*. Raises `CannotConnect`, `HttpRefused`, `BadAnswer`, `ConnectionLost`."""
    try:
        async with PostedRequest(stream, b"GET", STREAMED, b"", use="stream") as asked:
            decoder = EventDecoder(MAX_ANSWER)
            endpoint, rest = await _wait_endpoint(asked, decoder)
            target = _target(stream, endpoint)
            post = HttpLink(stream.pool, target, stream.headers, stream.credentials)
            pair = PairConnection(asked.channel, decoder, post)
            pair.take(rest)
            yield PairLink(pair, pair=pair)
            asked.channel.is_spent = True  # a stream has no end of its own
    finally:
        stream.pool.close()


async def _wait_endpoint(asked: PostedRequest, decoder: EventDecoder) -> tuple[str, Sequence[Event | PeerError]]:
    """The URL of the endpoint event, and the events after it."""
    with trio.move_on_after(ENDPOINT_TIME) as scope:
        asked.hold = partial(held, scope)
        head = await asked.head()
        if head.status != 200:
            raise HttpRefused(head.status, "not an event stream")
        if head.media_type != b"text/event-stream":
            raise BadAnswer("not an event stream")
        while (piece := await asked.channel.piece()) is not None:
            items = decoder.feed(piece)
            for index, item in enumerate(items):
                if isinstance(item, Event) and item.event == "endpoint":
                    return item.data.decode(), items[index + 1 :]
        raise ConnectionLost("the event stream ended before the endpoint event")
    raise CannotConnect(f"no endpoint event within {ENDPOINT_TIME:g} s")


def _target(stream: HttpLink, endpoint: str) -> bytes:
    """The request target of the endpoint. Raises `BadAnswer` for another origin: messages are for this server only."""
    origin = stream.pool.origin
    base = f"{origin.scheme}://{origin.authority.decode()}{stream.target.decode()}"
    try:
        parts = urlsplit(urljoin(base, endpoint))
        there = Origin.of(parts)
    except (CannotConnect, ValueError) as error:
        raise BadAnswer(f"invalid URL in the endpoint event: {error}") from None
    if there != Origin.of(base):
        raise BadAnswer(f"the URL in the endpoint event has another origin: {there}")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not target.isascii() or not target.isprintable() or " " in target:
        raise BadAnswer("invalid URL in the endpoint event")
    return target.encode()
