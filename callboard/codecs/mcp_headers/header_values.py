"""The text of mirrored header values: `Mcp-Name` and `Mcp-Param-*` of 2026-07-28.

Plain where that is safe, else Base64 between two markers. Nothing that could end a header line or hide in one is
ever written, for any argument.
"""

import base64
import binascii
import re
from typing import Any, Final

from callboard.errors import HeaderMismatch, InvalidParams

MAX_VALUE: Final = 8 * 1024
"""Longest header value written, in bytes. Most HTTP servers refuse a longer line, with less to say about it."""

MAX_SAFE_INTEGER: Final = 2**53 - 1
"""Largest integer that is mirrored: the largest that every JSON parser reads exactly."""

OUTER_SPACE: Final = b" \t"
"""Optional whitespace around a header value."""

_OPEN, _CLOSE = "=?base64?", "?="
_INTEGER: Final = re.compile(r"(-?(?:0|[1-9][0-9]{0,15}))(?:\.0{1,16})?")
_VISIBLE: Final = re.compile(rb"[\x20-\x7e]*")


def encode_value(value: str | int | bool) -> bytes:
    """Write a mirrored value: as it is where that is safe, else in Base64 between the sentinels.

    Raises InvalidParams for what cannot be mirrored: an integer beyond 2**53-1, half a surrogate pair, too long.
    """
    text = value if isinstance(value, str) else _number_text(primitive(value))
    if not is_plain(text):
        try:
            text = _OPEN + base64.b64encode(text.encode()).decode() + _CLOSE
        except UnicodeEncodeError:
            raise InvalidParams("a mirrored argument is not valid text") from None
    if len(text) > MAX_VALUE:
        raise InvalidParams(f"a mirrored argument is longer than {MAX_VALUE} bytes")
    return text.encode()


def decode_value(value: bytes) -> str:
    """Read a mirrored value. Raises HeaderMismatch for characters or Base64 that no client may write."""
    value = value.strip(OUTER_SPACE)
    if not _VISIBLE.fullmatch(value):
        raise HeaderMismatch("Header mismatch: a value has characters that are invalid in a header")
    text = value.decode()
    if len(text) < len(_OPEN + _CLOSE) or not text.startswith(_OPEN) or not text.endswith(_CLOSE):
        return text
    inner = text[len(_OPEN) : -len(_CLOSE)]
    try:
        raw = base64.b64decode(inner, validate=True)
        if base64.b64encode(raw).decode() == inner:  # one spelling only: spare bits must be zero
            return raw.decode()
    except (binascii.Error, UnicodeDecodeError):
        pass
    raise HeaderMismatch("Header mismatch: a value is not canonical Base64 of UTF-8")


def agrees(text: str, value: Any) -> bool:
    """Whether a decoded header says the same as the argument; integers are compared as numbers."""
    if isinstance(value, str):
        return text == value
    if isinstance(value, bool):
        return text == _number_text(value)
    number = _INTEGER.fullmatch(text)
    return number is not None and _is_integer(value) and int(number[1]) == value


def primitive(value: Any) -> str | int | bool:
    """Return an argument as what is mirrored. Raises InvalidParams if it is nothing that can be."""
    if isinstance(value, str | bool):
        return value
    if not _is_integer(value):
        raise InvalidParams("a mirrored argument must be a string, a boolean or an integer within 2**53-1")
    return int(value)


def _is_integer(value: Any) -> bool:
    """Whether a JSON number is an integer that every reader takes for the same one; 42.0 is."""
    return isinstance(value, int | float) and abs(value) <= MAX_SAFE_INTEGER and value == int(value)


def _number_text(value: str | int) -> str:
    return str(value).lower()  # True and False in JSON's spelling


def is_plain(text: str) -> bool:
    """Whether *text* can be written as it is and be read back as nothing else."""
    safe = text.isascii() and text.isprintable() and text == text.strip(" ")
    return safe and not (text.startswith(_OPEN) and text.endswith(_CLOSE))
