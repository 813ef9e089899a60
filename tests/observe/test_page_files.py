"""The files of the live page: few, short, all of them shipped and served, and without a way to make names markup."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
import trio

from tests.observe.test_show_room import place
from tests.process import CALLBOARD, started
from tests.shared import ROOT

FOLDER: Final = ROOT / "callboard" / "observe" / "page"
FILES: Final = sorted(FOLDER.iterdir())
LONGEST: Final = 500
MARKUP: Final = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\b|new Function|\.href\b"
)
ELSEWHERE: Final = re.compile(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_is_short_asks_for_nothing_elsewhere_and_makes_no_markup_of_text(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LONGEST
    assert max(map(len, text.splitlines())) < 300
    assert not ELSEWHERE.search(text)
    assert not MARKUP.search(text)


def test_the_page_has_no_script_or_style_of_its_own() -> None:
    text = (FOLDER / "page.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|<script(?![^>]*\ssrc=)", text)


async def test_every_file_is_served_and_every_one_that_is_named_exists() -> None:
    text = "".join(file.read_text(encoding="utf-8") for file in FILES)
    named = re.findall(r'(?:from "\./|src="|rel="stylesheet" href=")(\w+\.\w+)"', text)
    assert {"page.html", *named} == {file.name for file in FILES}
    async with place() as here:
        for file in FILES:
            path = "/" if file.name == "page.html" else f"/{file.name}"
            answer = await here.ask(path)
            assert answer.status == 200
            assert answer.body == file.read_bytes()
            assert answer.headers["content-type"].startswith("text/")
            assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_the_wheel_has_the_page(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("callboard-*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert {file.relative_to(ROOT).as_posix() for file in FILES} <= inside


def _luminance(colour: str) -> float:
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_has_the_contrast_of_wcag_aa(scheme: int) -> None:
    css = (FOLDER / "page.css").read_text(encoding="utf-8")
    block = re.findall(r":root \{(.*?)\}", css, re.DOTALL)[scheme]
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
    grounds = [(ink, ground) for ink in ("ink", "quiet") for ground in ("paper", "surface", "raised")]
    grounds += [(tone, f"{tone}-tint") for tone in ("good", "warn", "bad", "idle")]
    grounds += [("bad", "surface"), ("warn", "surface"), ("accent", "surface"), ("paper", "accent")]
    for ink, ground in grounds:
        high, low = sorted((_luminance(colours[ink]), _luminance(colours[ground])), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, ground)


async def test_the_banner_of_a_broker_has_the_address_of_the_page() -> None:
    async with started(*CALLBOARD, "serve", "--http", "0", "--admin", "0") as process:
        while (found := re.match(rb" +admin +(http://\S+)$", await process.line() or b"ended")) is None:
            pass
        url = urlsplit(found[1].decode())
        async with await trio.open_tcp_stream(url.hostname or "", url.port or 0) as stream:
            await stream.send_all(f"GET {url.path} HTTP/1.1\r\nhost: {url.netloc}\r\n\r\n".encode())
            assert b"200 OK" in await stream.receive_some()
        process.signal()
