"""What a backend offers: its lists, read page by page, and read anew when it says that they changed."""

from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from callboard.actors.broker.leg import Leg
from callboard.actors.caller import Patience
from callboard.codecs.crossing.definitions import Kind
from callboard.codecs.envelope import Error
from callboard.codecs.members import Members, read_members
from callboard.codecs.revisions import declares
from callboard.errors import METHOD_NOT_FOUND, BadAnswer, PeerError, ServerRefused

MAX_PAGES: Final = 1000
"""Pages of one list that are read."""

MAX_ENTRIES: Final = 10_000
"""Entries of one list that are read."""

_read_array = msgspec.json.Decoder(list[Raw]).decode
_read_text = msgspec.json.Decoder(str | None).decode


async def read_list(leg: Leg, kind: Kind, patience: Patience) -> list[Members]:
    """All that a backend lists of one kind; nothing if it has no such list.

    Raises `ServerRefused`, `BadAnswer` and what the connection raises.
    """
    if not declares(leg.agreed.capabilities, kind.capability):
        return []
    found: list[Members] = []
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MAX_PAGES):
        entries, cursor = await _read_page(leg, kind, cursor, patience)
        found += entries
        if len(found) > MAX_ENTRIES:
            raise BadAnswer(f"{kind.method}: more than {MAX_ENTRIES} entries")
        if cursor is None:
            return found
        if cursor in seen:
            raise BadAnswer(f"{kind.method}: the same cursor twice")
        seen.add(cursor)
    raise BadAnswer(f"{kind.method}: more than {MAX_PAGES} pages")


async def _read_page(leg: Leg, kind: Kind, cursor: str | None, patience: Patience) -> tuple[list[Members], str | None]:
    body: dict[str, Any] = {"_meta": dict(leg.caller.said())}
    if cursor is not None:
        body["cursor"] = cursor  # also an empty one: that is a cursor like any other
    answer = await leg.caller.send(kind.method, body, patience=patience, wants_progress=False)
    if isinstance(answer, Error):
        if answer.code == METHOD_NOT_FOUND:
            return [], None  # some declare resources, and have no templates
        raise ServerRefused(answer.code, answer.message, None if answer.data is UNSET else answer.data)
    try:
        entries = [_kept(entry) for entry in _read_array(answer.result[kind.member])]
        following = answer.result.get("nextCursor")
        return entries, None if following is None else _read_text(following)
    except (msgspec.MsgspecError, KeyError, PeerError):
        raise BadAnswer(f"{kind.method}: not a list of definitions") from None


def _kept(entry: Raw) -> Members:
    """The members of a definition, kept for as long as it is listed: not as a view of the frame they came in."""
    return read_members(bytes(entry))
