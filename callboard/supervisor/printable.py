"""Text of others, made fit for terminals and log files."""

import re
from typing import Final

REPLACEMENT: Final = "\ufffd"

_SPOILT: Final = re.compile(r"[^ -~\n\t]")


def clean(text: str) -> str:
    """*text* without what would command a terminal instead of being shown: control, escape and bidi characters.

    Newlines and tabs stay.
    """
    return _SPOILT.sub(_shown, text)


def _shown(found: re.Match[str]) -> str:
    return found[0] if found[0].isprintable() else REPLACEMENT
