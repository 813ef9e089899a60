"""A wire around another one, for a lane that listens in on a client, or reads in its place."""

import attrs

from callboard.transports.wire import READ_SIZE, Wire


@attrs.define(eq=False)
class WireAround(Wire):
    """Hands everything on. What is done otherwise, a subclass says."""

    wire: Wire

    async def receive(self, size: int = READ_SIZE) -> bytes:
        return await self.wire.receive(size)

    async def send(self, data: bytes) -> None:
        await self.wire.send(data)

    def send_soon(self, data: bytes) -> bool:
        return self.wire.send_soon(data)

    def send_nowait(self, data: bytes) -> bool:
        return self.wire.send_nowait(data)

    def is_quiet(self) -> bool:
        return self.wire.is_quiet()

    def stop_probing(self) -> None:
        self.wire.stop_probing()

    def say_if_slow(self, data: bytes) -> None:
        self.wire.say_if_slow(data)

    async def linger(self) -> None:
        await self.wire.linger()

    def close(self) -> None:
        self.wire.close()
