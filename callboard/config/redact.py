"""A target for people: as it is written, and without what could be a secret."""

import re
import shlex
from collections.abc import Sequence
from typing import Final
from urllib.parse import SplitResult, urlsplit

_HIDDEN: Final = "***"
_SECRET: Final = re.compile(r"token|secret|passw|key|auth|credential|bearer|header", re.IGNORECASE)
_OPTION: Final = re.compile(r"(?P<name>--?[\w.-]+|[A-Z][A-Z0-9_]*)(?P<value>=.*)?", re.DOTALL)
_REFERENCE: Final = re.compile(r"\$\{[^}]*\}")
_WITH_USER: Final = re.compile(r"(?P<scheme>[a-z+]+://)[^/@\s]*@")


def shown_command(words: Sequence[str]) -> str:
    """As one would type it. What follows `--token` or the like is hidden, unless it only names a variable."""
    shown: list[str] = []
    hides = False
    for word in words:
        option = _OPTION.fullmatch(word)
        is_secret = option is not None and _SECRET.search(option["name"]) is not None
        if hides and not word.startswith("-"):
            shown.append(_hidden(word))
        elif option is not None and is_secret and option["value"]:
            shown.append(f"{option['name']}={_hidden(option['value'][1:])}")
        else:
            shown.append(_WITH_USER.sub(rf"\g<scheme>{_HIDDEN}@", word))
        hides = is_secret and option is not None and option["value"] is None and word.startswith("-")
    return " ".join(word if _REFERENCE.search(word) or word.endswith(_HIDDEN) else shlex.quote(word) for word in shown)


def _hidden(word: str) -> str:
    return word if _REFERENCE.fullmatch(word) else _HIDDEN


def shown_url(url: str) -> str:
    """Without user and password, and without the values of the query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.partition("?")[0]
    host = parts.netloc.rpartition("@")[2]
    netloc = f"{_HIDDEN}@{host}" if "@" in parts.netloc else host
    pairs = [pair.partition("=") for pair in parts.query.split("&") if pair]
    query = "&".join(f"{name}{sign}{_hidden(value) if sign else ''}" for name, sign, value in pairs)
    return SplitResult(parts.scheme, netloc, parts.path, query, "").geturl()
