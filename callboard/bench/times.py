"""Times as people write them."""

import re
from typing import Final

HOW: Final = "expected 500ms, 10s, 2m, or a number of seconds"

_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)?")
_UNITS: Final = {"ms": 1e-3, "s": 1.0, "m": 60.0}


def read_time(text: str) -> float | None:
    """Seconds; None for what is no time."""
    found = _TIME.fullmatch(text.strip())
    return None if found is None else float(found[1]) * _UNITS[found[2] or "s"]
