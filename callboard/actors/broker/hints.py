"""A hint for the operator of a server that supports both eras, but asks its clients only in the older one.

Such a server is spoken to in the newest revision. A tool of it that asks by a request of its own then fails, and says
that there is no way to do so in that revision. The setting that helps is named in the log and in the error.
"""

from typing import Any, Final

import msgspec

from callboard.codecs.bridge.results import Forwarded
from callboard.codecs.members import Members, raw
from callboard.codecs.revisions import LEGACY, Revision

_TRUE: Final = raw(True)
_CLUES: Final = (b"server-initiated", b"elicitation", b"sampling", b"list_roots", b"roots/list")
_OLDER: Final = max(LEGACY).value


def hint_for(backend: str, revision: Revision, said: bytes) -> str:
    """The hint, if *said* is the error of a server that cannot ask in a modern *revision*; else nothing."""
    if not revision.dialect.asks_in_results or revision.value.encode() not in said:
        return ""
    if not any(clue in said.lower() for clue in _CLUES):
        return ""
    return (
        f"{backend} cannot ask its client in revision {revision.value}. If it can in an older one, set "
        f'revision = "{_OLDER}" for it in the broker\'s configuration.'
    )


def is_failed(result: Members) -> bool:
    """Whether the result of a tool says that it failed."""
    found = result.get("isError")
    return found is not None and bytes(found).strip() == bytes(_TRUE)


def with_hint(result: Forwarded, hint: str) -> Forwarded:
    """The result of a tool, with one more text. One that is not written as such results are stays as it is."""
    try:
        content: list[Any] = msgspec.json.decode(result.members["content"], type=list)
    except (KeyError, msgspec.MsgspecError):
        return result
    return Forwarded({**result.members, "content": raw([*content, {"type": "text", "text": hint}])})
