"""The watchdog: a handler that blocks the loop is named while it does; all else is left in peace."""

import threading
from pathlib import Path
from typing import Final

from structlog.testing import capture_logs

import callboard
from callboard import Server
from callboard.serve.watchdog import BLOCKED, Watchdog, handlers_of
from tests.process import CALLBOARD, started


class Loop:
    """A thread that stands for a loop, at a line of a handler's; and a clock that stands still."""

    def __init__(self) -> None:
        self.now = 100.0
        self.release = threading.Event()
        self.server = Server("s")
        inside = threading.Event()

        @self.server.tool
        async def blocks() -> None:
            inside.set()
            self.release.wait(10)

        coroutine = blocks()

        def run() -> None:
            try:
                coroutine.send(None)
            except StopIteration:
                return

        self.thread = threading.Thread(target=run)
        self.thread.start()
        inside.wait(10)
        self.dog = Watchdog(handlers_of(self.server), lambda: self.now)
        self.dog.thread = self.thread.ident or 0
        self.dog.beat()
        self.dog._looked = self.now  # as `run` begins

    def pass_time(self, seconds: float) -> list[dict[str, object]]:
        """Looks as often as the thread does; what it says."""
        with capture_logs() as lines:
            for _ in range(round(seconds / 0.2)):
                self.now += 0.2
                self.dog.look()
        return [dict(line) for line in lines]

    def end(self) -> None:
        self.release.set()
        self.thread.join(10)


def test_a_handler_that_blocks_is_named_once_with_its_line() -> None:
    loop = Loop()
    try:
        assert loop.pass_time(BLOCKED) == []
        (line,) = loop.pass_time(5)
        assert line["event"] == "loop_blocked"
        assert line["handler"] == "blocks"
        assert str(line["where"]).startswith("test_watchdog.py:")
        assert str(line["where"]).endswith(" blocks")
    finally:
        loop.end()


def test_a_handler_of_a_mounted_server_is_named_as_it_is_shown() -> None:
    other, main = Server("other"), Server("main")

    @other.tool
    async def one() -> None: ...

    @other.tool
    async def two() -> None: ...

    main.mount(other, prefix="o")
    assert dict(handlers_of(main)()) == {one.__code__: "o__one", two.__code__: "o__two"}


def test_a_machine_that_stood_still_is_not_told() -> None:
    loop = Loop()
    try:
        loop.now += 60
        with capture_logs() as lines:
            loop.dog.look()
        assert lines == []
    finally:
        loop.end()


def test_waiting_in_our_own_code_is_not_told() -> None:
    dog, now = Watchdog(dict), 0.0
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        dog.clock, dog.thread = (lambda: now), thread.ident or 0
        with capture_logs() as lines:
            for _ in range(20):
                now += 0.2
                dog.look()
        assert lines == []
    finally:
        ended.set()
        thread.join()


APP: Final = """
import time
from callboard import Server
server = Server("s")

@server.tool
async def naps() -> str:
    time.sleep(1.2)
    return "slept"
"""


async def test_a_running_server_says_which_tool_blocks_it(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    async with started(*CALLBOARD, "run", str(tmp_path / "app.py"), "--http", "0", "--json") as process:
        url = (await process.hear())["listening"][0]["url"]
        async with callboard.connect(url) as client:
            await client.call("naps")
        process.signal()
        assert await process.wait() == 0
        await process.wait_said(b"handler=naps")
    assert "where='app.py:8 naps'" in process.words
