"""When a file is read anew, to the second; and what has changed then."""

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.config import Configuration, difference
from callboard.config.watch import POLL, SETTLE, Watcher, Why, watching
from callboard.transports.signals import heed_hangups
from tests.config.files import read

needs_hangups = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "servers.toml"
    path.write_text("one")
    return path


@asynccontextmanager
async def heard(file: Path) -> AsyncIterator[list[tuple[float, Why]]]:
    """What a watcher tells, and when."""
    found: list[tuple[float, Why]] = []
    start = trio.current_time()

    def note(why: Why) -> None:
        found.append((trio.current_time() - start, why))

    async def listen(watcher: Watcher) -> None:
        async for why in watcher:
            note(why)

    with watching(file) as watcher:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen, watcher)
            yield found
            nursery.cancel_scope.cancel()


def written(file: Path, text: str) -> None:
    file.write_text(text)


def moved(file: Path, to: Path) -> None:
    file.rename(to)


def replaced(file: Path) -> None:
    """By another of the same size and time, as a deployment does it."""
    times = file.stat()
    beside = file.with_suffix(".new")
    beside.write_text("two")
    os.utime(beside, ns=(times.st_atime_ns, times.st_mtime_ns))
    beside.replace(file)


def touched(file: Path) -> None:
    os.utime(file, ns=(1, 1))


def longer(file: Path) -> None:
    times = file.stat()
    file.write_text("longer")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize("change", [replaced, touched, longer])
async def test_a_change_is_told_once_soon_and_nothing_else_is(
    file: Path, change: Callable[[Path], None], autojump_clock: MockClock
) -> None:
    async with heard(file) as found:
        await trio.sleep(10 + POLL / 2)
        assert found == []
        change(file)
        await trio.sleep(60)
        assert found == [(10 + POLL + SETTLE, Why.CHANGED)]


async def test_a_file_that_is_still_being_written_is_waited_for(file: Path, autojump_clock: MockClock) -> None:
    async with heard(file) as found:
        for size in range(1, 21):  # from 0.9 s to 2.8 s
            await trio.sleep(0.1 if size > 1 else 0.9)
            written(file, "x" * (10 + size))
        assert found == []
        await trio.sleep(10)
        assert [why for _, why in found] == [Why.CHANGED]
        assert 2.8 + SETTLE <= found[0][0] <= 2.8 + 2 * SETTLE + 0.01


async def test_a_file_that_is_gone_is_told_when_it_is_back_and_another_one(
    file: Path, autojump_clock: MockClock
) -> None:
    aside = file.with_suffix(".old")
    async with heard(file) as found:
        moved(file, aside)
        await trio.sleep(5.5)
        assert found == []
        moved(aside, file)
        await trio.sleep(5)
        assert found == []
        moved(file, aside)
        await trio.sleep(5)
        written(file, "another one")
        await trio.sleep(5)
        assert [why for _, why in found] == [Why.CHANGED]


@needs_hangups
async def test_a_signal_is_told_at_once_even_if_nothing_changed_and_several_are_one(
    file: Path, autojump_clock: MockClock
) -> None:
    async with heard(file) as found:
        await trio.sleep(10.5)
        for _ in range(5):
            os.kill(os.getpid(), signal.SIGHUP)
        await trio.sleep(30)
        assert found == [(10.5 + SETTLE, Why.ASKED)]
        os.kill(os.getpid(), signal.SIGHUP)
        await trio.sleep(30)
        assert [why for _, why in found] == [Why.ASKED, Why.ASKED]


@needs_hangups
async def test_a_change_and_a_signal_at_once_are_one(file: Path, autojump_clock: MockClock) -> None:
    async with heard(file) as found:
        await trio.sleep(0.5)
        written(file, "another one")
        os.kill(os.getpid(), signal.SIGHUP)
        await trio.sleep(30)
        assert found == [(0.5 + SETTLE, Why.ASKED)]


@needs_hangups
async def test_signals_are_heard_again_by_whom_they_were_before() -> None:
    before = signal.getsignal(signal.SIGHUP)
    with heed_hangups() as hangups:
        os.kill(os.getpid(), signal.SIGHUP)
        with trio.fail_after(5):
            await hangups.receive()
    assert signal.getsignal(signal.SIGHUP) == before


async def test_another_thread_hears_no_signal_and_may_watch_all_the_same(file: Path) -> None:
    def elsewhere() -> str:
        async def main() -> str:
            with watching(file) as watcher:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(watcher.wait_changed)
                    await wait_all_tasks_blocked()
                    nursery.cancel_scope.cancel()
            return "watched"

        return trio.run(main)

    assert await trio.to_thread.run_sync(elsewhere) == "watched"


# What changed.


def configured(folder: Path, **urls: str) -> Configuration:
    return read(folder, "[servers]\n" + "".join(f'{name}.url = "{url}"\n' for name, url in urls.items()))


def test_the_difference_is_what_came_what_went_and_what_is_another_by_name(tmp_path: Path) -> None:
    old = configured(tmp_path, gone="http://h/", same="http://h/", other="http://h/")
    new = configured(tmp_path, other="http://i/", new="http://h/", same="http://h/")
    found = difference(old, new)
    assert [spec.name for spec in found.added] == ["new"]
    assert [spec.name for spec in found.removed] == ["gone"]
    assert [spec.target for spec in found.changed] == [new.backends[0].target]
    assert found
    assert not difference(new, new)
    assert not difference(old, configured(tmp_path, other="http://h/", gone="http://h/", same="http://h/"))
