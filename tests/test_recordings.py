"""The pictures of terminals in the documentation: of real commands, and of nobody's machine."""

import getpass
import re
import runpy
import shutil
import socket
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import pytest

from tests.shared import ROOT

IMAGES: Final = ROOT / "docs" / "images"
SCRIPT: Final[dict[str, Any]] = runpy.run_path(str(ROOT / "docs" / "recordings.py"))

needs_terminal = pytest.mark.skipif(shutil.which("setsid") is None, reason="there is no setsid to give it a terminal")


def test_every_recording_is_there_and_shown_and_none_beside_them() -> None:
    there = {file.name for file in IMAGES.iterdir()}
    pictures = runpy.run_path(str(ROOT / "docs" / "screenshots.py"))["PICTURES"]
    terminals = {f"{name}.svg" for name in SCRIPT["RECORDINGS"]}
    assert there == terminals | {f"{name}.png" for name in pictures} | {"report.png", "rooms.svg", "walk.svg"}
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    assert set(re.findall(r"images/(\S+?)\)", pages)) == there


@pytest.mark.parametrize("name", SCRIPT["RECORDINGS"])
def test_a_recording_tells_nothing_of_a_machine_and_fetches_nothing(name: str) -> None:
    drawn = (IMAGES / f"{name}.svg").read_text(encoding="utf-8")
    text = " ".join("".join(ElementTree.fromstring(drawn).itertext()).split()).replace("\xa0", " ")  # noqa: S314 - ours
    assert "$ callboard" in text
    for word in (str(ROOT), str(Path.home()), socket.gethostname(), f"{getpass.getuser()}@", "/tmp", "Traceback"):  # noqa: S108
        assert word not in text
    assert not re.search(r"@import|@font-face|href=|<script|url\((?!#)", drawn)


@needs_terminal
async def test_what_is_recorded_is_what_is_shown_today() -> None:
    """Of the one that has no times in it."""
    assert await SCRIPT["record"]("list") == (IMAGES / "list.svg").read_text(encoding="utf-8"), (
        "run: python docs/recordings.py"
    )
