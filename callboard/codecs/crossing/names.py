"""The names of many backends in one list: which prefix they get, and which names are refused."""

import hashlib
import unicodedata
from typing import Final

MAX_NAME: Final = 64
"""Longest name that a client is shown, in characters. Some model APIs take no longer ones."""

SEPARATOR: Final = "__"
_DIGEST: Final = 8  # hex digits
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})  # controls, zero width, bidi, unassigned
_LOOK_LATIN: Final = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU")


def prefixed(prefix: str, name: str) -> str:
    """*name* behind *prefix*. One that would be too long keeps its beginning, and ends in a digest of all of it: always
    the same one."""
    whole = f"{prefix}{SEPARATOR}{name}" if prefix else name
    return whole if len(whole) <= MAX_NAME else _with_digest(whole, whole)


def told_apart(prefix: str, name: str) -> str:
    """As `prefixed`, where that is what another one is called, too: it ends in a digest of both."""
    return _with_digest(f"{prefix}{SEPARATOR}{name}", f"{prefix}\0{name}")


def _with_digest(whole: str, of: str) -> str:
    digest = hashlib.sha256(of.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{whole[: MAX_NAME - _DIGEST - 1]}_{digest}"


def problem_with(name: str) -> str | None:
    """Why *name* is not shown to anybody: it is empty, or looks like what it is not. None if it is fine."""
    if not name or len(name) > 1024:
        return "is empty, or longer than anybody could read"
    if name.isascii() and name.isprintable():
        return None
    if any(unicodedata.category(letter) in _HIDDEN for letter in name):
        return "has characters that cannot be seen"
    if unicodedata.normalize("NFKC", name) != name:
        return "is written with characters that stand for others"
    scripts = {unicodedata.name(letter, "").split(" ")[0] for letter in name if letter.isalpha()}
    if "LATIN" in scripts and not scripts.isdisjoint(_LOOK_LATIN):
        return "mixes alphabets that look alike"
    return None


def hides_text(text: str) -> bool:
    """Whether there are characters in *text* that nobody can see: a model reads them, and people do not."""
    if text.isascii():
        return not text.replace("\n", "").replace("\t", "").replace("\r", "").isprintable()
    return any(unicodedata.category(letter) in _HIDDEN and letter not in "\n\r\t\u200d" for letter in text)
