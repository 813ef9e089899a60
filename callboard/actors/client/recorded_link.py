"""A link whose messages are recorded, in both directions."""

from collections.abc import Sequence

import attrs
import trio

from callboard.actors.client.link import Hear, Link, OutgoingRequest
from callboard.actors.tape import Track
from callboard.codecs.envelope import ErrorResponse, Notification, Request, ResultResponse, encode
from callboard.codecs.revisions import Revision


@attrs.define(eq=False)
class RecordedLink:
    """Hands all that passes *link* to *track*. Everything else is the link's own."""

    link: Link
    track: Track

    @property
    def is_http(self) -> bool:
        return self.link.is_http

    @is_http.setter
    def is_http(self, value: bool) -> None:
        self.link.is_http = value

    @property
    def is_stale(self) -> bool:
        return self.link.is_stale

    @is_stale.setter
    def is_stale(self, value: bool) -> None:
        self.link.is_stale = value

    @property
    def ignored(self) -> int:
        return self.link.ignored

    @ignored.setter
    def ignored(self, value: int) -> None:
        self.link.ignored = value

    @property
    def lost(self) -> str:
        return self.link.lost

    @lost.setter
    def lost(self, value: str) -> None:
        self.link.lost = value

    @property
    def heard(self) -> int:
        return self.link.heard

    @property
    def process(self) -> trio.Process | None:
        return self.link.process

    @property
    def tail(self) -> Sequence[str]:
        return self.link.tail

    @property
    def is_unread(self) -> bool:
        return self.link.is_unread

    async def attend(self) -> None:
        await self.link.attend()

    async def ask(self, outgoing: OutgoingRequest, hear: Hear) -> ResultResponse | ErrorResponse | None:
        self.track.to_server(outgoing.frame)
        answer = await self.link.ask(outgoing, self._hearing(hear))
        if answer is not None:
            self.track.from_server(encode(answer))
        return answer

    async def tell(self, frame: bytes, headers: bytes = b"") -> None:
        self.track.to_server(frame)
        await self.link.tell(frame, headers)

    async def listen(self, hear: Hear) -> None:
        await self.link.listen(self._hearing(hear))

    async def wait_listening(self) -> None:
        await self.link.wait_listening()

    async def wait_dropped(self) -> bool:
        return await self.link.wait_dropped()

    def agree(self, revision: Revision) -> None:
        self.link.agree(revision)

    async def aclose(self) -> None:
        await self.link.aclose()

    def _hearing(self, hear: Hear) -> Hear:
        async def recorded(message: Request | Notification) -> None:
            self.track.from_server(encode(message))
            await hear(message)

        return recorded
