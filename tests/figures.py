"""The figures that tests of promises take: each is printed at once, and all of them in one table at the end of a run.

`CALLBOARD_LONG=1` takes the long forms, which `make soak` runs.
"""

import os
import re
from typing import Final

LONG: Final = bool(os.environ.get("CALLBOARD_LONG"))

BUSY: Final = 1.0 if LONG else 8.0
"""Factor on promised times in the short forms: other tests run on the same cores meanwhile."""

_taken: list[tuple[str, str, str]] = []


def figure(promise: str, found: str, wanted: str = "") -> None:
    """Print what was *found* about a promise, and what is *wanted*; and keep both for the table."""
    _taken.append((promise, found, wanted))
    print(f"\n{_line(promise, found, wanted)}", end="")  # noqa: T201 -- the figure is what the test is for


def table() -> list[str]:
    """A line for each figure of this run, in the order of the promises."""
    return [_line(promise, found.partition("\n")[0], wanted) for promise, found, wanted in sorted(_taken, key=_order)]


def _line(promise: str, found: str, wanted: str) -> str:
    return f"{promise}: {found}{f' (wanted: {wanted})' if wanted else ''}"


def _order(figure: tuple[str, str, str]) -> tuple[bool, int, str]:
    number = re.fullmatch(r"promise (\d+)", figure[0])
    return number is None, int(number[1]) if number else 0, figure[0]
