"""Work that takes long: it reports progress, can be cancelled, and may go on as a task."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import attrs
import trio

from callboard import Context, Server

server = Server("jobs", version="1.0", timeout=3600)  # seconds; by default a request may take ten minutes

RUNNING: set[str] = set()


@attrs.frozen
class Counted:
    """How many lines a folder has."""

    files: int
    lines: int


@server.tool(task="optional")
async def count_lines(folder: str, pause: float = 0.0, *, ctx: Context) -> Counted:
    """Count the lines of all text files in a folder.

    Args:
        folder: Where to look.
        pause: Seconds to wait after each file.
    """
    files = await trio.to_thread.run_sync(lambda: sorted(Path(folder).rglob("*.txt")))
    lines = 0
    RUNNING.add(folder)
    try:
        async for file in ctx.progress(files):  # a progress notification after each
            lines += await trio.to_thread.run_sync(_lines, file)
            await ctx.log("info", f"{file.name}: {lines} lines so far")
            await trio.sleep(pause)  # a cancelled call stops at any `await`
    finally:
        RUNNING.discard(folder)  # runs also when the client cancels, disconnects, or the time is over
    return Counted(len(files), lines)


@server.tool
def digest(path: str, *, ctx: Context) -> str:
    """The SHA-256 of a large file. A plain function has a thread of its own."""
    digested = hashlib.sha256()
    for count, block in enumerate(_blocks(path), 1):
        digested.update(block)
        trio.from_thread.run(ctx.report, count)  # a thread cannot await
        trio.from_thread.check_cancelled()  # nor is it stopped from outside: it has to look
    return digested.hexdigest()


def _blocks(path: str) -> Iterator[bytes]:
    with Path(path).open("rb") as file:
        while block := file.read(1 << 20):
            yield block


def _lines(file: Path) -> int:
    with file.open("rb") as opened:
        return sum(1 for _ in opened)


if __name__ == "__main__":
    server.run()
