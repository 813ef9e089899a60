"""The author's files of a running server, and when they change: for `callboard run --reload`."""

import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import attrs
import trio

LOOKED_EVERY: Final = 0.2
"""Seconds between two looks at the files. With `SETTLED` and the start of a process, new code serves in a second."""

SETTLED: Final = 0.1
"""Seconds for which the files must stay as they are: an editor writes in several steps, and often several files."""

MAX_FILES: Final = 2000
"""Files that are watched, at most. A look at one takes two microseconds."""

Stamps: TypeAlias = dict[str, tuple[int, int] | None]

_OURS: Final = str(Path(__file__).resolve().parents[1]) + os.sep


def loaded_files() -> list[str]:
    """The files of all modules that this process has loaded from neither Python, a library nor callboard."""
    ours = (_OURS, *(str(Path(sysconfig.get_path(name)).resolve()) + os.sep for name in ("stdlib", "platstdlib")))
    found = {str(getattr(module, "__file__", None) or "") for module in list(sys.modules.values())}
    files = sorted(file for file in found if file.endswith(".py") and not file.startswith(ours))
    return [file for file in files if not {"site-packages", "dist-packages"} & set(Path(file).parts)][:MAX_FILES]


@attrs.define(eq=False)
class CodeWatch:
    """Tells of each change of the files that the server has loaded."""

    changed: Callable[[Sequence[str]], None]
    """Told which files are others now."""
    _files: tuple[str, ...] = attrs.field(default=(), init=False)
    _is_broken: bool = attrs.field(default=False, init=False)

    def served(self, files: Iterable[str]) -> None:
        """A server started, with these files."""
        self._files, self._is_broken = tuple(files)[:MAX_FILES], False

    def failed(self) -> None:
        """The changed code does not start. What it imports is not known: its neighbours are watched, too."""
        self._is_broken = True

    async def run(self) -> None:
        seen = self._look()
        while True:
            await trio.sleep(LOOKED_EVERY)
            now = self._look()
            if not _changes(seen, now):
                seen |= now
                continue
            while now != (now := await self._later()):
                pass
            changes = _changes(seen, now)
            seen = now
            if changes:
                self.changed(changes)

    async def _later(self) -> Stamps:
        await trio.sleep(SETTLED)
        return self._look()

    def _look(self) -> Stamps:
        files = set(self._files)
        if self._is_broken:
            for folder in {Path(file).parent for file in self._files}:
                files |= {str(one) for one in folder.glob("*.py")}
        return {file: _stamp(file) for file in sorted(files)[:MAX_FILES]}


def _stamp(file: str) -> tuple[int, int] | None:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _changes(seen: Stamps, now: Stamps) -> list[str]:
    """Files that were known, and are others now. One that is gone is about to be written, or is not imported again."""
    return [file for file, stamp in now.items() if stamp is not None and file in seen and seen[file] != stamp]
