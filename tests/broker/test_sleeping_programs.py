"""A real program that is started when it is needed, and ended when it is not."""

import os
import sys
import textwrap
from pathlib import Path

import pytest
import trio

from callboard.broker import Broker
from callboard.codecs.revisions import LATEST
from tests.broker.front import peer

PROGRAM = """
    import os
    from callboard import Server

    server = Server("one")

    @server.tool
    async def pid() -> str:
        return str(os.getpid())

    server.run()
"""


FILE = """
start = "lazy"
idle_stop = 0.2

[mcpServers.one]
command = "{}"
args = ["one.py"]
cwd = "{}"
"""


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_program_is_ended_when_it_is_idle_and_listed_without_being_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "one.py").write_text(textwrap.dedent(PROGRAM))
    file = tmp_path / "servers.toml"
    file.write_text(FILE.format(sys.executable, tmp_path))
    broker = Broker.of_file(file)
    with trio.fail_after(30):
        async with broker.host() as host, peer(host, LATEST, capabilities={}) as client:
            first = int((await client.call("one__pid"))["content"][0]["text"])
            while is_running(first):  # noqa: ASYNC110 -- no event tells
                await trio.sleep(0.02)
            assert broker.is_ready()
            second = int((await client.call("one__pid"))["content"][0]["text"])
            assert second != first
        broker = Broker.of_file(file)
        async with broker.host() as host, peer(host, LATEST, capabilities={}) as client:
            assert broker.backends["one"].circuit.state.value == "asleep"
            [tool] = (await client.request("tools/list"))["tools"]
            assert tool["name"] == "one__pid"
            assert len(broker.backends["one"].pool) == 0
