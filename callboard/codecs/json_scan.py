"""What JSON allows and we do not: one look at a frame before anything trusts it.

msgspec checks the grammar, escapes and lone surrogates as it skips over a raw payload, but lets bad UTF-8, numbers that
no double can hold, integers that Python refuses to print, and any depth pass. A payload that we only forward would
carry them to somebody else's parser, so they are refused here, at the door.

Everything is a handful of C-speed passes over the bytes (`find`, `translate`, `replace`, `split`): no Python code runs
once per byte, so that four mebibytes cannot stall the event loop. Most frames are shown to be harmless as they are,
strings included; only one that arouses suspicion has its strings cut out and is looked at closely.
"""

from typing import Final

import msgspec
from msgspec import Raw

from callboard.errors import FrameTooLarge, ParseError

MAX_DEPTH: Final = 64
"""Deepest nesting. Real messages stay under ten; parsers downstream recurse and fail at a few hundred."""

MAX_DIGITS: Final = 4300
"""Longest integer, as msgspec and Python have it: the cost of turning longer text into an int is quadratic."""

MAX_SEPARATORS: Final = 100_000
"""Most commas outside strings. Four MiB of small integers would otherwise cost 125 ms to decode."""

MAX_EXTREMES: Final = 1000
"""Most numbers that are very long or have an exponent of three digits: msgspec takes up to 18 us for each."""

_open = msgspec.json.Decoder(dict[str, Raw]).decode


def _all_but(kept: bytes) -> bytes:
    return bytes(byte for byte in range(256) if byte not in kept)


# Depth: braces count as brackets. That they match is for the parser to say.
_AS_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKET: Final = _all_but(b"[]{}")
_NOT_BRACKET_OR_QUOTE: Final = _all_but(b'[]{}"')

# Numbers, reduced to what can make one too large: every digit is a 0, every exponent an e, its plus sign is gone.
# Minus and the separators stay, so that what they keep apart does not run together.
_NOT_NUMERIC: Final = _all_but(b"0123456789eE-,:")
_REDUCED: Final = bytes.maketrans(b"123456789E", b"000000000e")
# An exponent of two digits cannot leave the range of a double, 1.8e308, unless the number itself is that long.
_LONG_EXPONENT: Final = b"0e000"
_LONG_NUMBER: Final = b"0" * 200
_BRACE: Final = ord("{")
_QUOTE: Final = ord('"')


def check_frame(frame: bytes) -> None:
    """Refuse a frame that is not UTF-8 or holds too many values. Comes before any parsing.

    Raises `ParseError` or `FrameTooLarge`.
    """
    if not frame.isascii():
        _check_utf8(frame)
    if len(frame) > MAX_SEPARATORS and frame.count(b",") > MAX_SEPARATORS:
        _check_separators(outside_strings(frame))


def check_value(value: Raw, depth: int = MAX_DEPTH) -> None:
    """Refuse a value that nests deeper than *depth* or has a number that no double can hold.

    Comes after parsing: *value* is known to be JSON, so its brackets match and its strings end.

    Raises `ParseError`.
    """
    data = bytes(value)
    if _has_few_openers(data, depth):
        structure = outside_strings(data)
    elif _is_plainly_shallow(data, depth):
        structure = data
    else:
        structure = _checked_structure(data, depth)
    if not _has_plainly_small_numbers(structure):
        _check_numbers(data)


def outside_strings(frame: bytes) -> bytes:
    """Return *frame* without its strings: what is left is brackets, separators, numbers and literals."""
    if b"\\" in frame:
        # Pairs from the left, as a parser reads them; then every quote that is left opens or closes a string.
        frame = frame.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(frame.split(b'"')[::2])


def _check_utf8(frame: bytes) -> None:
    try:
        frame.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ParseError(f"invalid UTF-8 at byte {error.start}") from None


def _check_separators(structure: bytes) -> None:
    if structure.count(b",") > MAX_SEPARATORS:
        raise FrameTooLarge("number of values", limit=MAX_SEPARATORS)


def _has_few_openers(data: bytes, depth: int) -> bool:
    """Whether *data*, strings included, opens at most *depth* brackets, and so cannot nest deeper."""
    if len(data) <= 2 * depth:
        return True
    opened = 0
    for opener in (b"{", b"["):
        at = data.find(opener)
        while at >= 0:
            opened += 1
            if opened > depth:
                return False
            at = data.find(opener, at + 1)
    return True


def _is_plainly_shallow(data: bytes, depth: int) -> bool:
    """Whether no string in *data* holds a bracket, and what brackets there are nest at most *depth* deep."""
    if b"\\" in data:
        return False  # a quote may be escaped, and would not pair up
    # A string without brackets inside is two quotes side by side; so are the ends of two such strings.
    brackets = data.translate(_AS_BRACKETS, _NOT_BRACKET_OR_QUOTE).replace(b'""', b"")
    return b'"' not in brackets and _is_shallow(brackets, depth)


def _is_shallow(brackets: bytes, depth: int) -> bool:
    for _ in range(depth):
        brackets = brackets.replace(b"[]", b"")  # peels one level off, from the inside
        if not brackets:
            return True
    return not brackets


def _checked_structure(data: bytes, depth: int) -> bytes:
    """Cut the strings out and look at the brackets that are left."""
    if data[0] == _BRACE:
        # A member that is text, such as a file of code, is full of brackets and escapes: leave it out first.
        members = _open(data).values()
        data = b",".join(bytes(member) for member in members if memoryview(member)[0] != _QUOTE)
        depth -= 1
    structure = outside_strings(data)
    if not _is_shallow(structure.translate(_AS_BRACKETS, _NOT_BRACKET), depth):
        raise ParseError(f"nested deeper than {MAX_DEPTH} levels")
    return structure


def _has_plainly_small_numbers(data: bytes) -> bool:
    """Whether nothing in *data*, strings included, looks like a number past the range of a double."""
    numbers = data.translate(_REDUCED, _NOT_NUMERIC)
    if _LONG_NUMBER in numbers:
        return False
    # Not a search for _LONG_EXPONENT: where zeros abound, a pattern that ends in one is found three times slower.
    at = numbers.find(b"0e")
    while at >= 0:
        if numbers.startswith(b"000", at + 2):
            return False
        at = numbers.find(b"0e", at + 2)
    return True


def _check_numbers(data: bytes) -> None:
    """Read every number, at the price of reading everything else too."""
    numbers = outside_strings(data).translate(_REDUCED, _NOT_NUMERIC)
    extremes = numbers.count(_LONG_EXPONENT) + numbers.count(_LONG_NUMBER)
    if extremes > MAX_EXTREMES:
        raise FrameTooLarge("number of extreme values", limit=MAX_EXTREMES)
    try:
        msgspec.json.decode(data)
    except msgspec.ValidationError:
        raise ParseError("a number out of range") from None
