"""The names of many backends in one list: which prefix they get, which are refused, and which look alike."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from callboard.codecs.bridge.confusables import CONFUSABLES

MAX_NAME: Final = 64
"""Longest name that a client is shown, in characters. Some model APIs take no longer ones."""

MAX_READABLE: Final = 1024
"""Longest name of a backend's that is taken at all, in characters. A longer one is unreadable."""

MAX_SKELETONS: Final = 32_768
"""Names with a remembered skeleton: they are compared whenever any list changes."""

SEPARATOR: Final = "__"
_DIGEST: Final = 8  # hex digits
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})  # controls, zero width, bidi, unassigned
# Default_Ignorable_Code_Point of Unicode 16, which `unicodedata` does not have, and the blank Braille pattern: they are
# drawn as nothing, though some are letters or marks by their category.
_BLANK_RANGES: Final = (
    *((0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
    *((0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x2800, 0x2800), (0x3164, 0x3164), (0xFE00, 0xFE0F)),
    *((0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A)),
)
_TAGS: Final = (0xE0000, 0xE0FFF)  # and the later variation selectors
_BLANK: Final = re.compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in (*_BLANK_RANGES, _TAGS)) + "]")
_LINES: Final = frozenset("\n\r\t")
_NO_LINES: Final = dict.fromkeys(map(ord, _LINES))
_JOINERS: Final = frozenset("\u200c\u200d")
_EMOJI_STYLES: Final = frozenset("\ufe0e\ufe0f")
_ASCII: Final = bytes(ord(chr(code).translate(CONFUSABLES)) if code < 128 else code for code in range(256))
# East Asian texts mix these, and Latin with them: the "highly restrictive" profile of UTS 39.
_EAST_ASIAN: Final = frozenset({"LATIN", "CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO"})


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
    """Why *name* is never shown: it is empty, or looks like what it is not. None if it is fine."""
    if not name or len(name) > MAX_READABLE:
        return "is empty or too long"
    if name != name.strip():
        return "starts or ends with a space"
    if name.isascii() and name.isprintable():
        return None
    if any(_is_hidden(letter) for letter in name):
        return "has invisible characters"
    if unicodedata.normalize("NFKC", name) != name:
        return "has compatibility characters"
    scripts = {unicodedata.name(letter, "").split(" ")[0] for letter in name if unicodedata.category(letter)[0] in "LM"}
    if "COMBINING" in scripts:
        return "has combining marks"
    if len(scripts) > 1 and not scripts <= _EAST_ASIAN:
        return "mixes alphabets"
    return None


@lru_cache(maxsize=MAX_SKELETONS)
def skeleton(name: str) -> str:
    """The skeleton of *name*: two names with the same one look alike (UTS 39, in short)."""
    if name.isascii():
        return name.encode().translate(_ASCII).decode()
    return unicodedata.normalize("NFD", name).translate(CONFUSABLES)


def foresee(prefix: str, names: Iterable[str]) -> None:
    """Find out what *names* look like, alone and behind *prefix*. For a thread: thousands of them take a tenth of a
    second, and when lists are merged there is no time for that."""
    for name in names:
        if not name.isascii():
            skeleton(prefixed("", name))
            skeleton(prefixed(prefix, name))


def hides_text(text: str) -> bool:
    """Whether there are invisible characters in *text*: a model reads them, and people do not.

    Emoji and some scripts need a joiner or a selector here and there, between two characters that are not ASCII. More
    than that is a message of its own: each of 256 variation selectors can stand for a byte.
    """
    is_plain = text.translate(_NO_LINES).isprintable()
    if text.isascii() or (is_plain and _BLANK.search(text) is None):
        return not is_plain
    return any(
        _is_hidden(letter) and letter not in _LINES and not _has_use(text, place) for place, letter in enumerate(text)
    )


def _is_hidden(letter: str) -> bool:
    return unicodedata.category(letter) in _HIDDEN or _BLANK.match(letter) is not None


def _has_use(text: str, place: int) -> bool:
    letter, before, after = text[place], text[place - 1 : place], text[place + 1 : place + 2]
    if letter in _EMOJI_STYLES:
        return before in "#*0123456789" or unicodedata.category(before)[0] in "SP" if before else False
    if letter not in _JOINERS or not before or not after or before.isascii() or after.isascii():
        return False
    return before in _EMOJI_STYLES or not (_is_hidden(before) or _is_hidden(after))
