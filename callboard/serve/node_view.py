"""What is seen of a node: the views of all its workers as one."""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import msgspec
import trio

from callboard._version import __version__
from callboard.observe.rows import Row
from callboard.observe.view import merge
from callboard.workers.process import WorkerProcess


@attrs.define(eq=False)
class NodeView:
    """Asks every worker that serves, and adds up what they say."""

    workers: Callable[[], Sequence[WorkerProcess]]
    is_ready: Callable[[], bool]
    listening: Sequence[dict[str, str]] = attrs.field(factory=list, init=False)
    _began: float = attrs.field(factory=time.time, init=False)

    async def view(self, *, with_history: bool = False) -> Row:
        found: dict[str, Any] = {}

        async def ask(worker: WorkerProcess) -> None:
            said = await worker.show(with_history=with_history)
            if said is not None:
                found[worker.label] = msgspec.json.decode(said)

        async with trio.open_nursery() as nursery:
            for worker in self.workers():
                nursery.start_soon(ask, worker)
        views = dict(sorted(found.items()))
        about: Row = {"name": "callboard", "version": __version__}
        for view in views.values():
            about = view["server"]
        return merge(
            views,
            {
                **about,
                "state": "ready" if self.is_ready() else "not ready",
                "pid": os.getpid(),
                "uptime": round(time.time() - self._began, 1),
                "listening": list(self.listening),
                "workers": [
                    {"name": worker.label, **worker.facts(), "answers": worker.label in views}
                    for worker in self.workers()
                ],
            },
        )

    async def metrics(self) -> bytes:
        """For Prometheus."""
        return b""
