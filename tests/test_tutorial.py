"""The tutorial, as a newcomer follows it: files are as a page shows them, and commands say what stands there.

Times, figures of load and ports are a machine's own. `...` on a line of its own stands for any lines.
"""

import re
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

import attrs
import pytest
import trio

from tests.at_terminal import CTRL_C, Terminal, terminal
from tests.served import free_port

TUTORIAL: Final = Path(__file__).resolve().parents[1] / "docs" / "tutorial"
LISTINGS: Final = TUTORIAL / "listings"
PAGES: Final = ("demo.md", "host.md", "connect.md", "broker.md", "bench.md")

PATIENCE: Final = 120.0
"""Seconds for a whole page. The longest takes fifteen, on a machine that does nothing else."""

START_TIME: Final = 30.0
"""Seconds until a server says where it is. It takes one or two."""

COLUMNS: Final = 100
_ASKED: Final = re.compile(r"^(?P<prompt>  \S.*[^\d]:|Send this\?.*:) (?P<typed>\S+)$")

_BLOCK: Final = re.compile(
    r"^(?:<!-- (?P<file>\S+) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_WIDTH: Final = re.compile(r"([ ━─])\1+")
_FIGURE: Final = re.compile(r"[-+]?\d[\d,.]*(?: ?(?:us|ms|s|%|MiB)(?![\w/]))?")

needs_terminal = pytest.mark.skipif(shutil.which("setsid") is None, reason="there is no setsid to give it a terminal")


@attrs.frozen
class Block:
    """What stands between fences, and which file it is taken from."""

    file: str | None
    kind: str
    text: str

    @property
    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """What is typed, and what is shown then."""
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            yield command, shown


def blocks(page: str) -> list[Block]:
    return [Block(**found.groupdict()) for found in _BLOCK.finditer((TUTORIAL / page).read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_files_whole_so_that_they_can_be_typed(page: str) -> None:
    for block in blocks(page):
        if block.kind in ("python", "toml", "json"):
            assert block.file is not None, f"not a file: {block.text}"
            assert block.text == (LISTINGS / block.file).read_text(encoding="utf-8")
        else:
            assert block.kind in ("console", "sh")
            assert block.file is None


def test_every_listing_is_shown_and_every_page_is_tested() -> None:
    shown = {block.file for page in PAGES for block in blocks(page)} - {None}
    assert shown == {file.name for file in LISTINGS.iterdir() if file.is_file()}
    assert set(PAGES) == {file.name for file in TUTORIAL.glob("*.md")}


@needs_terminal
@pytest.mark.parametrize("page", PAGES)
async def test_a_page_can_be_followed(page: str, tmp_path: Path) -> None:
    for listing in LISTINGS.glob("*.*"):
        shutil.copy(listing, tmp_path)
    port, admin = free_port(), free_port()
    with trio.fail_after(PATIENCE):
        async with AsyncExitStack() as stack:
            for block in blocks(page):
                if block.kind == "console":
                    for command, expected in block.commands:
                        command = command.replace("8001", str(admin))
                        shown = [line.replace("8001", str(admin)) for line in expected]
                        await follow(stack, command, shown, port, tmp_path)


async def follow(stack: AsyncExitStack, command: str, expected: list[str], port: int, folder: Path) -> None:
    """Type it, answer what is asked, and compare. What serves goes on serving."""
    typed = command.replace("8000", str(port))
    if command.startswith(("callboard run", "callboard serve")):
        places = "" if "--http" in command else f" --http {port} --ws {port}"
        server = await stack.enter_async_context(serving(typed + places, folder))
        with trio.move_on_after(START_TIME):
            while not like(seen(server, port), expected):
                await server.wait_more()
        assert_like(command, seen(server, port), expected)
        return
    async with shell(typed, folder) as opened:
        for prompt, key in keys(expected):
            await opened.wait_shown(prompt)
            await opened.type(key)
        await opened.wait_ended()
        assert_like(command, seen(opened, port), expected)


def keys(expected: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The prompts of forms, and what the page shows to be typed there. The last line before `Send this?` repeats it."""
    last = max((number for number, line in enumerate(expected) if line.startswith("Send this?")), default=-1)
    for line, after in pairwise([*expected[: last + 1], ""]):
        found = None if "/decline" in line or after.startswith("Send this?") else _ASKED.match(line)
        if found is not None:
            yield found["prompt"].strip(), found["typed"] or ""


@asynccontextmanager
async def shell(command: str, folder: Path) -> AsyncIterator[Terminal]:
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    async with terminal("sh", "-c", command, columns=COLUMNS, cwd=folder, path=path) as opened:
        yield opened


@asynccontextmanager
async def serving(command: str, folder: Path) -> AsyncIterator[Terminal]:
    async with shell(f"exec {command}", folder) as opened:
        yield opened
        await opened.press(CTRL_C)
        assert await opened.wait_ended() == 0, opened.screen


def seen(terminal: Terminal, port: int) -> list[str]:
    lines = [_COLOURS.sub("", line).rstrip() for line in terminal.lines]
    return [line.replace(str(port), "8000") for line in lines if line]


def assert_like(command: str, found: list[str], expected: list[str]) -> None:
    if " bench " in command:
        found = [line for line in found if "were due" not in line]  # a busy machine did not keep the rate
        # How many bars a histogram has depends on how quick the machine is.
        found, expected = ([line for line in lines if "up to " not in line] for lines in (found, expected))
        found, expected = ([_FIGURE.sub("#", _WIDTH.sub(r"\1", line)) for line in lines] for lines in (found, expected))
    assert like(found, expected), "\n".join(["$ " + command, *found, "", "and not", "", *expected])


def like(found: Sequence[str], expected: Sequence[str]) -> bool:
    """Whether the lines are the same, if any lines may stand where `...` stands."""
    if not expected:
        return not found
    if expected[0] == "...":
        return any(like(found[skipped:], expected[1:]) for skipped in range(len(found) + 1))
    return bool(found) and found[0] == expected[0].rstrip() and like(found[1:], expected[1:])


def test_lines_are_compared() -> None:
    """Else the tests above would tell nothing."""
    assert like(["a", "b"], ["a", "b"])
    assert not like(["a", "b"], ["a"])
    assert not like(["a"], ["a", "b"])
    assert like(["x", "y", "a", "z"], ["...", "a", "..."])
    assert not like(["x", "y"], ["...", "a"])
