"""Canonical JSON: equal values have equal bytes, from any writer.

Keys are sorted, white space and escapes are gone, and numbers stand by their value: 1, 1.0 and 1e0 are one,
and integers are exact at any size. Used to digest what must not change between two requests.
"""

from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Final

import msgspec

from callboard.codecs.json_scan import MAX_DIGITS, check_frame, check_value, outside_strings
from callboard.errors import ParseError

_EXACT_DIGITS: Final = 15
"""So many digits a double keeps: two numbers of no more are different doubles, and quicker to handle as such."""

_SMALLEST: Final = -300  # powers of ten: well above those where doubles thin out
_EXACT: Final = Context(prec=MAX_DIGITS, Emax=MAX_EMAX, Emin=MIN_EMIN)


def canonical(json: bytes | msgspec.Raw) -> bytes:
    """Return the one spelling of *json*.

    Costs as much as decoding and encoding all of it: up to 100 ms for as many values as a frame may have.

    Raises ParseError if it is not JSON that a frame may hold, or is ambiguous because a key stands twice in an
    object; FrameTooLarge as a frame would.
    """
    data = bytes(json)
    check_frame(data)
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
        check_value(data)
        spelled = _ENCODER.encode(_DECODER.decode(data))
    except (msgspec.MsgspecError, UnicodeDecodeError, ArithmeticError, RecursionError):
        raise ParseError("invalid JSON, or nested too deeply") from None
    if _members(data) != _members(spelled):
        raise ParseError("duplicate key in an object")
    return spelled


def _members(json: bytes) -> int:
    """Count the members of all objects: outside strings, a colon stands for nothing else."""
    return outside_strings(json).count(b":")


def _number(text: str) -> int | float | Decimal:
    if len(text) <= _EXACT_DIGITS and "e" not in text and "E" not in text:
        short = float(text)
        return int(short) if short.is_integer() else short
    if len(text) > MAX_DIGITS:
        raise ParseError("number too long")
    value = _EXACT.normalize(Decimal(text))
    # An integer may be written out: with an exponent it was let in only within the range of a double.
    if value == value.to_integral_value():
        return int(value)
    return float(value) if len(value.as_tuple().digits) <= _EXACT_DIGITS and value.adjusted() > _SMALLEST else value


_DECODER: Final = msgspec.json.Decoder(float_hook=_number)
_ENCODER: Final = msgspec.json.Encoder(order="deterministic", decimal_format="number")
