"""The socket between a parent and a worker: messages both ways, and news that are gathered while they wait."""

import socket
from collections.abc import AsyncGenerator, Callable, Iterable
from itertools import count
from typing import Final, Generic, TypeVar, get_args

import msgspec
import trio

from callboard.supervisor import get_logger
from callboard.workers.messages import (
    ActionWanted,
    AllSessions,
    AreYouThere,
    Keep,
    Leave,
    Message,
    MessageLines,
    PeerWorkers,
    Show,
    Shown,
    StillThere,
    Take,
    Told,
    write_message,
)

T = TypeVar("T")

MAX_KIND: Final = 40
"""Characters of an unknown kind that are logged."""

READ: Final = 65_536

MAX_WAITING: Final = 1024
"""Messages that may wait to be read by the other end. More means that it hangs: then questions are refused, and what is
to be seen of a worker is not said. All others are bounded by themselves, and none is lost."""

MAX_NOTED: Final = 16 * 1024 * 1024
"""Bytes of what is noted of sessions and waits to be read. With more, the notes are dropped, and all sessions are said
anew when the other end reads again."""

MAX_TOLD: Final = 10_000
"""Resources whose changes may wait. With more, everything is said to have changed."""


log = get_logger("callboard.workers")


class _AnyMessage(msgspec.Struct):
    kind: str


_kinds: Final = msgspec.json.Decoder(_AnyMessage)

_IN_PLACE: Final = frozenset((PeerWorkers, Leave))
"""Of these the latest counts, and it may come earlier than it was said."""

_AT_THE_END: Final = frozenset((AreYouThere, StillThere))
"""Of these the latest counts, and it must not come before what was said earlier."""

_REFUSED: Final = frozenset((Take, Show, ActionWanted, Shown))
"""Those that are not said while too many wait."""


def _no_sessions() -> Iterable[Keep]:
    """Only a worker has sessions."""
    return ()


class Control(Generic[T]):
    """One end of it. `say` and `tell` never wait; `write` writes what they leave, `async for` gives what comes."""

    def __init__(
        self,
        end: socket.socket,
        decoder: "msgspec.json.Decoder[T]",
        lines: MessageLines | None = None,
        sessions: Callable[[], Iterable[Keep]] = _no_sessions,
    ) -> None:
        """*sessions*: all that could be noted, if the notes were dropped."""
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(end))
        self._decoder = decoder
        self._lines = lines or MessageLines()
        self._sessions = sessions
        self._waiting: dict[object, bytes] = {}  # by kind if only the latest counts, else by number
        self._numbers = count()
        self._notes: dict[str, list[bytes]] = {}
        self._noted = 0
        self._is_all_due = False  # notes were dropped
        self._lists: dict[str, None] = {}
        self._resources: dict[str, None] = {}
        self._everything = False
        self._filled = trio.Event()
        self._kinds = {kind.__struct_config__.tag for kind in get_args(decoder.type)}

    def say(self, message: Message) -> bool:
        """Have a message written. False if it is one that may be refused, and too many wait."""
        kind = type(message)
        if kind in _REFUSED and len(self._waiting) >= MAX_WAITING:
            return False
        if kind in _AT_THE_END:
            self._waiting.pop(kind, None)
        is_latest = kind in _IN_PLACE or kind in _AT_THE_END
        self._waiting[kind if is_latest else next(self._numbers)] = write_message(message)
        self._filled.set()
        return True

    def note(self, key: str, message: Message, *, is_all: bool) -> None:
        """As `say`, of a session. None is lost; if it *is_all* there is to say of it, what waits is replaced."""
        if is_all:
            self._unnote(key)
        line = write_message(message)
        self._notes.setdefault(key, []).append(line)
        self._noted += len(line)
        if self._noted > MAX_NOTED:
            self._notes, self._noted, self._is_all_due = {}, 0, True
        self._filled.set()

    def _unnote(self, key: str) -> list[bytes]:
        lines = self._notes.pop(key, [])
        self._noted -= sum(map(len, lines))
        return lines

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
            if self._is_all_due:
                await self._say_all()
            while self._notes:  # before a question about the same session
                for line in self._unnote(next(iter(self._notes))):
                    await self._stream.send_all(line)
            if self._lists or self._resources or self._everything:
                told = Told(list(self._lists), list(self._resources), self._everything)
                self._lists, self._resources, self._everything = {}, {}, False
                self.say(told)
            while self._waiting:
                await self._stream.send_all(self._waiting.pop(next(iter(self._waiting))))

    async def _say_all(self) -> None:
        """Say all sessions anew: those that are not among them have ended."""
        self._is_all_due = False
        await self._stream.send_all(write_message(AllSessions(is_over=False)))
        for keep in self._sessions():
            self._unnote(keep.key)  # which is older
            await self._stream.send_all(write_message(keep))
        await self._stream.send_all(write_message(AllSessions(is_over=True)))

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
