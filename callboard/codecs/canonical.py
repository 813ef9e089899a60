"""Canonical JSON: equal values have equal bytes, whoever wrote them and however.

Keys are sorted, white space and escapes are gone, and numbers stand by their value: 1, 1.0 and 1e0 are one,
and integers are exact at any size. Used to digest what must not change between two requests.
"""

from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Final

import msgspec

from callboard.codecs.json_scan import MAX_DIGITS, outside_strings
from callboard.errors import ParseError

_EXACT: Final = Context(prec=MAX_DIGITS, Emax=MAX_EMAX, Emin=MIN_EMIN)


def canonical(json: bytes | msgspec.Raw) -> bytes:
    """Return the one spelling of *json*.

    Raises ParseError if it is not JSON, or has no one value because a key stands twice in an object.
    """
    try:
        spelled = _ENCODER.encode(_DECODER.decode(json))
    except (msgspec.MsgspecError, UnicodeDecodeError, ArithmeticError, RecursionError):
        raise ParseError("not JSON, or beyond what can be compared") from None
    if _members(bytes(json)) != _members(spelled):
        raise ParseError("a key stands twice in one object")
    return spelled


def _members(json: bytes) -> int:
    """Count the members of all objects: outside strings, a colon stands for nothing else."""
    return outside_strings(json).count(b":")


def _number(text: str) -> int | Decimal:
    if len(text) > MAX_DIGITS:
        raise ParseError("a number is too long")
    value = _EXACT.normalize(Decimal(text))
    # Past MAX_DIGITS no integer literal can be equal to it, and int() would write out its zeros.
    if value == value.to_integral_value() and value.adjusted() < MAX_DIGITS:
        return int(value)
    return value


_DECODER: Final = msgspec.json.Decoder(float_hook=_number)
_ENCODER: Final = msgspec.json.Encoder(order="deterministic", decimal_format="number")
