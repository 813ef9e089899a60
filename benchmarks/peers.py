"""Other people's software, each in a virtual environment of its own, so that none of it constrains ours."""

import json
import subprocess
import sys
import venv
from pathlib import Path
from types import TracebackType
from typing import Any, Self

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent / ".cache" / "peers"


def environment(*requirements: str) -> Path:
    """The Python of an environment with these packages, made on first use. Raises CalledProcessError."""
    folder = CACHE / "+".join(requirements).replace("==", "-").replace("/", "_")
    python = folder / "bin" / "python"
    if not (folder / ".installed").exists():
        print(f"installing {', '.join(requirements)} ...", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements], check=True
        )
        (folder / ".installed").touch()
    return python


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
