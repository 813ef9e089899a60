"""`--workers 1` is the process that there is without the flag: no parent, no keeper, no links. SCALE's target 3."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.fork_server import forked
from tests.process import started
from tests.shared import APPS
from tests.workers.crowd import APP, Crowd


async def seen_of(flags: Sequence[str]) -> tuple[list[str], list[int], list[str]]:
    """The supervision tree of a server with these flags, its child processes, and its Unix sockets."""
    addresses = ("--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--json")
    async with started(*forked(), *flags, *addresses) as process:
        told = await process.hear()
        ports = [int(one["url"].split(":")[2].split("/")[0]) for one in told["listening"]]
        one = Crowd(process, ports[0], ports[1], 0)
        tree = (await one.look()).json["tree"]
        running = psutil.Process(told["pid"])
        children = [child.pid for child in running.children(recursive=True)]
        sockets = [path for one in running.net_connections("unix") if (path := str(one.laddr))]
        process.signal()
        assert await process.wait() == 0
        return list(_paths(tree, "")), children, sockets


def _paths(node: dict[str, Any], above: str) -> list[str]:
    path = f"{above}/{node['name']} {node['kind']}"
    if node["kind"] == "HttpConnection":
        return []  # this look, which another name counts
    return [path, *(line for child in node.get("children", []) for line in _paths(child, path))]


@pytest.mark.parametrize("command", ["run", "serve"])
async def test_one_worker_is_the_process_that_there_is_without_workers(command: str, tmp_path: Path) -> None:
    config = tmp_path / "servers.toml"
    config.write_text(f"[mcpServers.counted]\npython = '{APPS / 'counted.py'}:server'\n")
    words = [command, str(APP if command == "run" else config)]
    usual, one = await seen_of(words), await seen_of([*words, "--workers", "1"])
    assert one == usual
    tree, children, sockets = one
    assert (children, sockets) == ([], [])
    assert not [path for path in tree if "/link" in path or "/inner" in path or "/parent" in path or "/worker" in path]
