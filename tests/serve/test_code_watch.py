"""Reloading: changed code serves, calls in flight are finished, and code that does not start changes nothing."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import trio
from trio.testing import MockClock

import callboard
from callboard.serve.code_watch import CodeWatch, loaded_files
from tests.process import CALLBOARD, started
from tests.process import callboard as command

APP: Final = """
import trio
from callboard import Context, Server
from words import WORD
mcp = Server("s")

@mcp.tool
async def word() -> str:
    return WORD

@mcp.tool
async def slow(ctx: Context) -> str:
    await ctx.report(1)
    while not {released!r}.exists():
        await trio.sleep(0.02)
    return WORD
"""


def write(file: Path, text: str, at: int) -> None:
    """As an editor does, at another time than before."""
    file.write_text(text)
    os.utime(file, ns=(at * 10**9, at * 10**9))


async def test_each_change_is_told_once_when_the_files_have_settled(autojump_clock: MockClock, tmp_path: Path) -> None:
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    write(one, "", 1)
    write(two, "", 1)
    told: list[list[str]] = []

    def changed(files: Sequence[str]) -> None:
        told.append([Path(file).name for file in files])

    watch = CodeWatch(changed)
    watch.served([str(one)])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        await trio.sleep(0.9)
        write(one, "x", 2)
        await trio.sleep(0.15)  # it was seen, and has not settled
        write(one, "xy", 3)
        await trio.sleep(1)
        assert told == [["one.py"]]
        write(two, "x", 2)  # which the server did not import
        one.unlink()
        await trio.sleep(1)
        assert told == [["one.py"]]
        write(one, "again", 4)
        await trio.sleep(1)
        assert told == [["one.py"]] * 2
        watch.failed()
        await trio.sleep(1)
        write(two, "mended", 3)
        await trio.sleep(1)
        assert told[2:] == [["two.py"]]
        nursery.cancel_scope.cancel()


def test_files_of_libraries_are_not_watched() -> None:
    files = loaded_files()
    assert __file__ in files
    assert not [file for file in files if "site-packages" in file or file.endswith(("trio/__init__.py", "/os.py"))]
    assert callboard.__file__ not in files


async def word(url: str) -> str:
    async with callboard.connect(url) as client:
        result: Any = await client.call("word")
        text: str = result.content[0].text
        return text


async def test_new_code_serves_and_a_call_in_flight_is_finished_by_the_old(tmp_path: Path) -> None:
    released = tmp_path / "released"
    (tmp_path / "app.py").write_text(APP.format(released=released).replace("PosixPath(", "__import__('pathlib').Path("))
    words = tmp_path / "words.py"
    write(words, 'WORD = "one"\n', 1)
    flags = ("--http", "0", "--json", "--reload")
    async with started(*CALLBOARD, "run", str(tmp_path / "app.py"), *flags, patience=90) as process:
        url = (await process.hear())["listening"][0]["url"]
        assert await word(url) == "one"
        async with callboard.connect(url) as client:
            async with client.call("slow") as call:
                await anext(aiter(call.progress))
                write(words, 'WORD = "two"\n', 2)
                await process.wait_said(b"generation=2")
                while await word(url) != "two":  # noqa: ASYNC110  # of another process
                    await trio.sleep(0.02)
                released.touch()
            finished: Any = call.result
            assert finished.content[0].text == "one"
        write(words, "WORD = (\n", 3)
        await process.wait_said(b"words.py:1: SyntaxError: '(' was never closed")
        await process.wait_said(b"the older one goes on")
        assert await word(url) == "two"
        write(words, 'WORD = "three"\n', 4)
        while await word(url) != "three":  # noqa: ASYNC110  # of another process
            await trio.sleep(0.02)
        process.signal()
        assert await process.wait() == 0


def test_over_stdio_there_is_nothing_to_reload(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("")
    done = command("run", str(tmp_path / "app.py"), "--reload")
    assert done.returncode == 2
    assert done.stderr == "callboard: --reload needs --http or --ws: over stdio the client starts the process\n"
