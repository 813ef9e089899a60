"""What is seen of a node: the views of all its workers as one."""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import attrs
import msgspec
import trio

from callboard._version import __version__
from callboard.cluster.directory import HEARTBEAT
from callboard.cluster.node import ClusterNode
from callboard.observe.actions import SETTLE_CALL
from callboard.observe.metrics import TEXT, Families, merged, render
from callboard.observe.rows import Row, clip
from callboard.observe.view import merge
from callboard.workers.process import WorkerProcess

FIGURES: Final = ("sessions", "connections", "in_flight", "parked", "requests", "errors", "p99_10s", "resident")
"""Figures of a node that operators of other nodes see."""

_lines: Final = msgspec.json.Decoder[list[str] | None](list[str] | None)
_families: Final = msgspec.json.Decoder[Families](Families)


@attrs.define(eq=False)
class NodeView:
    """Asks every worker that serves, and adds up what they say. Those that do not serve are listed, too."""

    workers: Callable[[], Sequence[WorkerProcess]]
    is_ready: Callable[[], bool]
    keeper: Callable[[], WorkerProcess | None] = lambda: None
    """The process that has the backends which workers share."""
    node: ClusterNode | None = attrs.field(default=None, init=False)
    """This node among the others, if there are others."""
    listening: Sequence[dict[str, str]] = attrs.field(factory=list, init=False)
    _began: float = attrs.field(factory=time.time, init=False)

    async def view(self, *, with_history: bool = False) -> Row:
        said = await self._ask("history" if with_history else "view")
        views: dict[str, Any] = {}
        for name, one in said.items():
            views[name] = msgspec.json.decode(one)
            await trio.lowlevel.checkpoint()
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
                "workers": [self._row(worker, answers=worker.label in views) for worker in self.workers()],
                **({} if self.node is None else {"nodes": self._nodes(self.node)}),
            },
        )

    def _nodes(self, node: ClusterNode) -> list[Row]:
        """This node and the others, as each has announced itself."""
        own = {"name": node.name, "host": node.host, "workers": len(self._serving()), "is_here": True, **node.figures}
        others = [
            {
                **{name: entry.figures[name] for name in FIGURES if name in entry.figures},
                "name": clip(entry.name),
                "host": clip(entry.host),
                "workers": len(entry.workers),
                "is_here": False,
                "is_leaving": entry.is_leaving,
                "version": clip(entry.build),
            }
            for entry in node.nodes()
        ]
        return [own, *sorted(others, key=lambda row: str(row["name"]))]

    async def tell_nodes(self, node: ClusterNode) -> None:
        """Have the others know some figures of this node, as long as it is one of them."""
        while True:
            view = await self.view()
            known = {**view["latest"], **view["totals"]}
            node.figures = {name: known[name] for name in FIGURES if known.get(name) is not None}
            await trio.sleep(HEARTBEAT)

    def _serving(self) -> list[WorkerProcess]:
        return [worker for worker in self.workers() if worker.is_serving]

    @staticmethod
    def _row(worker: WorkerProcess, *, answers: bool) -> Row:
        row = {"name": worker.label, **worker.facts(), "answers": answers}
        return {**row, "state": "restarting"} if worker.is_over else row

    async def metrics(self, form: bytes = TEXT) -> list[bytes]:
        """For Prometheus: what all workers count, added up."""
        said = await self._ask("metrics")
        return await render(await merged(_families.decode(one) for one in said.values()), form)

    async def act(self, action: str, subject: str) -> bool | None:
        """Do what the operator wants, in the process that it is about. None if that does not answer in time."""
        serving = self._serving()
        if action == "disconnect":  # each worker has its own clients, and counts them from one
            label, _, name = subject.partition("/")
            return await _act_in([one for one in serving if one.label == label], action, name)
        if action == "approve":  # all of them read the file that one writes
            return await _act_in(serving[:1], action, subject)
        if action in SETTLE_CALL:  # one of them has the call
            return await _act_in(serving, action, subject)
        keeper = self.keeper()
        if keeper is not None and keeper.is_serving:
            said = await keeper.act(action, subject)
            if said is not False:
                return said
        return await _act_in(serving, action, subject)  # each worker has its own connections

    async def stderr(self, server: str) -> list[str] | None:
        """The last lines of a server on its standard error, of the worker that has most; None if none knows it."""
        said = await self._ask("stderr", server)
        found = [lines for one in said.values() if (lines := _lines.decode(one)) is not None]
        return max(found, key=len, default=None)

    async def _ask(self, what: Literal["view", "history", "metrics", "stderr"], about: str = "") -> dict[str, bytes]:
        """What each worker says to that, by its name. One that says nothing in time is left out."""
        found: dict[str, bytes] = {}

        async def ask(worker: WorkerProcess) -> None:
            if (said := await (worker.show(what, about) if about else worker.show(what))) is not None:
                found[worker.label] = said

        async with trio.open_nursery() as nursery:
            for worker in self._serving():
                nursery.start_soon(ask, worker)
        return dict(sorted(found.items()))


async def _act_in(workers: Sequence[WorkerProcess], action: str, subject: str) -> bool | None:
    """Whether any of them did it; None if none did, and one does not say."""
    said: list[bool | None] = []

    async def act(worker: WorkerProcess) -> None:
        said.append(await worker.act(action, subject))

    async with trio.open_nursery() as nursery:
        for worker in workers:
            nursery.start_soon(act, worker)
    return True if True in said else None if None in said else False
