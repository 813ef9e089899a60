"""Other people's software, each in a virtual environment of its own, so that none of it constrains ours."""

import fcntl
import json
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent / ".cache" / "peers"

INSTALL_TIME: Final = 600
"""Seconds that one installation may take. A slow index is waited for; one that hangs is not."""


def once(folder: Path, fill: Callable[[Path], None]) -> Path:
    """*folder*, filled on first use: by one process, however many ask at the same time."""
    done = folder / ".installed"
    if not done.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / f"{folder.name}.lock").open("w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            if not done.exists():  # or else another process was first
                fill(folder)
                done.touch()
    return folder


def environment(*requirements: str, alone: tuple[str, ...] = ()) -> Path:
    """The Python of an environment with these packages, made on first use; those that are to come *alone* are installed
    without what they depend on. Raises CalledProcessError."""

    def fill(folder: Path) -> None:
        print(f"installing {', '.join(requirements)} ...", file=sys.stderr)
        venv.create(folder, with_pip=False, clear=True)
        _install(folder, *requirements)
        if alone:
            _install(folder, "--no-deps", *alone)

    return once(CACHE / "+".join((*requirements, *alone)).replace("==", "-").replace("/", "_"), fill) / "bin" / "python"


def _install(folder: Path, *words: str) -> None:
    """Install with uv, which takes 2 s where pip takes 15; or with pip, if only that can: uv reads no pip.conf.

    Raises CalledProcessError.
    """
    python = ("--python", str(folder / "bin" / "python"))
    fast = [sys.executable, "-m", "uv", "pip", "install", "--quiet", *python, *words]
    if subprocess.run(fast, timeout=INSTALL_TIME, check=False).returncode:
        pip = [sys.executable, "-m", "pip", *python, "install", "--quiet", "--disable-pip-version-check", *words]
        subprocess.run(pip, check=True, timeout=INSTALL_TIME)


class Worker:
    """A script of this folder that runs in a peer's environment and answers one JSON line for each."""

    def __init__(self, python: Path, script: str) -> None:
        self._process = subprocess.Popen(
            [python, HERE / script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def ask(self, **question: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()
