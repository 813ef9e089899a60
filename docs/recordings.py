"""Write `images/*`: what the tutorial's commands show at a terminal, and the page of `bench`. They are run for that.

python docs/recordings.py [NAME ...]
"""

import io
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio
from rich.console import Console
from rich.text import Text

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

# They are no part of the package.
from tests.at_terminal import CTRL_C, Terminal, terminal  # noqa: E402
from tests.browser import Box, browser  # noqa: E402

IMAGES: Final = ROOT / "docs" / "images"
LISTINGS: Final = ROOT / "docs" / "tutorial" / "listings"
COLUMNS: Final = 100
LONGEST: Final = 60.0
"""Seconds for one recording."""

PAGE_WIDTH: Final = 960

URL: Final = "http://127.0.0.1:8000/mcp"
SERVE: Final = "callboard serve servers.toml"
BENCH: Final = f"callboard bench {URL} --concurrency 8 --duration 5s"
REPORT: Final = f"callboard bench {URL} --rate 300 --duration 20s"
CALL: Final = f"callboard call {URL} desk__borrow book=emma"

_ANONYMOUS: Final = """
[...document.querySelectorAll("dl div")].filter(row => ["date", "machine"].includes(row.firstChild.textContent))
  .forEach(row => row.remove())
"""
"""The picture is of no machine in particular, and of no day."""

_FONTS: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


@asynccontextmanager
async def typed(command: str, folder: Path) -> AsyncIterator[Terminal]:
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    async with terminal("sh", "-c", f"exec {command}", columns=COLUMNS, cwd=folder, path=path) as opened:
        yield opened


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Terminal]:
    async with typed(SERVE, folder) as server:
        await server.wait_shown("press Ctrl-C to stop")
        yield server
        await server.press(CTRL_C)
        await server.wait_ended()


async def list_(folder: Path) -> tuple[str, list[str]]:
    async with typed("callboard list library.py", folder) as shown:
        await shown.wait_ended()
        return "callboard list library.py", shown.lines


async def serve(folder: Path) -> tuple[str, list[str]]:
    async with served(folder) as server:
        return SERVE, server.lines


async def call(folder: Path) -> tuple[str, list[str]]:
    async with served(folder), typed(CALL, folder) as shown:
        for prompt, answer in (("name:", "Ada"), ("has_card [no]:", "y"), ("[c]ancel:", "y")):
            await shown.wait_shown(prompt)
            await shown.type(answer)
        await shown.wait_ended()
        return CALL, shown.lines


async def bench(folder: Path) -> tuple[str, list[str]]:
    """In the middle of a run."""
    async with served(folder), typed(BENCH, folder) as shown:
        while not _has_time(shown, "3 of 5 s"):
            await shown.wait_more()
        lines = shown.lines
        await shown.press(CTRL_C)
        await shown.wait_ended()
        return BENCH, lines


def _has_time(shown: Terminal, time: str) -> bool:
    """Whether that moment stands there, all of it: it comes in pieces."""
    text = "\n".join(shown.lines)
    return time in text and "generator CPU" in text[text.index(time) :]


RECORDINGS: Final[dict[str, Callable[[Path], Awaitable[tuple[str, list[str]]]]]] = {
    "list": list_,
    "serve": serve,
    "call": call,
    "bench": bench,
}


def svg(name: str, command: str, lines: list[str]) -> str:
    """A terminal with those lines, which asks for no font from anywhere."""
    console = Console(width=COLUMNS, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ {command}", style="bold"))
    console.print(Text.from_ansi("\n".join(lines).rstrip()))
    drawn = _FONTS.sub("", console.export_svg(title="", unique_id=name))
    return "\n".join(line.rstrip() for line in drawn.splitlines()).strip() + "\n"


async def record(name: str) -> str:
    """Run it, in a folder with the files of the tutorial."""
    with tempfile.TemporaryDirectory() as folder, trio.fail_after(LONGEST):
        for listing in LISTINGS.glob("*.*"):
            shutil.copy(listing, folder)
        return svg(name, *await RECORDINGS[name](Path(folder)))


async def report() -> bytes:
    """The page of a run, as a browser shows it: a picture of few colours, for it is all lines."""
    with tempfile.TemporaryDirectory() as place, trio.fail_after(LONGEST):
        folder = Path(place)
        for listing in LISTINGS.glob("*.*"):
            shutil.copy(listing, folder)
        async with served(folder), typed(f"{REPORT} --html report.html", folder) as shown:
            await shown.wait_ended()
        async with browser() as page:
            await page.open((folder / "report.html").as_uri(), width=PAGE_WIDTH)
            await page.value(_ANONYMOUS)
            height = await page.value("document.documentElement.scrollHeight")
            picture = await page.picture(Box(0, 0, PAGE_WIDTH, height))
    written = io.BytesIO()
    picture.quantize(32).save(written, "png", optimize=True)
    return written.getvalue()


def main(names: list[str]) -> None:
    IMAGES.mkdir(exist_ok=True)
    for name in names or [*RECORDINGS, "report"]:
        if name == "report":
            (IMAGES / "report.png").write_bytes(trio.run(report))
        else:
            (IMAGES / f"{name}.svg").write_text(trio.run(record, name), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
