"""Who is measured in `broker.py`: proxies in front of the same backends, each in a process of its own on one core."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs

from benchmarks.hosting_servers import FAST_UVICORN, FASTMCP_NEEDS, Contender, Running, callboard, cores, moved, running
from benchmarks.peers import HERE, environment
from tests.shared import ROOT

Transport: TypeAlias = Literal["stdio", "http"]

OURS: Final = "callboard serve"
FASTMCP: Final = "fastmcp 4.1 proxy"
MCP_PROXY: Final = "mcp-proxy 0.13"
DIRECT: Final = "no proxy"

_APP: Final = str(HERE / "apps" / "hosting_app.py")


@attrs.frozen
class Backends:
    """What stands behind every proxy: so many times the same server, and how it is reached."""

    transport: Transport
    count: int
    port: int = 0

    def entries(self) -> dict[str, dict[str, Any]]:
        """As an `mcpServers` file names them. Processes run where the generator does: the proxy has its core alone."""
        if self.transport == "http":
            entry: dict[str, Any] = {"url": f"http://127.0.0.1:{self.port}/mcp"}
        else:
            _, core = cores()
            program, *args = moved(core, [sys.executable, "-m", "callboard", "run", _APP])
            entry = {"command": program, "args": args}
        return dict.fromkeys(self.names(), entry)

    def names(self) -> list[str]:
        return [f"b{number}" for number in range(self.count)]

    def write(self, folder: Path) -> Path:
        file = folder / f"{self.transport}-{self.count}.json"
        file.write_text(json.dumps({"mcpServers": self.entries()}))
        return file


@attrs.frozen
class Proxy:
    """A proxy, what it calls a backend's tool, and where it serves it."""

    name: str
    command: Callable[[Path, Backends, int], list[str]]
    tool: Callable[[str, Backends], str]
    path: Callable[[Backends], str] = lambda _: "/mcp"
    eras: tuple[str, ...] = ("modern", "legacy")
    transports: tuple[Transport, ...] = ("stdio", "http")


def _ours(file: Path, _: Backends, port: int) -> list[str]:
    return [sys.executable, "-m", "callboard", "serve", str(file), "--http", str(port), "--json"]


def _fastmcp(file: Path, _: Backends, port: int) -> list[str]:
    python = str(environment("fastmcp-slim[client]==4.1.4", *FASTMCP_NEEDS, *FAST_UVICORN))
    flags = ["--app-dir", str(HERE), "--loop", "uvloop", "--http", "httptools", "--log-level", "warning"]
    run = [python, "-m", "uvicorn", "broker_fastmcp:app", "--factory", "--no-access-log", "--port", str(port), *flags]
    return ["env", f"CALLBOARD_BENCH_SERVERS={file}", *run]


def _mcp_proxy(file: Path, _: Backends, port: int) -> list[str]:
    program = environment("mcp-proxy==0.13.0").with_name("mcp-proxy")
    return [str(program), "--port", str(port), "--log-level", "WARNING", "--named-server-config", str(file)]


PROXIES: Final = (
    Proxy(OURS, _ours, lambda tool, backends: f"{backends.names()[-1]}__{tool}"),
    # With a single server it leaves the names as they are.
    Proxy(FASTMCP, _fastmcp, lambda tool, of: tool if of.count == 1 else f"{of.names()[-1]}_{tool}"),
    Proxy(
        MCP_PROXY,
        _mcp_proxy,
        lambda tool, _: tool,
        path=lambda backends: f"/servers/{backends.names()[-1]}/mcp",
        eras=("legacy",),
        transports=("stdio",),
    ),
)
"""`mcp-proxy` speaks no modern revision, and turns processes into HTTP servers, but not HTTP servers into others."""


@contextmanager
def proxied(proxy: Proxy, backends: Backends, folder: Path) -> Iterator[Running]:
    """Run *proxy* in front of *backends* until the block ends."""
    file = backends.write(folder)
    with running(Contender(proxy.name, lambda port: proxy.command(file, backends, port))) as server:
        yield server


@contextmanager
def backend_over_http(folder: Path = ROOT) -> Iterator[Running]:
    """The server that HTTP backends lead to, beside the generator: of the callboard in *folder*."""
    _, core = cores()
    there = Contender(callboard.name, lambda port: moved(core, callboard.command(port)), cwd=lambda: folder)
    with running(there) as server:
        yield server
