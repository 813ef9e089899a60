"""Limits beyond the JSON grammar: one scan of a frame before anything trusts it.

msgspec checks the grammar, escapes and lone surrogates as it skips over a raw payload, but lets bad UTF-8, numbers that
no double can hold, integers that Python refuses to print, and any depth pass. A payload that we only forward would
carry them to another program's parser, so they are refused here.

Everything is a handful of C-speed passes over the bytes (`find`, `translate`, `replace`, `split`): no Python code runs
once per byte, so that four mebibytes cannot stall the event loop. Most frames are shown to be harmless as they are,
strings included; only one that arouses suspicion has its strings cut out and is looked at closely.
"""

import re
from collections.abc import Mapping
from itertools import accumulate
from typing import Final

import msgspec
from msgspec import Raw

from callboard.codecs.members import compact_size
from callboard.errors import FrameTooLarge, ParseError

MAX_DEPTH: Final = 64
"""Deepest nesting. Real messages stay under ten; parsers downstream recurse and fail at a few hundred."""

MAX_DIGITS: Final = 4300
"""Longest integer, as msgspec and Python have it: the cost of turning longer text into an int is quadratic."""

MAX_SEPARATORS: Final = 100_000
"""Most commas outside strings. Four MiB of small integers would otherwise cost 125 ms to decode."""

MAX_CONTAINERS: Final = 100_000
"""Most objects and arrays. Nested in each other they need no comma, and four MiB of them take a second to decode."""

MAX_EXTREMES: Final = 1000
"""Most numbers that are very long or have an exponent of three digits: msgspec takes up to 18 us for each."""

MAX_MODELLED: Final = 10_000
"""Most values in what is read one by one: capabilities, subscriptions, inputs, the arguments of a prompt. Each takes up
to 5 us. The arguments of a tool are not among them."""

SHORT: Final = 1024
"""Up to so many bytes, looking at all of them is cheaper than picking out those that matter."""

_open = msgspec.json.Decoder(dict[str, Raw]).decode


def _all_but(kept: bytes) -> bytes:
    return bytes(byte for byte in range(256) if byte not in kept)


# Every value but the first follows a comma or an opening bracket, and may have a key; as many as there are brackets are
# not text themselves.
_MAX_STRINGS: Final = (1 + MAX_SEPARATORS + MAX_CONTAINERS) + (1 + MAX_SEPARATORS)
_NOT_COUNTED: Final = _all_but(b'[]{},"')

# Depth: braces count as brackets. That they match is for the parser to say.
_AS_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKET_OR_QUOTE: Final = _all_but(b'[]{}"')
_STEP: Final = {ord("["): 1, ord("]"): -1}
_PEELED: Final = 8  # levels: real messages have no more, and deeper ones are counted faster than peeled

# Numbers, reduced to what can make one too large: every digit is a 0, every exponent an e, its plus sign is gone.
# Minus and the separators stay, so that what they keep apart does not run together.
_NOT_NUMERIC: Final = _all_but(b"0123456789eE-,:")
_REDUCED: Final = bytes.maketrans(b"123456789E", b"000000000e")
# An exponent of two digits cannot leave the range of a double, 1.8e308, unless the number itself is that long.
_LONG_EXPONENT: Final = b"0e000"
_LONG_NUMBER: Final = b"0" * 200
_NUMBER: Final = re.compile(rb"[0-9][0-9.]*+(?:[eE][-+]?+[0-9]++)?+")
_BRACE, _QUOTE = b'{"'


def check_frame(frame: bytes) -> None:
    """Refuse a frame that is not UTF-8 or holds too many values. Comes before any parsing.

    Raises `ParseError` or `FrameTooLarge`.
    """
    if not frame.isascii():
        _check_utf8(frame)
    if len(frame) > MAX_SEPARATORS and _may_hold_too_much(frame):
        _check_counts(frame)


def check_value(value: bytes | Raw, depth: int = MAX_DEPTH) -> None:
    """Refuse a value that nests deeper than *depth*, has too many containers, or a number that no double can hold.

    Comes after parsing: *value* is known to be JSON, so its brackets match and its strings end.

    Raises `ParseError` or `FrameTooLarge`.
    """
    data = bytes(value)
    if _has_few_openers(data, depth):
        structure = data if len(data) <= SHORT else outside_strings(data)
    elif b"\\" in data:
        structure = outside_strings(_without_texts(data))
        _check_depth(structure.translate(_AS_BRACKETS, _NOT_BRACKET_OR_QUOTE), depth)
    else:
        structure = data
        _check_depth(_marks(data, _NOT_BRACKET_OR_QUOTE), depth)
    if not _has_plainly_small_numbers(structure):
        _check_numbers(data)


def check_modelled(members: Mapping[str, Raw | bytes], *, but: str = "", most: int = MAX_MODELLED) -> None:
    """Refuse members with too many values to be read one by one, but for the member *but*. They are known to be JSON.

    Raises `FrameTooLarge`.
    """
    values = 0
    for key, value in members.items():
        if key != but:
            data = bytes(value)
            # A value has at least one byte, and a comma or a bracket. Most that are long are one long text.
            if len(data) > most and _marked(data) > most:
                values += _marked(outside_strings(data))
    if values > most:
        raise FrameTooLarge("number of values", limit=most)


