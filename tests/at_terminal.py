"""A command as a person sees it: at a terminal, which is a pseudo one, with keys to press."""

import codecs
import os
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import attrs
import trio

from tests.fork_server import forked
from tests.process import CALLBOARD, PATIENCE

CTRL_C: Final = "\x03"
_CODES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PIECES: Final = re.compile(r"(\x1b\[[0-9;?]*[A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


@attrs.define(eq=False)
class Terminal:
    """What stands on the screen, and who sits in front of it."""

    process: trio.Process
    keyboard: trio.lowlevel.FdStream
    raw: str = ""
    _seen: int = 0
    _decoder: codecs.IncrementalDecoder = attrs.field(factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"))

    @property
    def screen(self) -> str:
        """What was shown, without what only moves and colours it."""
        return _CODES.sub("", self.raw)

    @property
    def lines(self) -> list[str]:
        """What stands there now: lines that were erased are gone, and those that are left have their colours."""
        found, row = [""], 0
        for code, line_end, text in _PIECES.findall(self.raw):
            if code.endswith("A"):  # up
                row = max(row - int(code[2:-1] or 1), 0)
            elif code.endswith("K"):  # erase
                found[row] = ""
            elif code.endswith("m"):  # colour
                found[row] += code
            elif line_end == "\n":
                row += 1
                found += [""] * (row + 1 - len(found))
            found[row] += text
        return found

    async def wait_shown(self, text: str) -> None:
        """Wait until *text* is shown, behind all that was waited for before."""
        while text not in self.screen[self._seen :]:
            await self._read()
        self._seen = self.screen.index(text, self._seen) + len(text)

    async def type(self, line: str) -> None:
        await self.keyboard.send_all(line.encode() + b"\n")

    async def press(self, key: str) -> None:
        await self.keyboard.send_all(key.encode())

    async def wait_more(self) -> None:
        """Wait until more is shown, whatever it is. Raises EOFError at the end."""
        await self._read()

    async def wait_ended(self) -> int:
        try:
            while True:
                await self._read()
        except EOFError:
            return await self.process.wait()

    async def _read(self) -> None:
        try:
            data = await self.keyboard.receive_some(65_536)
        except trio.BrokenResourceError:  # so a terminal tells that nobody is at its other end
            data = b""
        if not data:
            raise EOFError(f"it ended; {self.screen}")
        self.raw += self._decoder.decode(bytes(data))


@asynccontextmanager
async def at_terminal(*arguments: str, columns: int = 150) -> AsyncIterator[Terminal]:
    """callboard with *arguments* at a terminal of its own, until the block ends. All under `PATIENCE`."""
    with trio.fail_after(PATIENCE):
        async with terminal(*CALLBOARD, *arguments, columns=columns) as opened:
            yield opened


@asynccontextmanager
async def terminal(
    *command: str, columns: int = 150, cwd: Path | None = None, path: str = ""
) -> AsyncIterator[Terminal]:
    """*command* at a terminal of its own, until the block ends."""
    master, slave = os.openpty()
    more = {"TERM": "xterm", "COLUMNS": str(columns), "LINES": "50"} | ({"PATH": path} if path else {})
    environment = {**os.environ, **more}
    environment.pop("NO_COLOR", None)
    try:
        process = await trio.lowlevel.open_process(
            ["setsid", "--ctty", "--wait", *command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            cwd=cwd,
        )
    finally:
        os.close(slave)
    async with trio.lowlevel.FdStream(master) as keyboard:
        try:
            yield Terminal(process, keyboard)
        finally:
            if process.returncode is None:
                process.kill()
                with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
                    await process.wait()


def piped(*arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
    """The same in a pipe, from beginning to end."""
    return subprocess.run(
        [*forked(), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "200", **more},
    )
