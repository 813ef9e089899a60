"""Official clients log in at a guarded server through a certified provider, and step up: both eras, four libraries."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from benchmarks.peers import environment
from tests.fork_server import forked
from tests.node import installed, needs_npm, node
from tests.shared import ROOT

HERE = Path(__file__).resolve().parent
APP = "tests/apps/guarded.py:server"
LOGIN_TIME = 60

PYTHON = {"mcp-2": ("mcp==2.3.0", "login_two.py"), "mcp-1": ("mcp[ws]==1.30.0", "login_one.py")}


@contextmanager
def running(command: list[str], **options: Any) -> Iterator[dict[str, Any]]:
    """A process that says with its first line of JSON that it is ready, until the test is over."""
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "cwd": ROOT, "text": True}
    with subprocess.Popen(command, **pipes, **options) as process:
        try:
            assert process.stdout is not None
            yield ready(process.stdout)
        finally:
            process.terminate()


def ready(said: IO[str]) -> dict[str, Any]:
    for line in said:
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    raise AssertionError("it ended before it was ready")


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    modules = installed(HERE / "provider") / "node_modules"
    with running([str(node()), str(HERE / "provider" / "provider.mjs"), str(modules)]) as said:
        yield said["issuer"]


@pytest.fixture(scope="module")
def guarded(issuer: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server that takes the provider's tokens."""
    file = tmp_path_factory.mktemp("guarded") / "authorization.toml"
    file.write_text(
        "[authorization]\n"
        'scopes = ["mcp:use"]\n'
        "[[authorization.issuers]]\n"
        f'issuer = "{issuer}"\n'
        'tenant = "claim:org"\n'
        'trust = ["127.0.0.1"]\n'
    )
    with running([*forked(), "run", APP, "--http", "127.0.0.1:0", "--authorization", str(file), "--json"]) as said:
        yield next(one["url"] for one in said["listening"] if one["transport"] == "http")


def by_python(name: str) -> Callable[[str, str], dict[str, Any]]:
    package, script = PYTHON[name]

    def log_in(url: str, era: str) -> dict[str, Any]:
        command = [str(environment(package)), str(HERE / script), url, era]
        return heard(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})

    return log_in


def by_node(library: str) -> Callable[[str, str], dict[str, Any]]:
    def log_in(url: str, era: str) -> dict[str, Any]:
        folder = installed(ROOT / "tests" / "clients" / "node")
        return heard([str(node()), str(HERE / "login.mjs"), url, library, era], cwd=folder)

    return log_in


def heard(command: list[str], **options: Any) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LOGIN_TIME, check=False, **options)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@needs_npm
@pytest.mark.parametrize(
    ("log_in", "era"),
    [
        pytest.param(by_python("mcp-2"), "modern", id="python-2-modern"),
        pytest.param(by_python("mcp-2"), "legacy", id="python-2-legacy"),
        pytest.param(by_python("mcp-1"), "legacy", id="python-1-legacy"),
        pytest.param(by_node("two"), "modern", id="typescript-2-modern"),
        pytest.param(by_node("two"), "legacy", id="typescript-2-legacy"),
        pytest.param(by_node("one"), "legacy", id="typescript-1-legacy"),
    ],
)
def test_a_client_logs_in_and_steps_up(log_in: Callable[[str, str], dict[str, Any]], era: str, guarded: str) -> None:
    found = log_in(guarded, era)
    assert found["revision"] == ("2026-07-28" if era == "modern" else "2025-11-25")
    assert sorted(found["tools"]) == ["seen", "who", "write"]
    assert found["who"] == "ada of acme"
    assert found["write"] == "written"
    first, second = (set(scopes.split()) for scopes in found["scopes"])
    assert "mcp:use" in first
    assert "files:write" not in first
    assert "files:write" in second
