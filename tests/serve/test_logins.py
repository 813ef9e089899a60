"""The start of a broker whose users have to log in somewhere: what it lacks is said before anything is served."""

from pathlib import Path
from typing import Any

import pytest
import trio

from callboard.broker import Broker
from callboard.errors import CannotServe
from callboard.oauth.sealed_store import SealedStore, derived
from callboard.oauth.store import FileStore
from callboard.serve.run import run, serve
from tests.serve.browser import backend

RESOURCE = '[authorization]\nresource = "{}"\n'


def broker() -> Broker:
    return Broker([backend("http://127.0.0.1:9/mcp")], pre_warm=0)


async def refused(**options: Any) -> str:
    with pytest.raises(CannotServe) as caught, trio.fail_after(10):
        await serve(broker(), **{"http": "127.0.0.1:0", **options})
    said = str(caught.value)
    assert "\n" not in said
    return said


def written(tmp_path: Path, text: str) -> str:
    file = tmp_path / "authorization.toml"
    file.write_text(text)
    return str(file)


def key_file(tmp_path: Path, key: bytes) -> str:
    file = tmp_path / "keys"
    file.write_text(key.hex())
    file.chmod(0o600)
    return str(file)


async def test_an_address_for_browsers_is_needed(tmp_path: Path) -> None:
    assert "`authorization.resource`" in await refused()
    assert "`authorization.resource`" in await refused(
        authorization=written(tmp_path, '[authorization]\nscopes=["a"]\n')
    )
    text = RESOURCE.format("http://mcp.example.com/mcp")
    assert "expected https or a loopback address" in await refused(authorization=written(tmp_path, text))
    with pytest.raises(CannotServe, match="users cannot log in"):
        async with broker().host():
            pass


async def test_a_folder_for_tokens_needs_the_key_that_it_was_written_with(tmp_path: Path) -> None:
    text = RESOURCE.format("https://mcp.example.com/mcp") + 'tokens_folder = "tokens"\n'
    file = written(tmp_path, text)
    assert "needs --state-key-file" in await refused(authorization=file)
    await SealedStore(FileStore(tmp_path / "tokens"), derived([b"a" * 32])).check()
    said = await refused(authorization=file, state_key_file=key_file(tmp_path, b"b" * 32))
    assert "cannot be decrypted" in said


async def test_with_all_of_it_the_broker_starts(tmp_path: Path) -> None:
    text = RESOURCE.format("https://mcp.example.com/mcp") + 'tokens_folder = "tokens"\n'
    keys = key_file(tmp_path, b"a" * 32)
    server = broker()
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:

            async def begin(task_status: trio.TaskStatus[Any]) -> None:
                file = written(tmp_path, text)
                await serve(
                    server, http="127.0.0.1:0", authorization=file, state_key_file=keys, task_status=task_status
                )

            await nursery.start(begin)
            assert server.logins is not None
            assert server.logins.origin == "https://mcp.example.com"
            assert [path.suffix for path in (tmp_path / "tokens").iterdir()] == [".json"]
            nursery.cancel_scope.cancel()


def test_several_processes_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path, RESOURCE.format("https://mcp.example.com/mcp"))
    with pytest.raises(CannotServe, match="one process"):
        run(broker(), http="127.0.0.1:0", workers=2, authorization=file)
