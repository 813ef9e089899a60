"""The socket between a parent and a worker: messages both ways, and news that are gathered while they wait."""

import socket
from collections import deque
from collections.abc import AsyncGenerator
from typing import Final, Generic, TypeVar, get_args

import msgspec
import trio

from callboard.actors.changes import Change, ListChanged
from callboard.supervisor import get_logger
from callboard.workers.messages import Message, MessageLines, Told, write_message

T = TypeVar("T")

MAX_KIND: Final = 40
"""Characters of an unknown kind that are logged."""

READ: Final = 65_536

MAX_WAITING: Final = 1024
"""Messages that may wait to be read by the other end. More means that it hangs: then the oldest go."""

MAX_TOLD: Final = 10_000
"""Resources whose changes may wait. With more, everything is said to have changed."""


log = get_logger("callboard.workers")


class _AnyMessage(msgspec.Struct):
    kind: str


_kinds: Final = msgspec.json.Decoder(_AnyMessage)


class Control(Generic[T]):
    """One end of it. `say` and `tell` never wait; `write` writes what they leave, `async for` gives what comes."""

    def __init__(
        self, end: socket.socket, decoder: "msgspec.json.Decoder[T]", lines: MessageLines | None = None
    ) -> None:
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(end))
        self._decoder = decoder
        self._lines = lines or MessageLines()
        self._waiting: deque[bytes] = deque(maxlen=MAX_WAITING)
        self._notes: dict[str, list[bytes]] = {}
        self._lists: dict[str, None] = {}
        self._resources: dict[str, None] = {}
        self._everything = False
        self._filled = trio.Event()
        self._kinds = {kind.__struct_config__.tag for kind in get_args(decoder.type)}

    def say(self, message: Message) -> None:
        self._waiting.append(write_message(message))
        self._filled.set()

    def note(self, key: str, message: Message, *, is_all: bool) -> None:
        """As `say`, of a session. None is lost; if it *is_all* there is to say of it, what waits is replaced."""
        if is_all or key not in self._notes:
            self._notes[key] = []
        self._notes[key].append(write_message(message))
        self._filled.set()

    def tell(self, told: Told) -> None:
        """Tell of changes; those of one thing that wait are one."""
        self._lists.update(dict.fromkeys(told.lists))
        self._resources.update(dict.fromkeys(told.resources))
        self._everything |= told.everything
        if len(self._resources) > MAX_TOLD or self._everything:
            self._everything = True
            self._lists, self._resources = {}, {}
        self._filled.set()

    async def write(self) -> None:
        """Write what is said, until the other end is gone. Raises as a stream does."""
        while True:
            await self._filled.wait()
            self._filled = trio.Event()
            while self._notes:  # before a question about the same session
                for line in self._notes.pop(next(iter(self._notes))):
                    await self._stream.send_all(line)
            if self._lists or self._resources or self._everything:
                told = Told(list(self._lists), list(self._resources), self._everything)
                self._lists, self._resources, self._everything = {}, {}, False
                self._waiting.append(write_message(told))
            while self._waiting:
                await self._stream.send_all(self._waiting.popleft())

    async def __aiter__(self) -> AsyncGenerator[T, None]:
        """What the other end says, to its end. Raises ValueError for what is no message."""
        while True:
            for line in self._lines.feed(b""):
                if (message := self._read(line)) is not None:
                    yield message
            try:
                data = await self._stream.receive_some(READ)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
            if not data:
                return
            for line in self._lines.feed(data):
                if (message := self._read(line)) is not None:
                    yield message

    def _read(self, line: bytes) -> T | None:
        """None for a kind of message that is not known here: workers of the next release may say more. Raises
        ValueError."""
        try:
            return self._decoder.decode(line)
        except msgspec.ValidationError:
            kind = _kinds.decode(line).kind
            if kind in self._kinds:
                raise
            log.info("unknown_message", kind=kind[:MAX_KIND])
            return None

    async def close(self) -> None:
        await trio.aclose_forcefully(self._stream)


def told_of(change: Change) -> Told:
    return Told(lists=[change.name]) if isinstance(change, ListChanged) else Told(resources=[change.uri])