def _marked(data: bytes) -> int:
    """Commas and opening brackets: there are no more values than these, but for one."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def outside_strings(json: bytes) -> bytes:
    """Return *json* without its strings: what is left is brackets, separators, numbers and literals.

    Raises `FrameTooLarge` for more strings than a frame of so many values can have.
    """
    return _cut(_unescaped(json))


def _cut(unescaped: bytes) -> bytes:
    if len(unescaped) > 2 * _MAX_STRINGS and unescaped.count(b'"') > 2 * _MAX_STRINGS:
        raise FrameTooLarge("number of strings", limit=_MAX_STRINGS)
    return b"".join(unescaped.split(b'"')[::2])


def _unescaped(json: bytes) -> bytes:
    """Leave out every escape that could confuse quotes: those that are left open and close strings, in turn."""
    if b"\\" in json:
        # Pairs from the left, as a parser reads them.
        json = json.replace(b"\\\\", b"").replace(b'\\"', b"")
    return json


def _check_utf8(frame: bytes) -> None:
    try:
        frame.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ParseError(f"invalid UTF-8 at byte {error.start}") from None


def _may_hold_too_much(frame: bytes) -> bool:
    return frame.count(b",") > MAX_SEPARATORS or frame.count(b"[") + frame.count(b"{") > MAX_CONTAINERS


def _check_counts(frame: bytes) -> None:
    marks = _marks(_unescaped(frame), _NOT_COUNTED)
    if marks.count(b",") > MAX_SEPARATORS:
        raise FrameTooLarge("number of values", limit=MAX_SEPARATORS)
    brackets = marks.replace(b",", b"")
    if brackets.count(b"[") > MAX_CONTAINERS:
        _check_depth(brackets[:MAX_CONTAINERS], MAX_DEPTH)  # what is too deep, too, is told so
        raise FrameTooLarge("number of objects and arrays", limit=MAX_CONTAINERS)


def _marks(unescaped: bytes, unwanted: bytes) -> bytes:
    """Return what stands outside strings and is not *unwanted*, with braces as brackets."""
    # Two quotes side by side may go, whether they are one string or part two: of the rest, the same ones open.
    return _cut(unescaped.translate(_AS_BRACKETS, unwanted).replace(b'""', b""))


def _has_few_openers(data: bytes, depth: int) -> bool:
    """Whether *data*, strings included, opens at most *depth* brackets, and so cannot nest deeper."""
    if len(data) <= SHORT:
        return data.count(b"{") + data.count(b"[") <= depth
    opened = 0
    for opener in (b"{", b"["):
        at = data.find(opener)
        while at >= 0:
            opened += 1
            if opened > depth:
                return False
            at = data.find(opener, at + 1)
    return True


def _check_depth(brackets: bytes, depth: int) -> None:
    inner = brackets
    for _ in range(min(depth, _PEELED)):
        inner = inner.replace(b"[]", b"")  # peels one level off, from the inside
        if not inner:
            return
    if max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > depth:
        raise ParseError(f"nested deeper than {MAX_DEPTH} levels")


def _without_texts(data: bytes) -> bytes:
    """Leave out members that are text: a file of code is full of brackets and escapes.

    But not from an object that has a byte to spare: a key might stand twice, and the decoder shows us only the last.
    """
    if data[0] != _BRACE:
        return data
    try:
        members = _open(data)
    except RecursionError:  # we stand deeper in the stack than the parser that let it pass
        raise ParseError("nested too deeply") from None
    if compact_size(members) != len(data):
        return data
    return b"[" + b",".join(member for member in map(bytes, members.values()) if member[0] != _QUOTE) + b"]"


def _has_plainly_small_numbers(data: bytes) -> bool:
    """Whether nothing in *data*, strings included, looks like a number past the range of a double."""
    numbers = data.translate(_REDUCED, _NOT_NUMERIC)
    if _LONG_NUMBER in numbers:
        return False
    # A search for _LONG_EXPONENT comes last: where zeros abound, a pattern that ends in one takes three times as long.
    at = -2
    for _ in range(MAX_EXTREMES):
        at = numbers.find(b"0e", at + 2)
        if at < 0:
            return True
        if numbers.startswith(b"000", at + 2):
            return False
    return _LONG_EXPONENT not in numbers


def _check_numbers(data: bytes) -> None:
    """Read every number."""
    structure = outside_strings(data)
    reduced = structure.translate(_REDUCED, _NOT_NUMERIC)
    if reduced.count(_LONG_EXPONENT) + reduced.count(_LONG_NUMBER) > MAX_EXTREMES:
        raise FrameTooLarge("number of extreme values", limit=MAX_EXTREMES)
    try:
        msgspec.json.decode(b"[" + b",".join(_NUMBER.findall(structure)) + b"]")
    except msgspec.ValidationError:
        raise ParseError("a number out of range") from None
