"""A WebSocket that comes back to another worker than the one that has its session: its bytes go there, both ways."""

from typing import Final

import attrs
import trio

from callboard.codecs.caller import Caller
from callboard.codecs.http.head import Head
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.status import RETRY_AFTER
from callboard.codecs.http.writer import write_answer
from callboard.errors import CannotConnect
from callboard.supervisor import Fact
from callboard.supervisor.groups import own_nursery
from callboard.transports.server.http.homes import not_found
from callboard.transports.wire import Wire
from callboard.workers.link import OPENED_WITHIN, HomeLink
from callboard.workers.relay import write_upgrade

_ENDED: Final = write_answer(503, RETRY_AFTER, b"", closes=True)


LAST_WORDS: Final = 0.5
"""Seconds in which the worker that has the session may still close it, when this one leaves: both may leave at once,
and then the client shall hear that its session is over."""


@attrs.define(eq=False)
class Tunnel:
    """One such connection. The worker that has the session reads and writes it; here nothing of it is looked at."""

    wire: Wire
    far: Wire
    opening: bytes
    _is_answered: bool = attrs.field(default=False, init=False)
    _leaving: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def run(self) -> None:
        far = self.far
        try:
            await far.send(self.opening)
            async with own_nursery() as nursery:
                nursery.start_soon(self._copy, self.wire, far, nursery.cancel_scope)
                nursery.start_soon(self._copy, far, self.wire, nursery.cancel_scope)
                nursery.start_soon(self._leave, nursery.cancel_scope)
            if not self._is_answered:  # it ended in that moment
                self.wire.send_nowait(_ENDED)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.wire.send_nowait(_ENDED)
        finally:
            far.close()

    async def _copy(self, source: Wire, target: Wire, whole: trio.CancelScope) -> None:
        """Copy to the end of either side: neither goes on without the other."""
        try:
            while data := await source.receive():
                if not target.send_soon(data):
                    await target.send(data)
                self._is_answered |= target is self.wire
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            whole.cancel()

    def leave(self) -> None:
        """This worker ends: the client comes back, and reaches another one."""
        self._leaving.set()

    async def _leave(self, whole: trio.CancelScope) -> None:
        await self._leaving.wait()
        await trio.sleep(LAST_WORDS)
        whole.cancel()

    def facts(self) -> dict[str, Fact]:
        return {"state": "tunnel"}


async def open_tunnel(link: HomeLink, head: Head, rest: bytes, wire: Wire, caller: Caller, peer: str) -> Tunnel:
    """Raises `HttpRefusal`: 404 if that worker is gone, 503 if it does not answer."""
    try:
        with trio.fail_after(OPENED_WITHIN):
            far = await link.dial(link.origin, link.tls)
    except CannotConnect:
        raise not_found() from None
    except trio.TooSlowError:
        raise HttpRefusal(503, "the worker that has this session does not answer", headers=RETRY_AFTER) from None
    wire.stop_probing()
    return Tunnel(wire, far, write_upgrade(head, caller, peer) + rest)
