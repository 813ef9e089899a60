"""How fast callboard hosts tools over HTTP, beside the official libraries and the floor that Trio and httptools give.

    python -m benchmarks.hosting [--short] [--rounds N] [--seconds S] [--only MODE] [--json FILE]

Every server offers the same two tools: one does nothing, one echoes 10 kB. Servers stay on one core, the generator on
another. All contenders of a table take turns, several rounds; a ratio is taken within a round, and its median counts.
Peers are installed on first use, each in an environment of its own. docs/design/hosting-speed.md says how to read it.
"""

import argparse
import os
import platform
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.hosting_calls import TEXT, Caller, tool_call
from benchmarks.hosting_load import NO_WRK, WRK, Load, Sample, write_calls
from benchmarks.hosting_servers import (
    Contender,
    Running,
    callboard,
    callboard_task,
    fastmcp_json,
    fastmcp_sse,
    floor,
    mcp_json,
    mcp_sse,
    mcp_structured,
    npm_sdk_json,
    npm_sdk_sse,
    npm_server_json,
    npm_server_sse,
    running,
)
from benchmarks.hosting_tables import TOOLS, Cell, verdicts, weights
from benchmarks.measure import add_json, write_json
from tests.node import NPM

WARM_UP: Final = 64
"""Connections for each second before the first round: every answer is looked at, and nothing is measured."""
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


_PYTHON: Final = (callboard, callboard_task, mcp_json, mcp_structured, fastmcp_json)
MODES: Final = (
    Mode("modern JSON", False, False, (*_PYTHON, npm_server_json, floor)),
    Mode("modern SSE", False, True, (callboard, mcp_sse, fastmcp_sse, npm_server_sse)),
    Mode("legacy JSON", True, False, (*_PYTHON, npm_sdk_json)),
    Mode("legacy SSE", True, True, (callboard, mcp_sse, fastmcp_sse, npm_sdk_sse)),
)
WEIGHED: Final = (callboard, mcp_json, fastmcp_json, npm_sdk_json)
SHORT: Final = ("modern JSON", "legacy JSON")


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
            servers = {one.name: (one, stack.enter_context(running(one))) for one in affordable(mode.contenders)}
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
            warm_up = max(1, connections // WARM_UP)
            plan.load.run(server, folders[name], connections=connections, seconds=warm_up, expected=expected)
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


def as_json(plan: Plan, cells: list[Cell], grown: dict[str, list[float]]) -> dict[str, Any]:
    machine = {"python": platform.python_version(), "system": platform.platform(), "cores": os.cpu_count()}
    how = {"rounds": plan.rounds, "seconds": plan.seconds, "generator": plan.load.name}
    return {**machine, **how, "cells": [attrs.asdict(cell) for cell in cells], "idle_session_kib": grown}


def affordable(contenders: tuple[Contender, ...]) -> tuple[Contender, ...]:
    """Those that this machine can run."""
    return tuple(one for one in contenders if NPM is not None or not one.name.startswith("npm "))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="32 connections, JSON answers, rounds of two seconds")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each table (default: 3)")
    parser.add_argument("--seconds", type=float, help="of one run; whole ones for wrk (default: 5, short: 2)")
    parser.add_argument("--only", choices=[mode.name for mode in MODES], action="append", help="these tables only")
    parser.add_argument("--no-wrk", action="store_true", help="take the generator of this project in any case")
    add_json(parser)
    return parser.parse_args()


def main() -> None:
    options = read_options()
    wanted = options.only or (SHORT if options.short else [mode.name for mode in MODES])
    modes = [mode for mode in MODES if mode.name in wanted]
    if NPM is None:
        print("npm is not installed: the servers for Node.js are left out")
    load = Load(is_wrk=WRK is not None and not options.no_wrk)
    if WRK is None:
        print(NO_WRK)
    connections = (32,) if options.short else (1, 32, 256)
    seconds = options.seconds or (2.0 if options.short else 5.0)
    plan = Plan(tuple(modes), connections, options.rounds, seconds, load)
    cells = measure(plan)
    is_legacy = any(mode.is_legacy for mode in modes)
    grown = weigh(affordable(WEIGHED), options.rounds) if is_legacy else {}
    print("\n".join([*(weights(grown, SESSIONS) if grown else []), *verdicts(cells, grown)]))
    write_json(options.json, as_json(plan, cells, grown))


if __name__ == "__main__":
    main()
