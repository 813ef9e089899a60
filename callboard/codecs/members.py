"""An object as its members, each left as the bytes it came in.

The one primitive under envelopes, routing and rewriting: read an object one level deep, look at a member or put another
in its place, write the rest back untouched.
"""

import re
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec
from msgspec import Raw

from callboard.errors import FrameTooLarge, InvalidRequest, ParseError

MAX_MEMBERS: Final = 1024
"""Most members of an envelope, of params, of a result or of `_meta`. The specification names about twenty."""

Members: TypeAlias = Mapping[str, Raw]

_decode = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode
_read_key = msgspec.json.Decoder(str).decode
# What leads up to the value of a member, or to the end of an object. Possessive throughout: four mebibytes of spaces
# must not be tried in every way that they can be shared out.
next_member: Final = re.compile(
    rb'[ \t\r\n]*+(?:,[ \t\r\n]*+)?+(?:("(?:[^"\\]++|\\.)*+")[ \t\r\n]*+:[ \t\r\n]*+|\})'
).match


def read_members(data: bytes | Raw) -> dict[str, Raw]:
    """Split an object into its members; the values are views into *data*, not copies.

    A key that stands twice is refused: which one counts differs from parser to parser, so a proxy and the server behind
    it could be made to see two messages in one.

    Raises `ParseError` if it is not JSON, `InvalidRequest` if it is not an object or repeats a key, `FrameTooLarge` if
    it has too many members.
    """
    try:
        members = _decode(data)
    except msgspec.ValidationError:
        raise InvalidRequest("expected an object") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ParseError(f"not JSON: {error}") from None
    check_count(members)
    if len(data) != compact_size(members):
        whole = bytes(data)
        if end_of(whole, whole.index(b"{"), members) is None:
            raise InvalidRequest("duplicate key in an object")
    return members


def write_members(members: Mapping[str, object]) -> bytes:
    """Join members into an object: raw values are copied byte for byte, any other is encoded."""
    return _encode(members)


def raw(value: object) -> Raw:
    """Return *value* as a member to put beside those that were read."""
    return Raw(_encode(value))


def check_count(members: Members) -> None:
    """Raises `FrameTooLarge` for more members than any message needs."""
    if len(members) > MAX_MEMBERS:
        raise FrameTooLarge("number of members", limit=MAX_MEMBERS)


def compact_size(members: Members) -> int:
    """The fewest bytes that an object with these members takes.

    An object of just this size has no byte to spare, and so no room for a second member of any name. Every key takes at
    least a byte for a character and two quotes, every member a colon, all but one a comma.
    """
    if not members:
        return 2
    return 1 + 4 * len(members) + sum(map(len, members)) + sum(map(len, members.values()))


def end_of(data: bytes, at: int, members: Members) -> int | None:
    """Where the object in *data* ends that begins *at* and was read as *members*. None if a key stands twice."""
    at, seen = at + 1, set[str]()
    while (match := next_member(data, at)) and match[1]:
        key, at = _read_key(match[1]), match.end()
        kept = members.get(key)  # the last one of that name; each must be the one that was kept
        if kept is None or key in seen or not data.startswith(kept, at):
            return None
        seen.add(key)
        at += len(kept)
    # A number may only begin like the one that was kept: then the walk ends inside it, not at the closing brace.
    return None if match is None else match.end()
