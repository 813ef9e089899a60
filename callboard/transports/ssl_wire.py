"""Bytes to and from one peer, with TLS around the socket."""

import contextlib
import socket
import ssl

import trio

from callboard.transports.wire import MAX_HELD, READ_SIZE, BatchWriter, SocketWire


class SslWire:
    """TLS around a socket. Not Trio's: that one cannot say anything without waiting, not even a comment."""

    def __init__(
        self, connected: socket.socket, context: ssl.SSLContext, write_time: float, *, server_name: str | None = None
    ) -> None:
        """*server_name*: this is the client, and that is the name that the server's certificate must have."""
        self._wire = SocketWire(connected, write_time)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_name is None, server_hostname=server_name
        )
        self._is_open = False

    def traffic(self) -> tuple[int, int]:
        return self._wire.traffic()

    def idle(self) -> float | None:
        return self._wire.idle()

    def is_quiet(self) -> bool:
        return not self._tls.pending() and not self._incoming.pending and self._wire.is_quiet()

    async def shake_hands(self) -> None:
        """Do so now, not with the first message. Raises `ssl.SSLError`, BrokenResourceError."""
        while not self._is_open:
            try:
                self._tls.do_handshake()
                self._is_open = True
            except ssl.SSLWantReadError:
                pass
            if self._outgoing.pending:
                await self._send(self._outgoing.read())
            if not self._is_open:
                raw = await self._wire.receive()
                if not raw:
                    raise trio.BrokenResourceError("the peer disconnected during the handshake")
                self._incoming.write(raw)

    async def receive(self, size: int = READ_SIZE) -> bytes:
        while True:
            try:
                data = self._read()
            except ssl.SSLWantReadError:
                data = None
            except ssl.SSLError as error:
                self._push(self._outgoing.read())  # what TLS has to say about it
                raise trio.BrokenResourceError(str(error)) from None
            if self._outgoing.pending:  # a handshake, or new keys
                await self._send(self._outgoing.read())
            if data is not None:
                return data
            raw = await self._wire.receive(size)
            if not raw:
                return b""  # without a good-bye: HTTP knows by itself where a request ends
            self._incoming.write(raw)

    def fileno(self) -> int:
        return self._wire.fileno()

    def receive_nowait(self) -> bytes | None:
        """As a socket's; all that there is, for what TLS has read already no system call tells."""
        pieces: list[bytes] = []
        while True:
            try:
                piece = self._read()
                if not piece:
                    return b"".join(pieces)
                pieces.append(piece)
            except ssl.SSLWantReadError:
                raw = self._wire.receive_nowait()
                if not raw:
                    return b"".join(pieces) if pieces else raw
                self._incoming.write(raw)
            except ssl.SSLError as error:
                raise trio.BrokenResourceError(str(error)) from None

    def write(self, data: bytes) -> bool:
        return self._wire.write(self._sealed(data))

    async def finish(self) -> None:
        await self._wire.finish()

    def _read(self) -> bytes:
        if not self._is_open:
            self._tls.do_handshake()
            self._is_open = True
        return self._tls.read(READ_SIZE)

    async def send(self, data: bytes) -> None:
        await self._send(self._sealed(data))

    def send_soon(self, data: bytes) -> bool:
        if not self._is_open or len(data) > MAX_HELD // 2 or not self._wire.is_ready:
            return False
        try:
            return self._wire.send_soon(self._sealed(data))
        except trio.BrokenResourceError:
            return False  # which `send` says, too

    @property
    def write_batch(self) -> BatchWriter | None:
        return self._wire.write_batch

    @write_batch.setter
    def write_batch(self, batch: BatchWriter) -> None:
        self._wire.write_batch = batch

    async def _send(self, sealed: bytes) -> None:
        """Once sealed it must go out, or all that is sealed after it cannot be opened."""
        is_sent = False
        try:
            await self._wire.send(sealed)
            is_sent = True
        finally:
            if not is_sent:
                self.close()

    def send_nowait(self, data: bytes) -> bool:
        if not self._is_open or not self._wire.is_free:
            return False
        try:
            return self._push(self._sealed(data))
        except trio.BrokenResourceError:
            return False

    def _push(self, sealed: bytes) -> bool:
        try:
            if self._wire.is_free:
                self._wire.push(sealed)
        except trio.BrokenResourceError:
            return False
        return True

    def _sealed(self, data: bytes) -> bytes:
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            raise trio.BrokenResourceError(str(error)) from None
        return self._outgoing.read()

    def stop_probing(self) -> None:
        self._wire.stop_probing()

    def say_if_slow(self, data: bytes) -> None:
        self._wire.is_sealed, self._wire.last_word = True, lambda: self._sealed(data)

    async def linger(self) -> None:
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        if self._outgoing.pending:
            await self._send(self._outgoing.read())
        await self._wire.linger()

    def close(self) -> None:
        """Without the close_notify of TLS: the peer may be gone."""
        self._wire.close()
