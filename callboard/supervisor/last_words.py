"""What a process wrote on its standard error before it ended."""

import re
from collections.abc import Sequence
from typing import Final

_TROUBLE: Final = re.compile(
    r"error|fatal|exception|missing|cannot|could not|fail|not found|denied|invalid", re.IGNORECASE
)


_CHATTER: Final = re.compile(r"npm (notice|warn)\b|A complete log of this run", re.IGNORECASE)
"""Lines that npm adds to any failure."""

_NPM: Final = re.compile(r"npm (error|err!)\s", re.IGNORECASE)
_NPM_FIELD: Final = re.compile(r"npm \S+\s+((code|errno|syscall|path|dest)\s+\S+\s*$|\d+\s*$)", re.IGNORECASE)
"""Lines of npm with a code and no reason."""


def telling(said: Sequence[str]) -> str:
    """The line of *said* that tells what went wrong: the last that looks like it, or the last one. npm gives its reason
    first, and advice after it."""
    lines = [line for line in said if line.strip()]
    telling_ones = [line for line in lines if not _CHATTER.search(line)]
    found = next((line for line in reversed(telling_ones) if _TROUBLE.search(line)), None)
    if found is not None and _NPM.match(found.strip()):
        npm = [line for line in telling_ones if _NPM.match(line.strip())]
        return next((line for line in npm if not _NPM_FIELD.match(line.strip())), npm[0])
    return found or (telling_ones or lines or [""])[-1]
