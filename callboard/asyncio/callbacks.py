"""A client's own functions, which are asyncio's: the client on Trio calls them by these."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import attrs

from callboard.event_loops.crossing import call_asyncio

MAX_WAITING: Final = 1000
"""Log messages and lines that wait for the asyncio loop to hear them. A loop that blocks misses the newest ones; it
does not pile them up."""


def answered_on(loop: asyncio.AbstractEventLoop, function: Callable[..., Any]) -> Callable[..., Any]:
    """*function*, plain or async, run in *loop*: its caller on Trio waits for what it returns."""

    async def answer(*args: Any) -> Any:
        async def there() -> Any:
            value = function(*args)
            return await value if inspect.isawaitable(value) else value

        return await call_asyncio(loop, there)

    return answer


@attrs.define(eq=False)
class Telling:
    """Calls a plain function in *loop*, and does not wait for it."""

    loop: asyncio.AbstractEventLoop
    function: Callable[..., Any]
    _waiting: int = attrs.field(default=0, init=False)

    def __call__(self, *args: Any) -> None:
        if self._waiting >= MAX_WAITING:
            return
        self._waiting += 1  # each side has a turn of its own, and a wrong count would be small and short
        try:
            self.loop.call_soon_threadsafe(self._tell, *args)
        except RuntimeError:  # the loop is closed
            self._waiting -= 1

    def _tell(self, *args: Any) -> None:
        self._waiting -= 1
        self.function(*args)


def crossed(loop: asyncio.AbstractEventLoop, options: dict[str, Any]) -> dict[str, Any]:
    """The *options* of `connect`, with functions that run in *loop*."""
    found = dict(options)
    for name in ("sampling", "elicitation", "roots"):
        if callable(found.get(name)):
            found[name] = answered_on(loop, found[name])
    for name in ("on_log", "on_stderr"):
        if found.get(name) is not None:
            found[name] = Telling(loop, found[name])
    extensions = found.get("extensions")
    if extensions is not None and not isinstance(extensions, Mapping):
        found["extensions"] = [_extension_on(loop, one) for one in extensions]
    return found


def _extension_on(loop: asyncio.AbstractEventLoop, one: Any) -> Any:
    """An extension with functions that run in *loop*. What is none is refused by the client."""
    from callboard.server.extension import Extension  # which most clients do without

    return one.elsewhere(partial(Telling, loop), partial(answered_on, loop)) if isinstance(one, Extension) else one
