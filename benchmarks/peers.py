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


def environment(*requirements: str) -> Path:
    """The Python of an environment with these packages, made on first use. Raises CalledProcessError."""

    def fill(folder: Path) -> None:
        print(f"installing {', '.join(requirements)} ...", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *requirements], check=True, timeout=INSTALL_TIME)

    return once(CACHE / "+".join(requirements).replace("==", "-").replace("/", "_"), fill) / "bin" / "python"


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
