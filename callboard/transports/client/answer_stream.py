"""The stream of an answer over HTTP, as server-sent events: read over as many connections as it takes."""

from typing import Final

import attrs
import trio

from callboard.actors.client.link import Hear, OutgoingRequest
from callboard.codecs.envelope import ErrorResponse, ResultResponse, decode, is_batch, split_batch
from callboard.codecs.http.response_parser import AnswerHead
from callboard.codecs.lines import MAX_ANSWER
from callboard.codecs.sse import Event, EventDecoder
from callboard.errors import BadAnswer, ConnectionLost, PeerError
from callboard.transports.client.pool import Channel

RETRY: Final = 1.0
"""Seconds before a stream that ended is resumed, unless the server says otherwise."""

LONGEST_PAUSE: Final = 30.0
"""Longest time between two attempts to open a stream that brings nothing, unless the server says otherwise."""

_PASSING: Final = frozenset({409, 429, 502, 503, 504})
"""Answers to a client that comes back for a stream too soon: the server restarts, or has not missed the client yet."""


@attrs.define(eq=False)
class AnswerStream:
    """State of reading one stream, over as many connections as it takes."""

    outgoing: OutgoingRequest | None
    hear: Hear
    last_event_id: str = attrs.field(default="", init=False)
    retry: float = attrs.field(default=RETRY, init=False)
    """Seconds before it is resumed: the server may have said how many."""

    async def read(self, channel: Channel) -> ResultResponse | ErrorResponse | None:
        """Read to the answer, or to the end. Raises `ConnectionLost` if it is cut off, `BadAnswer`."""
        decoder = EventDecoder(MAX_ANSWER)  # what was cut off is no part of what follows
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

    def pause(self, fruitless: int) -> float:
        """Seconds before it is resumed: as many as the server wants, and more each time that this brings nothing."""
        return max(self.retry, min(RETRY * 2 ** (fruitless - 2), LONGEST_PAUSE) if fruitless > 1 else 0.0)

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


def check_passing(head: AnswerHead) -> None:
    """Raises `ConnectionLost` for what may be otherwise in a moment."""
    if head.status in _PASSING:
        raise ConnectionLost(f"HTTP {head.status}")
