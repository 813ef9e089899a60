"""What a process wrote on its standard error before it ended."""

import re
from collections.abc import Sequence
from typing import Final

_TROUBLE: Final = re.compile(
    r"error|fatal|exception|missing|cannot|could not|fail|not found|denied|invalid", re.IGNORECASE
)


def telling(said: Sequence[str]) -> str:
    """The line of *said* that tells what went wrong: the last that looks like it, or the last one."""
    lines = [line for line in said if line.strip()]
    return next((line for line in reversed(lines) if _TROUBLE.search(line)), lines[-1] if lines else "")
