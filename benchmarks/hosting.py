"""How fast callboard hosts tools over HTTP, beside the official libraries and the floor that Trio and httptools give.

    python -m benchmarks.hosting [--short] [--rounds N] [--seconds S] [--only MODE] [--json FILE]

Every server offers the same two tools: one does nothing, one echoes 10 kB. Servers stay on one core, the generator on
another. All contenders of a table take turns, several rounds; a ratio is taken within a round, and its median counts.
Peers are installed on first use, each in an environment of its own. docs/design/hosting-speed.md says how to read it.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal, TypeAlias

import attrs

from benchmarks.hosting_calls import TEXT, Caller, tool_call
from benchmarks.hosting_load import NO_WRK, WRK, Load, Sample, write_calls
from benchmarks.hosting_servers import (
    FLOOR,
    OURS,
    OURS_TASK,
    REFERENCE,
    SDK,
    SERVER,
    Contender,
    Running,
    callboard,
    callboard_task,
    fastmcp_json,
    fastmcp_sse,
    floor,
    mcp_json,
    mcp_sse,
    npm_sdk_json,
    npm_sdk_sse,
    npm_server,
    running,
)
from benchmarks.measure import verdict
from tests.node import NPM

Field: TypeAlias = Literal["rate", "p50", "p99", "cpu"]
TOOLS: Final = {"noop": "no-op", "echo": "10 kB echo"}
WARM_UP: Final = 1.0
"""Seconds before the first round in which every answer is looked at, and nothing is measured."""
SESSIONS: Final = 1000
"""Idle sessions that are weighed, after a tenth of them that is not."""
SETTLE: Final = 1.0
"""Seconds between the last handshake and the weighing."""


@attrs.frozen
class Mode:
    """One table: an era, a form of answers, and who can do it."""

    name: str
    is_legacy: bool
    is_streamed: bool
    contenders: tuple[Contender, ...]


MODES: Final = (
    Mode(
        "modern JSON", False, False, (callboard, callboard_task, mcp_json, fastmcp_json, npm_server, floor)
    ),
    Mode("modern SSE", False, True, (callboard, mcp_sse, fastmcp_sse, npm_server)),
    Mode("legacy JSON", True, False, (callboard, callboard_task, mcp_json, fastmcp_json, npm_sdk_json)),
    Mode("legacy SSE", True, True, (callboard, mcp_sse, fastmcp_sse, npm_sdk_sse)),
)  # fmt: skip
SHORT: Final = ("modern JSON", "legacy JSON")


@attrs.frozen
class Cell:
    """One tool in one mode at one number of connections: the rounds of every contender."""

    mode: str
    tool: str
    connections: int
    samples: dict[str, list[Sample]]

    def typical(self, name: str, field: Field) -> float:
        return float(median(getattr(sample, field) for sample in self.samples[name]))

    def ratios(self, one: str, other: str, field: Field = "rate") -> list[float]:
        """How many times *other*'s figure *one*'s was, round by round, from the lowest to the highest."""
        pairs = zip(self.samples[one], self.samples[other], strict=True)
        return sorted(getattr(mine, field) / getattr(theirs, field) for mine, theirs in pairs)

    def lines(self) -> list[str]:
        title = f"{self.mode}, {TOOLS[self.tool]}, {self.connections} connections"
        head = (
            f"{title:44} {'calls/s':>9} {'p50 ms':>8} {'p99 ms':>8} {'CPU us':>8}   x {REFERENCE} (lowest to highest)"
        )
        return [head, *(self._line(name) for name in self.samples)]

    def _line(self, name: str) -> str:
        rate, p50, p99, cpu = (self.typical(name, field) for field in ("rate", "p50", "p99", "cpu"))
        times = self.ratios(name, REFERENCE)
        spread = f"{median(times):6.2f}  ({times[0]:.2f} to {times[-1]:.2f})"
        return f"  {name:42} {rate:9.0f} {p50 / 1000:8.2f} {p99 / 1000:8.2f} {cpu:8.0f}   {spread}"


@attrs.frozen
class Plan:
    """How long it is measured, and what."""

    modes: tuple[Mode, ...]
    connections: tuple[int, ...]
    rounds: int
    seconds: float
    load: Load


def measure(plan: Plan) -> list[Cell]:
    """All tables, printed as they come."""
    cells = []
    for mode in plan.modes:
        with ExitStack() as stack:
            servers = {one.name: (one, stack.enter_context(running(one))) for one in mode.contenders}
            for tool in TOOLS:
                for connections in plan.connections:
                    cells.append(measure_cell(plan, mode, tool, connections, servers))
                    print("\n".join(cells[-1].lines()), flush=True)
    return cells


def measure_cell(
    plan: Plan, mode: Mode, tool: str, connections: int, servers: dict[str, tuple[Contender, Running]]
) -> Cell:
    """All contenders in turn, after each was seen to answer as it should."""
    samples: dict[str, list[Sample]] = {name: [] for name in servers}
    with tempfile.TemporaryDirectory() as place:
        folders = {}
        for number, (name, (contender, server)) in enumerate(servers.items()):
            expected = contender.expected or {"noop": '"ok"', "echo": TEXT[-40:]}[tool]
            calls = prepare(mode, contender, server, tool, connections, expected)
            folders[name] = write_calls(Path(place) / str(number), calls)
            plan.load.run(server, folders[name], connections=connections, seconds=WARM_UP, expected=expected)
        for _ in range(plan.rounds):
            for name, (_, server) in servers.items():
                sample = plan.load.run(server, folders[name], connections=connections, seconds=plan.seconds)
                samples[name].append(sample)
    return Cell(mode.name, tool, connections, samples)


def prepare(
    mode: Mode, contender: Contender, server: Running, tool: str, connections: int, expected: str
) -> list[bytes]:
    """The calls for a generator, one of them tried; in the legacy era a session for each connection."""
    caller = Caller(server.port)
    sessions = [caller.open_session() for _ in range(connections)] if mode.is_legacy else [None]
    form = tool + ("_streamed" if mode.is_streamed else contender.suffix)
    calls = [tool_call(form, session=session, is_streamed=mode.is_streamed) for session in sessions]
    caller.check(calls[0], expected, is_streamed=mode.is_streamed)
    caller.close()
    return [call.raw(server.port) for call in calls]


def weigh(contenders: tuple[Contender, ...], rounds: int) -> dict[str, list[float]]:
    """KiB that a process grew by for each idle legacy session, in a new process for each round."""
    grown: dict[str, list[float]] = {one.name: [] for one in contenders}
    for _ in range(rounds):
        for one in contenders:
            with running(one) as server:
                caller = Caller(server.port)
                for _session in range(SESSIONS // 10):  # what comes with the first ones is not theirs
                    caller.open_session()
                time.sleep(SETTLE)
                before = server.resident()
                for _session in range(SESSIONS):
                    caller.open_session()
                time.sleep(SETTLE)
                grown[one.name].append((server.resident() - before) / SESSIONS / 1024)
                caller.close()
    return grown


def weights(grown: dict[str, list[float]]) -> list[str]:
    head = f"{SESSIONS} idle legacy sessions: KiB for each, as the process grew (lowest to highest)"
    return [
        head,
        *(f"  {name:42} {median(kib):9.1f}  ({min(kib):.1f} to {max(kib):.1f})" for name, kib in grown.items()),
    ]


def verdicts(cells: list[Cell], grown: dict[str, list[float]]) -> list[str]:
    """Whether the targets hold: the no-op at 32 connections."""
    judged = {cell.mode: cell for cell in cells if cell.tool == "noop" and cell.connections == 32}
    lines = []
    if (modern := judged.get("modern JSON")) is not None:
        times = {name: median(modern.ratios(name, REFERENCE)) for name in (OURS, OURS_TASK)}
        lines += [verdict(f"{name} / {REFERENCE}, modern JSON", found, 6) for name, found in times.items()]
        lines.append(verdict(f"{OURS} / {REFERENCE}, modern JSON, the goal", times[OURS], 10))
        p99 = median(modern.ratios(OURS, REFERENCE, "p99"))
        lines.append(verdict(f"{OURS} / {REFERENCE}, modern JSON, p99", p99, 0.33, at_most=True))
        lines += _beside(modern, SERVER)
        share, cpu = median(modern.ratios(OURS, FLOOR)), median(modern.ratios(OURS, FLOOR, "cpu"))
        lines.append(f"{OURS} / {FLOOR}: {share:.2f}, with {cpu:.1f} times its CPU for a call")
    if (legacy := judged.get("legacy JSON")) is not None:
        lines.append(verdict(f"{OURS} / {REFERENCE}, legacy JSON", median(legacy.ratios(OURS, REFERENCE)), 5))
        lines += _beside(legacy, SDK)
    if grown:
        share = median(grown[OURS]) / median(grown[REFERENCE])
        lines.append(verdict(f"{OURS} / {REFERENCE}, memory of an idle session", share, 0.5, at_most=True))
    return lines


def _beside(cell: Cell, other: str) -> list[str]:
    if other not in cell.samples:
        return []
    return [verdict(f"{OURS} / {other}, {cell.mode}", median(cell.ratios(OURS, other)), 3)]


def as_json(plan: Plan, cells: list[Cell], grown: dict[str, list[float]]) -> dict[str, Any]:
    machine = {"python": platform.python_version(), "system": platform.platform(), "cores": os.cpu_count()}
    how = {"rounds": plan.rounds, "seconds": plan.seconds, "generator": plan.load.name}
    return {**machine, **how, "cells": [attrs.asdict(cell) for cell in cells], "idle_session_kib": grown}


def without_npm(mode: Mode) -> Mode:
    return attrs.evolve(mode, contenders=tuple(one for one in mode.contenders if not one.name.startswith("npm ")))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="32 connections, JSON answers, rounds of two seconds")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each table (default: 3)")
    parser.add_argument("--seconds", type=float, help="of one run; whole ones for wrk (default: 5, short: 2)")
    parser.add_argument("--only", choices=[mode.name for mode in MODES], action="append", help="these tables only")
    parser.add_argument("--no-wrk", action="store_true", help="take the generator of this project in any case")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples to a file, too")
    return parser.parse_args()


def main() -> None:
    options = read_options()
    wanted = options.only or (SHORT if options.short else [mode.name for mode in MODES])
    modes = [mode for mode in MODES if mode.name in wanted]
    if NPM is None:
        print("npm is not installed: the servers for Node.js are left out")
        modes = [without_npm(mode) for mode in modes]
    load = Load(is_wrk=WRK is not None and not options.no_wrk)
    if WRK is None:
        print(NO_WRK)
    connections = (32,) if options.short else (1, 32, 256)
    seconds = options.seconds or (2.0 if options.short else 5.0)
    plan = Plan(tuple(modes), connections, options.rounds, seconds, load)
    cells = measure(plan)
    idle = next((mode.contenders for mode in modes if mode.name == "legacy JSON"), ())
    grown = weigh(tuple(one for one in idle if not one.suffix), 1 if options.short else options.rounds)
    print("\n".join([*(weights(grown) if grown else []), *verdicts(cells, grown)]))
    if options.json is not None:
        options.json.write_text(json.dumps(as_json(plan, cells, grown), indent=2) + "\n")


if __name__ == "__main__":
    main()
