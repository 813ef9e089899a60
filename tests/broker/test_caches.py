"""The files in which lists of sleeping servers are kept: of just that server, ours alone, and of a bounded size."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from callboard.actors.broker.cached_lists import CachedLists
from callboard.actors.broker.policy import BackendSettings
from callboard.actors.client.negotiate import Agreed
from callboard.broker import Broker, caches
from callboard.broker.caches import FileCache, ListCaches
from callboard.broker.placing import Placed
from callboard.codecs.revisions import LATEST, Implementation, ListChangedCapability, ServerCapabilities
from callboard.config import Remote
from callboard.transports.client.process import Command

LAZY = BackendSettings(start="lazy")
LISTS = CachedLists(
    Agreed(
        revision=LATEST,
        capabilities=ServerCapabilities(tools=ListChangedCapability(list_changed=True)),
        info=Implementation(name="it", version="1"),
        instructions="Ask.",
    ),
    {"tools": (b'{"name":"book"}', b'{"name":"a\\u0020b"}'), "prompts": (), "resources": (), "resourceTemplates": ()},
)


def placed(*args: str, settings: BackendSettings = LAZY, **said: Any) -> Placed:
    return Placed(settings, Command(args=args or ("it",), **said))


def cache(folder: Path, where: Placed | None = None, name: str = "it") -> FileCache:
    found = ListCaches(folder / "lists").of(name, where or placed())
    assert found is not None
    return found


async def test_what_is_kept_comes_back_byte_for_byte_and_is_the_owners_alone(tmp_path: Path) -> None:
    await cache(tmp_path).save(LISTS)
    assert await cache(tmp_path).load() == LISTS
    [file] = (tmp_path / "lists").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


async def test_the_same_lists_are_written_once(tmp_path: Path) -> None:
    one = cache(tmp_path)
    await one.save(LISTS)
    one.file.unlink()
    await one.save(LISTS)
    assert not one.file.exists()


async def test_another_command_environment_folder_or_name_has_no_lists(tmp_path: Path) -> None:
    await cache(tmp_path).save(LISTS)
    for other in (placed("other"), placed("it", "-v"), placed("it", env={"A": "1"}), placed("it", cwd="/")):
        assert await cache(tmp_path, other).load() is None
    assert await cache(tmp_path, name="other").load() is None
    override = placed("it", settings=BackendSettings(start="lazy", prefix="x", timeout=1.0))
    assert await cache(tmp_path, override).load() == LISTS  # how it is shown is no matter of its lists


def test_only_a_program_that_is_started_when_needed_has_lists(tmp_path: Path) -> None:
    caches_here = ListCaches(tmp_path)
    assert caches_here.of("it", placed(settings=BackendSettings())) is None
    assert caches_here.of("it", Placed(LAZY, Remote(url="http://h/"))) is None


def _changed(**said: Any) -> Callable[[Path], None]:
    return lambda file: _write(file, json.dumps({**json.loads(file.read_bytes()), **said}).encode())


def _write(file: Path, data: bytes) -> None:
    file.write_bytes(data)


def _link(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to("elsewhere")


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda file: _write(file, b""),
    "cut": lambda file: _write(file, file.read_bytes()[:-9]),
    "no JSON": lambda file: _write(file, b"\x80\x04pickle"),
    "another form": lambda file: _write(file, b"[]"),
    "deep": lambda file: _write(file, b'{"lists":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "of another server": _changed(key="0" * 64),
    "of another version": _changed(version=99),
    "no such revision": _changed(said={"revision": "1999", "capabilities": {}, "info": None, "instructions": None}),
    "odd capabilities": _changed(
        said={"revision": LATEST.value, "capabilities": [], "info": None, "instructions": None}
    ),
    "a list is missing": _changed(lists={"tools": []}),
    "large": lambda file: os.truncate(file, caches.MAX_FILE + 1),
    "others may write it": lambda file: file.chmod(0o622),
    "a link": _link,
    "a pipe": _pipe,
    "a folder": _folder,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_a_file_that_is_not_as_it_was_written_counts_as_none(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    one = cache(tmp_path)
    await one.save(LISTS)
    damage(one.file)
    with structlog.testing.capture_logs() as logs:
        assert await cache(tmp_path).load() is None
    assert [log["event"] for log in logs] == ["list_cache_ignored"]


async def test_a_link_in_the_place_of_the_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    one, other = cache(tmp_path), tmp_path / "other"
    other.write_text("precious")
    one.file.parent.mkdir()
    one.file.symlink_to(other)
    await one.save(LISTS)
    assert other.read_text() == "precious"
    assert await cache(tmp_path).load() == LISTS


async def test_what_cannot_be_written_is_told_once_and_harms_nothing(tmp_path: Path) -> None:
    (tmp_path / "lists").write_text("no folder")
    one = cache(tmp_path)
    with structlog.testing.capture_logs() as logs:
        await one.save(LISTS)
        await one.save(LISTS)
    assert [log["event"] for log in logs] == ["list_cache_not_saved"]


async def test_no_more_files_are_kept_than_there_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "MAX_CACHES", 3)
    for number in range(5):
        one = cache(tmp_path, name=f"it{number}")
        await one.save(LISTS)
        os.utime(one.file, (number, number))
    assert len(list((tmp_path / "lists").iterdir())) == 3
    assert await cache(tmp_path, name="it4").load() == LISTS
    assert await cache(tmp_path, name="it0").load() is None


@pytest.mark.skipif(os.name != "posix", reason="elsewhere homes are found in other ways")
async def test_a_user_without_a_home_has_no_caches_and_a_broker_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pwd

    def unknown(_: int) -> None:
        raise KeyError

    file = tmp_path / "servers.json"
    file.write_text('{"callboard": {"start": "lazy"}, "mcpServers": {}}')
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ListCaches.at_home() == ListCaches(tmp_path / ".cache" / "callboard" / "lists")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert ListCaches.at_home() is None
    assert Broker.of_file(file).caches is None
