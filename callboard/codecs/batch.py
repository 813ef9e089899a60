"""JSON-RPC batches, which only a session of 2025-03-26 may use.

The members stay what they were, byte for byte: each is then read as a frame of its own, by the same rules as
any other. Whether a batch may stand here, and that it holds no `initialize`, is decided by the session.
"""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from callboard.codecs import json_scan
from callboard.errors import FrameTooLarge, InvalidRequest, ParseError

MAX_BATCH: Final = 256
"""Most members of one batch: four times what a peer may have in flight, so that notifications fit too."""

_OPENING: Final = re.compile(rb"[ \t\r\n]*+\[")  # the four bytes that JSON calls white space
_MEMBERS: Final = msgspec.json.Decoder(list[msgspec.Raw])


def is_batch(frame: bytes) -> bool:
    """Tell from its first byte whether *frame* can only be a batch. Valid JSON or not is not looked at."""
    return _OPENING.match(frame) is not None


def split_batch(frame: bytes, *, limit: int = MAX_BATCH) -> list[bytes]:
    """Return the members of a batch, untouched and in order.

    Raises ParseError if *frame* is not a JSON array, InvalidRequest if it is empty, FrameTooLarge past the
    *limit*.
    """
    json_scan.check_frame(frame)  # also bounds the members, which must all be cut out before they can be counted
    try:
        members = _MEMBERS.decode(frame)
    except (msgspec.MsgspecError, RecursionError):
        raise ParseError("a batch must be a JSON array") from None
    if not members:
        raise InvalidRequest("a batch must not be empty")
    if len(members) > limit:
        raise FrameTooLarge("batch", limit=limit)
    return [bytes(member) for member in members]  # a copy each: a Raw would keep the whole frame alive


def join_batch(frames: Iterable[bytes]) -> bytes:
    """Return one array of *frames*, each a JSON text. Raises ValueError for none: that is not a message."""
    joined = b",".join(frames)
    if not joined:
        raise ValueError("a batch must not be empty")
    return b"[" + joined + b"]"
