"""`--metrics ADDRESS`: the metrics of a run for Prometheus, while it lasts."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from callboard.bench.live_metrics import LiveRun
from callboard.codecs.http.access import EVERYONE, Access
from callboard.codecs.http.head import Head
from callboard.observe.metrics import render
from callboard.serve.admin import admin_edge
from callboard.serve.metrics_answer import answer_metrics
from callboard.supervisor import open_tree
from callboard.transports.bind import BindAddress, listen
from callboard.transports.server.http.response import Response

FRESH: Final = 0.5
"""Seconds for which metrics that were made for one are given to others, too: the load pays for each time."""


@attrs.define(eq=False)
class MetricsRoom:
    """Answers `/metrics`, and whether the load is being made."""

    run: LiveRun
    _making: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _made: dict[bytes, tuple[float, Sequence[bytes]]] = attrs.field(factory=dict, init=False)
    """By form: when, and what."""

    def is_ready(self) -> bool:
        return self.run.phase == "measuring"

    def methods(self, head: Head) -> tuple[str, ...]:
        return ("GET", "HEAD") if head.path == b"/metrics" else ()

    async def serve(self, head: Head, body: bytes, response: Response) -> None:
        await answer_metrics(head, response, self.make)

    async def why(self, head: Head) -> str:
        await trio.lowlevel.checkpoint()
        return f"{self.run.phase}\n"

    async def make(self, form: bytes) -> Sequence[bytes]:
        """The pieces of an answer. They are at most `FRESH` seconds old."""
        async with self._making:
            if form not in self._made or self._made[form][0] + FRESH <= trio.current_time():
                pieces = await render(await self.run.families(), form)
                self._made[form] = trio.current_time(), pieces
            return self._made[form][1]


@asynccontextmanager
async def serving_metrics(place: BindAddress, run: LiveRun) -> AsyncIterator[str]:
    """Serve the metrics of *run* at *place* until the block ends. Gives the URL. Raises `CannotServe`."""
    room = MetricsRoom(run)
    async with listen(place) as bound:
        at = bound.place
        access = EVERYONE if at.path is not None else Access.of(at.host, at.port)
        async with open_tree(admin_edge(room, access, bound.sockets, room)):
            yield at.url("http").removesuffix("/mcp") + "/metrics"
