"""The view of one process: everything that operators see of it, as one JSON object.

version     of this format: it rises when something is taken away or means something else
at          when, in seconds since 1970
server      name, version, revisions, state, pid, uptime, addresses
totals      counts of everything that is there now, and of what was done since the start
latest      rates and latencies of the last seconds
history     ten minutes, second by second; only where it is asked for
servers     the backends of a broker, with why they are not up
clients, running, slowest, failed, tools, topics, dead_letters, tree
approvals   tools and skills of pinned servers that wait for the operator
waiting_calls  calls that wait for the operator, with their arguments
actions     what operators may do; added by the listener
"""

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import trio

from callboard.actors.server.host import Host
from callboard.observe import rows
from callboard.observe.actions import Actions
from callboard.observe.families import families_of
from callboard.observe.history import History
from callboard.observe.journal import Journal
from callboard.observe.metrics import TEXT, Families, render
from callboard.observe.rates import Rates
from callboard.observe.rows import Row
from callboard.observe.sampler import WINDOWS, Sampler, cpu_seconds, resident_bytes
from callboard.observe.turns import collected, in_turns
from callboard.server.served import Hosted

VERSION: Final = 1


@attrs.define(eq=False)
class ServerView:
    """What is seen of one server or broker in this process."""

    host: Host
    server: Hosted
    listening: Sequence[Mapping[str, str]] = ()
    """Transport and address of each listener."""
    is_ready: Callable[[], bool] | None = None
    """What balancers are told; without it, whether the server is ready."""
    journal: Journal = attrs.field(init=False)
    sampler: Sampler = attrs.field(init=False)
    _rates: Rates = attrs.field(factory=Rates, init=False)
    _began: float = attrs.field(factory=time.time, init=False)

    def __attrs_post_init__(self) -> None:
        self.journal = Journal(self.host.offer.owner_of)
        self.sampler = Sampler(self.host, self.server, self.journal)

    def begin(self) -> None:
        """From now on."""
        self.host.observer = self.journal
        self.host.root.spawn(self.sampler, name="sampler", shutdown=0)

    @property
    def history(self) -> History:
        return self.sampler.history

    async def view(self, *, with_history: bool = False) -> Row:
        """As it is now. Made in steps, between which others run: ten thousand clients take some milliseconds."""
        host, journal = self.host, self.journal
        view: Row = {"version": VERSION, "at": round(time.time(), 3), "server": self._about()}
        tables: tuple[tuple[str, Callable[[], Iterable[Row | None]]], ...] = (
            ("servers", lambda: rows.server_rows(host, journal, self._transports(), self._rates)),
            ("running", lambda: rows.running_rows(host)),
            ("slowest", lambda: map(rows.past_row, journal.slowest)),
            ("failed", lambda: map(rows.past_row, list(journal.failed)[::-1])),
            ("tools", lambda: rows.tool_rows(host, journal)),
            ("topics", lambda: rows.topic_rows(host)),
            ("clients", lambda: rows.client_rows(host)),
        )
        for name, table in tables:
            view[name] = await in_turns(collected(table()))
        view["waiting_calls"] = Actions(host, self.server).waiting_calls()
        view["approvals"] = Actions(host, self.server).approvals()
        view["tree"] = await in_turns(rows.tree_of(host.root))
        await trio.lowlevel.checkpoint()
        view["totals"] = self._totals()  # after the tables: what waits there is counted here
        for name in ("bytes_in", "bytes_out"):  # of those that are connected now, and shown
            view["totals"][name] = sum(row.get(name) or 0 for row in view["clients"])
        await trio.lowlevel.checkpoint()
        view["latest"] = self._latest()
        view["dead_letters"] = rows.dead_letters(host.root.dead_letters)
        view["point"] = {name: ring[-1] if ring else None for name, ring in self.history.rings.items()}
        if with_history:
            view["history"] = await in_turns(self.history.told())
        return view

    async def families(self) -> Families:
        """What is counted here."""
        return await families_of(self.host, self.journal, self.sampler)

    async def metrics(self, form: bytes = TEXT) -> list[bytes]:
        """For Prometheus, in pieces."""
        return await render(await self.families(), form)

    async def act(self, action: str, subject: str) -> bool:
        """Do what the operator wants. Whether there is such a server, tool or client."""
        return await Actions(self.host, self.server).act(action, subject)

    def _about(self) -> Row:
        host = self.host
        is_ready = self.server.is_ready if self.is_ready is None else self.is_ready
        state = "draining" if host.is_draining else "ready" if is_ready() else "not ready"
        return {
            "name": rows.clip(self.server.info.name),
            "version": rows.clip(self.server.info.version),
            "revisions": sorted(one.value for one in host.offer.revisions),
            "state": state,
            "pid": os.getpid(),
            "uptime": round(time.time() - self._began, 1),
            "listening": [dict(one) for one in self.listening],
        }

    def _totals(self) -> Row:
        journal, behind = self.journal, self.server.behind()
        total = journal.total()
        return {
            **rows.counts(self.host),
            "servers": 0 if behind is None else len(behind.servers),
            "servers_up": 0 if behind is None else sum(one.is_up for one in behind.servers),
            "requests": total.count,
            "errors": journal.errors(),
            "refused": dict(journal.refused),
            "resident": resident_bytes(),
            "cpu_seconds": round(cpu_seconds(), 3),
        }

    def _latest(self) -> Row:
        history = self.history
        found: Row = {name: history.latest(name) for name in ("requests", "errors", "overhead_p99", "loop_lag", "cpu")}
        for seconds in WINDOWS:
            recent = self.sampler.recent(seconds)
            found[f"p50_{seconds}s"], found[f"p99_{seconds}s"] = recent.quantile(0.5), recent.quantile(0.99)
        return found

    def _transports(self) -> Mapping[str, str | None]:
        behind = self.server.behind()
        return {} if behind is None else {one.name: one.transport for one in behind.servers}

    async def stderr(self, server: str) -> list[str] | None:
        """The last lines of a server on its standard error; None if there is none of that name."""
        await trio.lowlevel.checkpoint()
        return rows.last_lines(self.host, server)


