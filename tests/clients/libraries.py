"""Which clients are tried, over which wires, and what each should hear."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.peers import environment
from tests.everything.stage import TOOLS
from tests.fork_server import forked
from tests.node import installed, node
from tests.shared import ROOT

HERE: Final = Path(__file__).resolve().parent
STAGE: Final = "tests/clients/stage.py:server"

VISIT_TIME: Final = 120
"""Seconds for one library on all of its wires. It needs about five; each of its steps may take ten."""

BOTH_ERAS: Final = tuple(f"{way}-{era}" for way in ("http", "asgi", "stdio") for era in ("modern", "legacy"))
SOCKETS: Final = ("ws-modern", "ws-legacy")
LEGACY: Final = ("http", "asgi", "sse", "ws", "stdio")
"""The wires: `asgi` is HTTP too, by the other door."""

EXPECTED: Final[Mapping[str, Any]] = {
    "negotiate": "2025-11-25",
    "list_all": {
        "tools": sorted([*TOOLS, "linger", "was_cancelled", "touch"]),
        "resources": [
            "skill://pdf/SKILL.md",
            "skill://team/data-analysis/SKILL.md",
            "test://static-binary",
            "test://static-text",
            "test://watched-resource",
        ],
        "templates": ["stage://{tag}/watched", "test://template/{id}/data"],
        "prompts": [
            "test_input_required_result_prompt",
            "test_prompt_with_arguments",
            "test_prompt_with_embedded_resource",
            "test_prompt_with_image",
            "test_simple_prompt",
        ],
    },
    "call": "This is a simple text response for testing.",
    "fail": "error: This tool intentionally returns an error for testing",
    "read": "This is the content of the static text resource.",
    "prompt": "Prompt with arguments: arg1='one', arg2='two'",
    "complete": ["testing"],
    "progress": [
        "Tool with progress executed successfully",
        *([percent, 100, f"Completed step {percent} of 100"] for percent in (0, 50, 100)),
    ],
    "elicit": ["User response: ada <ada@example.org>", "Who are you?"],
    "sample": ["LLM response: Paris", "Capital of France?"],
    "roots": ["Roots: file:///home/ada", "roots"],
    "two_rounds": [
        "Ada likes green.",
        "Step 1: What is your name?",
        "Step 2: Ada, which colour do you like?",
    ],
    "cancel": "cancelled",
    "subscribe": ["updated stage://TAG/watched", "tools changed"],
    "close": "closed",
}
"""What each step of the tour ends with, whoever takes it."""

MODERN: Final = {"negotiate": "2026-07-28"}
"""What is different in the modern era: nothing that a client's user sees."""


@attrs.frozen
class Library:
    """A client library in an environment of its own, and the wires it has."""

    name: str
    command: Callable[[], list[str]]
    wires: tuple[str, ...]
    cwd: Callable[[], Path] = lambda: ROOT
    cannot: Mapping[str, str] = {}
    """Steps that the library has no means for, each with the reason."""

    def steps(self) -> list[tuple[str, str]]:
        return [(wire, step) for wire in self.wires for step in EXPECTED if step not in self.cannot]


def python(module: str, *requirements: str) -> Callable[[], list[str]]:
    return lambda: [str(environment(*requirements)), "-m", f"tests.clients.{module}"]


def javascript(script: str) -> Callable[[], list[str]]:
    return lambda: [str(node()), str(HERE / "node" / script)]


LIBRARIES: Final = (
    Library("mcp-2.3.0", python("mcp_two", "mcp==2.3.0"), BOTH_ERAS),
    Library("mcp-1.30.0", python("mcp_one", "mcp[ws]==1.30.0"), LEGACY),
    # The whole of fastmcp asks for a certifi that may not be published yet; its client is in a package of its own.
    Library("fastmcp-4.1.4", python("fast_mcp", "fastmcp-slim[client]==4.1.4"), BOTH_ERAS),
    Library("npm-client-2.4.0", javascript("client.mjs"), BOTH_ERAS + SOCKETS, cwd=lambda: installed(HERE / "node")),
    Library("npm-sdk-1.32.2", javascript("sdk.mjs"), LEGACY, cwd=lambda: installed(HERE / "node")),
)


@attrs.frozen
class Visit:
    """What one library heard on all of its wires."""

    heard: Mapping[tuple[str, str], Mapping[str, Any]]
    stderr: str


def visit(library: Library, urls: Mapping[str, str], *, seconds: float = VISIT_TIME) -> Visit:
    """Send *library* to the stage. One that does not come back is killed with all that it started."""
    stdio = [*forked(), "run", str(ROOT / STAGE), "--stdio"]
    targets = {
        wire: {"command": stdio} if wire.startswith("stdio") else {"url": urls[wire.split("-")[0]]}
        for wire in library.wires
    }
    process = subprocess.Popen(
        [*library.command(), json.dumps(targets)],
        cwd=library.cwd(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate(timeout=seconds)
        err += f"\nkilled after {seconds:g} s"
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return Visit({(line["wire"], line["step"]): line for line in lines}, f"status {process.returncode}\n{err[-4000:]}")
