"""What tests install is installed once, and is what the lock files say, from whichever registry a machine uses."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from benchmarks.peers import once

HERE = Path(__file__).resolve().parent
LOCKS = sorted(HERE.rglob("package-lock.json"))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.parent.name)
def test_a_lock_file_names_contents_and_no_registry(lock: Path) -> None:
    packages = json.loads(lock.read_text())["packages"]
    del packages[""]  # the project itself
    assert packages
    assert {name for name, package in packages.items() if "resolved" in package or "integrity" not in package} == set()


def test_a_folder_is_filled_once_however_many_ask(tmp_path: Path) -> None:
    together, filled = Barrier(4), list[Path]()

    def ask(number: int) -> Path:
        together.wait(10)
        return once(tmp_path / "folder", fill)

    def fill(folder: Path) -> None:
        folder.mkdir()
        filled.append(folder)

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(ask, range(4))) == {tmp_path / "folder"}
    assert filled == [tmp_path / "folder"]


def test_a_folder_that_could_not_be_filled_is_filled_again(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        folder.mkdir()
        raise OSError("no network")

    with pytest.raises(OSError, match="no network"):
        once(tmp_path / "folder", fail)
    assert once(tmp_path / "folder", lambda folder: (folder / "here").touch()) == tmp_path / "folder"
    assert (tmp_path / "folder" / "here").exists()
