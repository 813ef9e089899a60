"""A file that changes under a running broker: what did not change does not notice. Real processes."""

import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from callboard import Client, connect
from callboard.errors import ServerRefused
from tests.at_terminal import terminal as terminal_of
from tests.fork_server import forked
from tests.process import CALLBOARD, PATIENCE, Process, started

APP: Final = str(Path(__file__).parent / "apps" / "held.py")

pytestmark = pytest.mark.skipif(os.name != "posix", reason="SIGHUP, and processes that are told apart")


def entry(**env: str) -> dict[str, Any]:
    program, *arguments = forked()
    return {"command": program, "args": [*arguments, "run", APP], "env": env}


def write(config: Path, **servers: Any) -> None:
    """As editors do: a file of its own, put in the other's place."""
    beside = config.with_suffix(".new")
    beside.write_text(json.dumps({"mcpServers": servers}, indent=1))
    beside.replace(config)


@asynccontextmanager
async def brokered(config: Path) -> AsyncIterator[tuple[Process, Client]]:
    heard = ("env", "CALLBOARD_LOG_LEVEL=debug")  # what servers write to standard error is in the log then
    async with started(*heard, *forked(), "serve", str(config), "--http", "0", "--json") as process:
        told = await process.hear()
        async with connect(told["listening"][0]["url"]) as client:
            yield process, client
        process.signal()
        assert await process.wait() == 0
        assert "Traceback" not in process.words


async def pid(client: Client, server: str) -> int:
    (content,) = (await client.call(f"{server}__pid")).content
    return int(content.text)  # type: ignore[union-attr]


async def wait_servers(client: Client, changes: AsyncIterator[object], *servers: str) -> None:
    """Until the tools are those of *servers*, in this order."""
    async for _ in changes:
        if list(dict.fromkeys(tool.name.split("__")[0] for tool in await client.tools())) == list(servers):
            return


@pytest.mark.parametrize("is_asked", [False, True], ids=["by the file", "by SIGHUP"])
async def test_only_what_changed_is_touched_and_a_call_elsewhere_goes_on(is_asked: bool, tmp_path: Path) -> None:
    config = tmp_path / "servers.json"
    write(config, kept=entry(), changed=entry(), removed=entry())
    async with brokered(config) as (process, client), trio.open_nursery() as nursery:
        kept, changed, removed = [await pid(client, name) for name in ("kept", "changed", "removed")]
        held: list[str] = []
        answered = trio.Event()

        async def hold() -> None:
            held.append(str((await client.call("kept__hold")).content))
            answered.set()

        nursery.start_soon(hold)
        await process.wait_said(b"held")
        async with client.listen(tools=True) as changes:
            write(config, added=entry(), changed=entry(NEW="1"), kept=entry())
            if is_asked:
                process.signal(signal.SIGHUP)
            await wait_servers(client, changes, "added", "changed", "kept")
        assert await pid(client, "kept") == kept
        assert await pid(client, "changed") != changed
        assert await pid(client, "added") not in (kept, changed, removed)
        with pytest.raises(ServerRefused, match="Unknown tool"):
            await pid(client, "removed")
        assert not is_alive(changed)
        assert not is_alive(removed)
        assert held == []
        await client.call("kept__let_go")
        await answered.wait()
        assert str(kept) in held[0]


def is_alive(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_wrong_file_changes_nothing_and_is_told_with_its_line(tmp_path: Path) -> None:
    config, broken = tmp_path / "servers.json", tmp_path / "broken.py"
    broken.write_text("1 / 0\n")
    write(config, kept=entry(), other=entry())
    async with brokered(config) as (process, client):
        before = [await pid(client, name) for name in ("kept", "other")]
        for servers, words in (
            ({"kept": entry(), "other": {"command": 7}}, f"{config}:17: mcpServers.other.command: must be"),
            ({"kept": entry(NEW="1"), "other": {"python": str(broken)}}, "broken.py: import failed"),
        ):
            del process.stderr[:]
            write(config, **servers)
            process.signal(signal.SIGHUP)
            await process.wait_said(b"config_rejected")
            await process.wait_said(b"\n")
            assert words in process.words.replace("\\n", "")
            assert [await pid(client, name) for name in ("kept", "other")] == before
        del process.stderr[:]  # where the author of broken.py is shown what is wrong with it
        # And it still looks: what is right is taken.
        async with client.listen(tools=True) as changes:
            write(config, kept=entry())
            await wait_servers(client, changes, "kept")
        assert await pid(client, "kept") == before[0]


async def test_a_call_in_flight_on_what_is_removed_is_answered_at_once(tmp_path: Path) -> None:
    config = tmp_path / "servers.json"
    write(config, kept=entry(), removed=entry())
    async with brokered(config) as (process, client), trio.open_nursery() as nursery:
        refused = trio.Event()

        async def hold() -> None:
            with pytest.raises(ServerRefused, match="removed"):
                await client.call("removed__hold")
            refused.set()

        nursery.start_soon(hold)
        await process.wait_said(b"held")
        write(config, kept=entry())
        process.signal(signal.SIGHUP)
        await refused.wait()


async def test_a_closed_terminal_is_no_request_but_the_end(tmp_path: Path) -> None:
    config = tmp_path / "servers.json"
    write(config, kept=entry())
    heeds = ("env", "--default-signal=HUP")  # whoever runs the tests may ignore it, as nohup does
    async with terminal_of(*heeds, *CALLBOARD, "serve", str(config), "--http", "0") as terminal:
        await terminal.wait_shown("press Ctrl-C to stop")
        terminal.process.send_signal(signal.SIGHUP)
        await terminal.wait_shown("config_reloaded")
        await terminal.keyboard.aclose()  # the window is closed: the kernel says so, with the same signal
        with trio.fail_after(PATIENCE):
            assert await terminal.process.wait() == 0
