"""A connection made of memory, with every fault that a network has: cuts, silence, and readers that do not read."""

import attrs
import trio

from callboard.transports.wire import LAST_WORD_TIME


@attrs.define(eq=False)
class Pipe:
    """Bytes in one direction. `left` is how many of them still get through before the connection breaks."""

    left: int | None = None
    is_lost: bool = False  # what is put in vanishes, and nobody hears of it
    is_stalled: bool = False  # nobody reads, and the buffers are full
    stalls_at: int | None = None  # so they are after so many bytes
    is_refusing: bool = False  # nothing can be put in, and nobody but who tries hears of it
    is_broken: bool = attrs.field(default=False, init=False)
    is_ended: bool = attrs.field(default=False, init=False)
    carried: int = attrs.field(default=0, init=False)
    _data: bytearray = attrs.field(factory=bytearray, init=False)
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)

    def put(self, data: bytes) -> None:
        """Raises BrokenResourceError."""
        if self.is_broken or self.is_ended or self.is_refusing:
            raise trio.BrokenResourceError("cut")
        if self.is_lost:
            return
        if self.left is not None:
            data, self.left = data[: self.left], self.left - len(data)
        self.carried += len(data)
        self._data += data
        self._change()
        if self.left is not None and self.left <= 0:
            self.left = 0
            self.cut()

    @property
    def has_data(self) -> bool:
        return bool(self._data)

    async def get(self) -> bytes:
        """What is there; nothing at the end. Raises BrokenResourceError."""
        await trio.lowlevel.checkpoint()
        while not self._data:
            if self.is_ended:
                return b""
            if self.is_broken:
                raise trio.BrokenResourceError("cut")
            await self._changed.wait()
        data = bytes(self._data)
        self._data.clear()
        return data

    async def wait_room(self) -> None:
        while self.is_full and not self.is_broken:
            await self._changed.wait()

    @property
    def is_full(self) -> bool:
        return self.is_stalled or (self.stalls_at is not None and self.carried >= self.stalls_at)

    def flow(self) -> None:
        """The reader reads again."""
        self.is_stalled, self.stalls_at = False, None
        self._change()

    def end(self) -> None:
        self.is_ended = True
        self._change()

    def cut(self) -> None:
        self.is_broken = True
        self._change()

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


@attrs.define(eq=False)
class MemoryWire:
    """One end of two pipes, as the edges know a wire."""

    incoming: Pipe
    outgoing: Pipe
    write_time: float = 10.0
    is_closed: bool = attrs.field(default=False, init=False)
    last_word: bytes = attrs.field(default=b"", init=False)
    _lock: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def receive(self, size: int = 0) -> bytes:
        if self.is_closed:
            raise trio.ClosedResourceError
        data = await self.incoming.get()
        if self.is_closed:
            raise trio.ClosedResourceError
        if self.outgoing.is_broken and not data:
            raise trio.BrokenResourceError("cut")
        return data

    async def send(self, data: bytes) -> None:
        is_whole = False
        with trio.move_on_after(self.write_time):
            async with self._lock:
                await self.outgoing.wait_room()
                self._put(data)
                is_whole = True
        if not is_whole:
            await self._part()
            raise trio.BrokenResourceError("timed out while writing to the peer")

    async def _part(self) -> None:
        if self.last_word and not self.is_closed:
            with trio.move_on_after(LAST_WORD_TIME):
                await self.outgoing.wait_room()
                self._put(self.last_word)
        self.close()

    def say_if_slow(self, data: bytes) -> None:
        self.last_word = data

    def send_nowait(self, data: bytes) -> bool:
        if self._lock.locked() or self.is_closed or self.outgoing.is_broken or self.outgoing.is_full:
            return False
        self._put(data)
        return True

    def send_soon(self, data: bytes) -> bool:
        return False

    def is_quiet(self) -> bool:
        return not (self.is_closed or self.incoming.is_broken or self.incoming.has_data)

    def stop_probing(self) -> None:
        pass

    async def linger(self) -> None:
        self.outgoing.end()
        while await self.receive():
            pass

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.outgoing.end()
            self.incoming.cut()

    def _put(self, data: bytes) -> None:
        if self.is_closed:
            raise trio.BrokenResourceError("closed")
        try:
            self.outgoing.put(data)
        except trio.BrokenResourceError:
            if not self.outgoing.is_refusing:
                self.incoming.cut()  # a connection breaks in both directions
            raise


def wire_pair() -> tuple[MemoryWire, MemoryWire]:
    """Two ends that are connected to each other."""
    there, back = Pipe(), Pipe()
    return MemoryWire(back, there), MemoryWire(there, back)