TABLES: Final = ("servers", "clients", "running", "slowest", "failed", "tools", "topics")

_HIGHEST: Final = frozenset({"loop_lag", "p50", "p99", "overhead_p99", "p50_10s", "p99_10s", "p50_60s", "p99_60s"})
"""Of these, the highest of all processes counts; the others are added up."""

_SUMS: Final = (
    *("calls", "errors", "calls_per_second", "errors_per_second", "in_flight", "parked", "connections"),
    *("max_connections", "max_in_flight", "processes", "resident", "cpu_seconds"),
)
"""Figures of a server or a tool that are those of all workers together."""

_SAME: Final = frozenset({"servers", "servers_up"})
"""Every worker has the same ones."""


def merge(views: Mapping[str, Row], about: Row) -> Row:
    """Several workers' views as one: rows name their worker, the tree has one branch for each."""
    some = list(views.values())
    merged: Row = {"version": VERSION, "at": round(time.time(), 3), "server": about}
    for name in ("totals", "latest", "point"):
        merged[name] = _added([one[name] for one in some])
    for table in TABLES:
        merged[table] = [{**row, "worker": worker} for worker, view in views.items() for row in view.get(table, ())]
    for table in ("servers", "tools"):
        merged[table] = _by_name(merged[table])
    for row in merged["clients"]:  # each worker counts its own from one
        row["name"] = f"{row['worker']}/{row['name']}"
    merged["approvals"] = next((one["approvals"] for one in some if "approvals" in one), [])  # all have the same
    merged["waiting_calls"] = [row for one in some for row in one.get("waiting_calls", ())]
    merged["waiting_calls"].sort(key=lambda row: -row["age"])
    merged["slowest"].sort(key=lambda row: -row["seconds"])
    merged["failed"].sort(key=lambda row: row["ago"])
    merged["running"].sort(key=lambda row: -row["age"])
    merged["clients"].sort(key=lambda row: math.inf if row.get("idle") is None else row["idle"])
    merged["topics"].sort(key=lambda row: -row["listeners"])
    for table in TABLES:  # as many as one process would show
        del merged[table][rows.MOST :]
    letters = [one["dead_letters"] for one in some]
    merged["dead_letters"] = {
        "total": sum(one["total"] for one in letters),
        "counts": [row for one in letters for row in one["counts"]],
        "recent": sorted((row for one in letters for row in one["recent"]), key=lambda row: row["ago"])[:100],
    }
    merged["tree"] = {
        "name": "node",
        "kind": "Parent",
        "state": "running",
        "age": about.get("uptime", 0.0),
        "children": [{**view["tree"], "name": worker} for worker, view in views.items()],
    }
    if all("history" in one for one in some) and some:
        merged["history"] = {
            name: [_one(name, points) for points in _aligned([one["history"][name] for one in some])]
            for name in some[0]["history"]
        }
    return merged


def _by_name(some: Iterable[Row]) -> list[Row]:
    """Rows of several workers about the same thing, as one: the figures added up; the state of one that is not up."""
    found: dict[tuple[Any, Any], list[Row]] = {}
    for row in some:
        found.setdefault((row["name"], row.get("kind")), []).append(row)
    return [_joined(same) for same in found.values()]


def _joined(same: Sequence[Row]) -> Row:
    told = next((row for row in same if not row.get("is_up", True)), same[0])
    joined = {name: value for name, value in told.items() if name != "worker"}
    for name in _SUMS:
        if any(row.get(name) is not None for row in same):
            joined[name] = round(sum(row.get(name) or 0 for row in same), 3)
    for name in ("p50", "p99"):
        joined[name] = _one(name, [row[name] for row in same])
    if "idle" in joined:
        joined["idle"] = min((row["idle"] for row in same if row["idle"] is not None), default=None)
    return joined


def _added(some: Sequence[Mapping[str, Any]]) -> Row:
    names = dict.fromkeys(name for one in some for name in one)
    found: Row = {}
    for name in names:
        values = [one.get(name) for one in some]
        found[name] = (
            _added([value for value in values if isinstance(value, dict)])
            if any(isinstance(value, dict) for value in values)
            else _one(name, values)
        )
    return found


def _one(name: str, values: Iterable[Any]) -> Any:
    known = [value for value in values if value is not None]
    if not known:
        return None
    return max(known) if name in _HIGHEST or name in _SAME else sum(known)


def _aligned(lists: Sequence[Sequence[Any]]) -> Iterable[Sequence[Any]]:
    """The values of each second, from the first that any of them has."""
    longest = max(map(len, lists))
    return zip(*([None] * (longest - len(one)) + list(one) for one in lists), strict=True)
