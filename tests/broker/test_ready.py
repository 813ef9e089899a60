"""When a broker is ready: any backend or all of them, and each that is required."""

from pathlib import Path
from typing import Any, Literal

import pytest
import trio

from callboard import Broker, Server
from callboard.actors.broker.policy import BackendSettings
from callboard.config import BackendSpec, read_configuration
from callboard.transports.client.process import Command


def backend(name: str, *, is_up: bool, required: bool = False) -> BackendSpec:
    target: Any = Server(name) if is_up else Command(args=("false",))
    return BackendSpec(name=name, target=target, settings=BackendSettings(required=required))


@pytest.mark.parametrize(
    ("up", "down_is_required", "ready_when", "is_ready"),
    [
        (("a",), False, "any", True),
        ((), False, "any", False),
        (("a",), True, "any", False),
        (("a",), False, "all", False),
        (("a", "b"), False, "all", True),
    ],
)
async def test_it_is_ready_when_its_operator_says(
    up: tuple[str, ...], down_is_required: bool, ready_when: Literal["any", "all"], is_ready: bool
) -> None:
    backends = [backend(name, is_up=name in up, required=down_is_required and name not in up) for name in ("a", "b")]
    with trio.fail_after(20):
        broker = Broker(backends, ready_when=ready_when)
        async with broker.host():
            assert broker.is_ready() == is_ready


def test_the_configuration_says_which_server_is_required(tmp_path: Path) -> None:
    file = tmp_path / "servers.toml"
    file.write_text(
        '[servers.db]\ncommand = "true"\n[servers.db.callboard]\nrequired = true\n[servers.other]\ncommand = "true"\n'
    )
    found = {spec.name: spec.settings.required for spec in read_configuration(file).backends}
    assert found == {"db": True, "other": False}
