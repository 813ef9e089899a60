"""Commands load only what they need: half of the time of a short command is loading modules."""

import json
import subprocess
import sys
from typing import Final

import pytest

from tests.served import served
from tests.shared import APPS

HEAVY: Final = (
    "asyncio",
    "callboard.actors.broker",
    "callboard.actors.server",
    "callboard.bench",
    "callboard.broker",
    "callboard.config.load",
    "callboard.oauth.authorizer",
    "callboard.server.server",
    "callboard.transports.client.websocket",
    "cryptography",
    "h2",
    "hypercorn",
    "joserfc",
    "rich",
    "structlog",
    "webbrowser",
    "yaml",
)
"""What a command in a pipe does not need to list the tools at a URL, or to call one."""

LOADED: Final = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
sys.argv = ["callboard", *sys.argv[1:]]
from callboard.cli.main import main
main()
"""


def loaded(code: str, *arguments: str) -> set[str]:
    """The modules that a new interpreter has at its end."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize("command", [("list",), ("call", "add", "numbers=[1]"), ("read", "curious://note")])
def test_a_command_at_a_url_loads_no_server_no_oauth_and_no_console(command: tuple[str, ...]) -> None:
    with served(f"{APPS / 'curious.py'}:server") as house:
        found = loaded(LOADED, command[0], house.http, *command[1:])
    assert "callboard.client.client" in found
    assert [name for name in HEAVY if name in found] == []


def test_the_package_itself_loads_nothing() -> None:
    found = loaded("import json, sys, callboard; print(json.dumps(sorted(sys.modules)), file=sys.stderr)")
    assert {name for name in found if name.startswith("callboard")} == {"callboard", "callboard._version"}
    assert not {"trio", "attrs", "msgspec", "cyclopts"} & found
