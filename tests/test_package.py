"""The package as its users get it: built, installed in a clean environment, and used from there."""

import email
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.message import Message
from pathlib import Path
from typing import Final

import pytest
from readme_renderer import markdown

from callboard import __version__
from tests.shared import ROOT

PATIENCE: Final = 600
"""Seconds that an installation may take: a slow index is waited for."""

SERVER: Final = '''
from callboard import Server

server = Server("clean", version="1")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
'''


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(build, check=True, cwd=ROOT, capture_output=True, timeout=PATIENCE)
    return folder


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as opened:
        [name] = [one for one in opened.namelist() if one.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(opened.read(name))


def test_both_files_carry_the_version_that_the_package_says(built: Path) -> None:
    names = {path.name for path in built.iterdir()}
    assert names == {f"callboard-{__version__}-py3-none-any.whl", f"callboard-{__version__}.tar.gz"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__), "a released version"


def test_the_readme_renders_on_a_package_index_and_no_link_of_it_is_dead(built: Path) -> None:
    found = metadata(next(built.glob("*.whl")))
    text = str(found.get_payload())
    html = markdown.render(text)
    assert html is not None
    assert "<table>" in html
    links = re.findall(r'(?:href|src)="([^"]*)"', html)
    assert links
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert "](" not in re.sub(r"\]\(https://[^)]*\)", "", text)


def test_the_metadata_has_a_license_keywords_and_urls(built: Path) -> None:
    found = metadata(next(built.glob("*.whl")))
    assert found["License-Expression"] == "Apache-2.0"
    assert all(url.partition(", ")[2].startswith("https://") for url in found.get_all("Project-URL", []))
    assert found.get_all("Project-URL")
    assert found["Description-Content-Type"] == "text/markdown"


def test_the_sdist_has_what_the_wheel_is_made_of_and_a_change_log(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as opened:
        inside = {name.partition("/")[2] for name in opened.getnames()}
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        assert {name for name in wheel.namelist() if name.startswith("callboard/")} <= inside
    assert {"CHANGELOG.md", "LICENSE", "README.md", "Makefile", "docs/README.md", "tests/conftest.py"} <= inside
    assert not any(name.startswith((".venv", ".cache", "build")) for name in inside)


def test_the_sdist_builds_the_very_same_wheel(built: Path, tmp_path: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as opened:
        opened.extractall(tmp_path, filter="data")
    [source] = tmp_path.iterdir()
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, check=True, cwd=source, capture_output=True, timeout=PATIENCE)
    [wheel] = tmp_path.glob("*.whl")
    assert wheel.read_bytes() == next(built.glob("*.whl")).read_bytes()


def test_it_works_in_a_clean_environment_outside_of_the_repository(built: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "clean", with_pip=True)
    tools = tmp_path / "clean" / "bin"
    install = [str(tools / "python"), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*install, next(built.glob("*.whl"))], check=True, timeout=PATIENCE, cwd=tmp_path, env=_env())
    (tmp_path / "clean.py").write_text(SERVER)

    def said(*words: object) -> str:
        command = [str(word) for word in words]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, cwd=tmp_path, timeout=120, env=_env()
        ).stdout

    assert said(tools / "callboard", "--version").strip() == __version__
    assert said(tools / "callboard", "call", "clean.py", "add", "a=2", "b=3").strip() == "5"
    assert said(tools / "python", "-m", "callboard", "--version").strip() == __version__
    where = said(tools / "python", "-c", "import callboard; print(callboard.__file__, hasattr(callboard, 'Broker'))")
    assert where.startswith(str(tmp_path))
    assert where.split()[1] == "True"


def _env() -> dict[str, str]:
    """Ours, but for what would let a process find the repository."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def test_the_change_log_can_be_written_from_the_news_fragments() -> None:
    draft = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", __version__, "--date", "2026-11-18"]
    done = subprocess.run(draft, check=True, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert f"\n## {__version__}\n" in (ROOT / "CHANGELOG.md").read_text(), "what this version brings"
    kinds = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]["type"]
    fragments = [path for path in (ROOT / "newsfragments").glob("*.*.md") if path.name != "README.md"]
    assert f"## {__version__} (2026-11-18)" in done.stdout
    form = re.compile(rf"\d+\.({'|'.join(kind['directory'] for kind in kinds)})(\.\d+)?\.md")
    assert [path.name for path in fragments if form.fullmatch(path.name) is None] == []
    for path in fragments:
        first = path.read_text().strip().splitlines()[0]
        assert " ".join(first.split()[:4]) in " ".join(done.stdout.split()), path.name
