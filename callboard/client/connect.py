"""How a client meets its server: by which way, in which era. What was found is remembered for the next time."""

from collections.abc import Callable, Hashable
from contextlib import AsyncExitStack
from typing import Final

import attrs

from callboard.actors.client.conversation import Conversation
from callboard.actors.client.link import Link
from callboard.actors.client.negotiate import Agreed, agree
from callboard.client.routes import TransportRoute, TransportRoutes
from callboard.codecs.revisions import LEGACY, Revision
from callboard.errors import (
    BadAnswer,
    CallboardError,
    CannotConnect,
    ConnectionLost,
    HttpRefused,
    NotAuthorized,
    RequestFailed,
)
from callboard.transports.client.pool import Origin

MAX_KNOWN: Final = 256
"""Maximum number of servers with a remembered era."""

_OTHER_WAY: Final = frozenset({400, 404, 405})
"""How a server refuses a POST of Streamable HTTP if it only knows HTTP+SSE."""


@attrs.frozen
class ServerFound:
    """How a server was reached, or is to be tried next, and whether in the legacy era."""

    way: str
    is_legacy: bool
    has_worked: bool = True
    """False if it is only what to try next, after a server that ended in the handshake."""


@attrs.define(eq=False)
class Memory:
    """Revisions of servers that were connected before: the latest *most* servers of this process."""

    most: int = MAX_KNOWN
    _found: dict[Hashable, ServerFound] = attrs.field(factory=dict, init=False)

    def recall(self, key: Hashable) -> ServerFound | None:
        return self._found.get(key)

    def keep(self, key: Hashable, found: ServerFound) -> None:
        self.forget(key)
        if key is None:
            return
        if len(self._found) >= self.most:
            del self._found[next(iter(self._found))]
        self._found[key] = found

    def forget(self, key: Hashable) -> None:
        self._found.pop(key, None)

    def __len__(self) -> int:
        return len(self._found)


MEMORY: Final = Memory()
"""This process's."""


@attrs.define(eq=False)
class Connector:
    """Tries the ways to a target, one after the other. *stack* holds the one that is taken."""

    ways: TransportRoutes
    begin: Callable[[Link], Conversation]
    """Called with each link that is tried."""
    stack: AsyncExitStack
    memory: Memory = MEMORY

    async def meet(self, wanted: Revision | None) -> tuple[Conversation, Agreed]:
        """Find the server, and agree with it on a revision. Raises `CannotConnect` with the reason, in one line."""
        found = self.memory.recall(self.ways.key)
        try:
            way = next((way for way in self.ways.ways if found is not None and way.name == found.way), None)
            if found is not None and way is not None and wanted is None:
                try:
                    return await self._meet(way, None, is_legacy=found.is_legacy or way.is_legacy)
                except NotAuthorized:
                    raise
                except (RequestFailed, CannotConnect) as error:
                    if way.name == "stdio" and isinstance(error, ConnectionLost):
                        self._expect_other(found)
                        raise  # its process has ended, and is started once for each attempt
                    self.memory.forget(self.ways.key)  # it is not what it was
            return await self._try_all(wanted)
        except NotAuthorized:
            raise  # there is one, and it does not want us
        except RequestFailed as error:
            failure = CannotConnect(f"cannot connect: {error}{self._hint(error)}")
            failure.brief = f"cannot connect: {error.brief or error}"
            raise failure from None

    def _hint(self, error: RequestFailed) -> str:
        origin = self.ways.key[0] if isinstance(self.ways.key, tuple) else None
        return origin.tls_hint if isinstance(error, ConnectionLost) and isinstance(origin, Origin) else ""

    async def _try_all(self, wanted: Revision | None) -> tuple[Conversation, Agreed]:
        *others, last = self.ways.ways
        first: CallboardError | None = None
        for way in others:
            try:
                return await self._try(way, wanted, is_legacy=False)
            except CallboardError as error:
                if not _may_be_another(way, error):
                    raise
                first = error
        try:
            return await self._try(last, wanted, is_legacy=False)
        except (HttpRefused, BadAnswer, ConnectionLost):
            if first is None:
                raise
            raise first from None  # what the likelier way said means more

    async def _try(
        self, way: TransportRoute, wanted: Revision | None, *, is_legacy: bool
    ) -> tuple[Conversation, Agreed]:
        is_legacy = is_legacy or (way.is_legacy and wanted is None)
        try:
            return await self._meet(way, wanted, is_legacy=is_legacy)
        except ConnectionLost as lost:
            if is_legacy or wanted is not None or way.name != "stdio" or lost.is_unread:
                raise  # a server that never read the method did not die of it
            first = lost
        try:  # some old ones die of a method that they do not know: they get the handshake that they do
            return await self._meet(way, None, is_legacy=True)
        except CallboardError:
            self.memory.keep(self.ways.key, ServerFound(way.name, is_legacy=False, has_worked=False))
            raise first from None

    def _expect_other(self, found: ServerFound) -> None:
        """A server that has never worked, and ended in the handshake of one era, is tried in the other one next."""
        if not found.has_worked:
            self.memory.keep(self.ways.key, ServerFound(found.way, not found.is_legacy, has_worked=False))

    async def _meet(
        self, way: TransportRoute, wanted: Revision | None, *, is_legacy: bool
    ) -> tuple[Conversation, Agreed]:
        async with AsyncExitStack() as mine:
            conversation = self.begin(await mine.enter_async_context(way.open()))
            try:
                agreed = await agree(conversation, max(LEGACY) if is_legacy else wanted)
            except ConnectionLost as lost:
                lost.is_unread = conversation.link.is_unread
                raise
            self.stack.push_async_exit(mine.pop_all())
        self.memory.keep(self.ways.key, ServerFound(way.name, agreed.revision.dialect.has_sessions))
        return conversation, agreed


def _may_be_another(way: TransportRoute, error: CallboardError) -> bool:
    """Whether what a server said leaves it open that it would be reached in another way."""
    if isinstance(error, HttpRefused):
        return way.is_legacy or error.status in _OTHER_WAY
    return way.is_legacy and isinstance(error, (BadAnswer, ConnectionLost))
