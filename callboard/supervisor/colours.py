"""Tracebacks in colour, for a terminal."""

import os
import re
import sys
from collections.abc import MutableMapping
from typing import Any, Final

_BOLD_RED: Final = "\x1b[1;31m"
_CYAN: Final = "\x1b[36m"
_DIM: Final = "\x1b[2m"
_RED: Final = "\x1b[31m"
_END: Final = "\x1b[0m"

_PLACE: Final = re.compile(r'^([\s|+-]*)File "(.*)", line (\d+)(?:, in (.*))?$')
_MARK: Final = re.compile(r"^[\s|]*[~^]+$")
_ERROR: Final = re.compile(r"^(?:\s*\| ?)?[A-Za-z_][\w.]*(?:: |$)")


def shows_colours() -> bool:
    """Whether standard error is a terminal, and colours are not unwanted there."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError, OSError):  # there is none, or it is closed
        return False


def coloured(text: str) -> str:
    """A traceback with places, marks and the exception in colours of their own. Other text stays as it is."""
    lines = text.split("\n")
    return "\n".join(map(_line, lines)) if "Traceback (most recent call last)" in text else text


def _line(line: str) -> str:
    place = _PLACE.match(line)
    if place is not None:
        margin, file, number, function = place.groups()
        inside = f" in {_CYAN}{function}{_END}" if function else ""
        return f"{margin}{_DIM}{file}:{_END}{_CYAN}{number}{_END}{inside}"
    if _MARK.match(line):
        return f"{_RED}{line}{_END}"
    if _ERROR.match(line):
        return f"{_BOLD_RED}{line}{_END}"
    return line


def colour_exception(_: Any, __: str, facts: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Processor of log lines: the traceback of one, if it has any."""
    if isinstance(facts.get("exception"), str):
        facts["exception"] = coloured(facts["exception"])
    return facts
