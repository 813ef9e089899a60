"""How fast callboard hosts tools over HTTP, beside the official libraries and the floor that Trio and httptools give.

    python -m benchmarks.hosting [--short] [--rounds N] [--seconds S] [--only MODE] [--json FILE]

Every server offers the same tools: one does nothing, one echoes 10 kB. *Tool shapes*: a short echo, written in six
ways. *WebSocket*: the same echo beside HTTP, on one server. Servers stay on one core, the generator on another. All
contenders of a table take turns, several rounds; a ratio is taken within a round, and its median counts.
Peers are installed on first use, each in an environment of its own. docs/design/hosting-speed.md says how to read it.
"""

import argparse
import os
import platform
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

import attrs

from benchmarks import hosting_shapes, hosting_websocket
from benchmarks.hosting_calls import TEXT, Caller
from benchmarks.hosting_load import NO_WRK, WRK, Load
from benchmarks.hosting_rounds import Job, Plan, preparing
from benchmarks.hosting_servers import (
    Contender,
    Running,
    callboard,
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
from benchmarks.hosting_tables import JUDGED, TOOLS, Cell, verdicts, weights
from benchmarks.measure import add_json, write_json
from tests.node import NPM

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


_PYTHON: Final = (callboard, mcp_json, fastmcp_json)
MODES: Final = (
    Mode("modern JSON", False, False, (*_PYTHON, mcp_structured, npm_server_json, floor)),
    Mode("modern SSE", False, True, (callboard, mcp_sse, fastmcp_sse, npm_server_sse)),
    Mode("legacy JSON", True, False, (*_PYTHON, npm_sdk_json)),
    Mode("legacy SSE", True, True, (callboard, mcp_sse, fastmcp_sse, npm_sdk_sse)),
)
WEIGHED: Final = (callboard, mcp_json, fastmcp_json, npm_sdk_json)
SHORT: Final = ("modern JSON", "legacy JSON")
OTHERS: Final = (hosting_shapes.NAME, hosting_websocket.NAME)
"""Tables that are no modes."""


def measure(plan: Plan, modes: Sequence[Mode], tools: Sequence[str], connections: Sequence[int]) -> list[Cell]:
    """All modes, printed as they come."""
    cells = []
    for mode in modes:
        with ExitStack() as stack:
            servers = {one: stack.enter_context(running(one)) for one in affordable(mode.contenders)}
            for tool in tools:
                for many in connections:
                    cells.append(measure_cell(plan, mode, tool, many, servers))
                    print("\n".join(cells[-1].lines()), flush=True)
    return cells


def measure_cell(plan: Plan, mode: Mode, tool: str, connections: int, servers: dict[Contender, Running]) -> Cell:
    """All contenders in turn, after each was seen to answer as it should."""
    with preparing(plan.load) as preparation:
        calls = {}
        for contender, server in servers.items():
            job = Job(
                tool=f"{tool}_streamed" if mode.is_streamed else tool,
                expected=contender.expected or {"noop": '"ok"', "echo": TEXT[-40:]}[tool],
                is_legacy=mode.is_legacy,
                is_streamed=mode.is_streamed,
                connections=connections,
            )
            calls[contender.name] = preparation.of(server, job)
        return Cell(mode.name, tool, connections, plan.in_turn(calls))


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


def about(plan: Plan) -> dict[str, Any]:
    machine = {"python": platform.python_version(), "system": platform.platform(), "cores": os.cpu_count()}
    return {**machine, "rounds": plan.rounds, "seconds": plan.seconds, "generator": plan.load.name}


def affordable(contenders: tuple[Contender, ...]) -> tuple[Contender, ...]:
    """Those that this machine can run."""
    return tuple(one for one in contenders if NPM is not None or not one.name.startswith("npm "))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--short", action="store_true", help="32 connections, JSON answers, no large ones; rounds of two seconds"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each table (default: 3)")
    parser.add_argument("--seconds", type=float, help="of one run; whole ones for wrk (default: 5, short: 2)")
    parser.add_argument(
        "--only", choices=[*(mode.name for mode in MODES), *OTHERS], action="append", help="these tables only"
    )
    parser.add_argument("--no-wrk", action="store_true", help="take the generator of this project in any case")
    add_json(parser)
    return parser.parse_args()


def main() -> None:
    options = read_options()
    wanted = options.only or [*(SHORT if options.short else (mode.name for mode in MODES)), *OTHERS]
    modes = [mode for mode in MODES if mode.name in wanted]
    if NPM is None:
        print("npm is not installed: the servers for Node.js are left out")
    load = Load(is_wrk=WRK is not None and not options.no_wrk)
    if WRK is None:
        print(NO_WRK)
    plan = Plan(load, options.rounds, options.seconds or (2.0 if options.short else 5.0))
    tools, connections = ((JUDGED[0],), (JUDGED[1],)) if options.short else (tuple(TOOLS), (1, 32, 256))
    cells = measure(plan, modes, tools, connections)
    shapes = hosting_shapes.measure_shapes(plan) if hosting_shapes.NAME in wanted else []
    ways = hosting_websocket.measure_websocket(plan) if hosting_websocket.NAME in wanted else []
    is_legacy = any(mode.is_legacy for mode in modes)
    grown = weigh(affordable(WEIGHED), 1 if options.short else options.rounds) if is_legacy else {}
    judged = [shape.verdict() for shape in shapes] + [way.verdict() for way in ways]
    print("\n".join([*(weights(grown, SESSIONS) if grown else []), *verdicts(cells, grown), *judged]))
    write_json(
        options.json,
        {
            **about(plan),
            "cells": [attrs.asdict(cell) for cell in cells],
            "shapes": [attrs.asdict(shape) for shape in shapes],
            "websocket": [attrs.asdict(way) for way in ways],
            "idle_session_kib": grown,
        },
    )


if __name__ == "__main__":
    main()
