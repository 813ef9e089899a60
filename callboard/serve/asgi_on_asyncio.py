"""An ASGI application of Trio under a server on asyncio: uvicorn, or hypercorn's asyncio worker."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from callboard.asyncio.callbacks import answered_on
from callboard.event_loops.trio_thread import TrioThread
from callboard.transports.server.asgi_types import Receive, Scope, Send


@attrs.define(eq=False)
class AsgiOnAsyncio:
    """Runs *application* in a Trio thread, from the startup to the shutdown of the ASGI lifespan."""

    application: Callable[[Scope, Receive, Send], Awaitable[None]]
    _thread: TrioThread | None = attrs.field(default=None, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        elif self._thread is None:
            raise RuntimeError("the server is not running: the ASGI application got no lifespan startup event")
        else:
            await self._cross(self._thread, scope, receive, send)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A server that cannot start says so: without that, some take it that there is no lifespan, and go on.

        That it has ended is said last: hypercorn then cancels this task, which has nothing left to do.
        """
        thread, is_up, ended = TrioThread("callboard asgi"), False, None

        async def told(message: Any) -> None:
            nonlocal is_up, ended
            is_up = is_up or message["type"] == "lifespan.startup.complete"
            if message["type"] == "lifespan.shutdown.complete":
                ended = message
            else:
                await send(message)

        await thread.begin()
        self._thread = thread
        try:
            await self._cross(thread, scope, receive, told)
        except Exception as error:
            if is_up:
                raise
            await send({"type": "lifespan.startup.failed", "message": str(error)})
        finally:
            self._thread = None
            await thread.end()
        if ended is not None:
            await send(ended)

    async def _cross(self, thread: TrioThread, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        there, back = answered_on(loop, receive), answered_on(loop, send)
        await thread.call(lambda: self.application(scope, there, back))
