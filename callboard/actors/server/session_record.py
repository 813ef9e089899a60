"""What is kept of a legacy session, so that another worker can open it again when its own is gone.

What was agreed, and what the client follows; not what is in flight, and not what was said: nobody could go on with it.
"""

from typing import Final

import msgspec
from msgspec import Raw

from callboard.actors.terms import Terms
from callboard.codecs.caller import caller_of_key
from callboard.codecs.members import raw
from callboard.codecs.revisions import ClientCapabilities, Implementation, Revision, read, write

MAX_RECORD: Final = 64 * 1024
"""Bytes of a record. Of a session that follows more resources than fit, the first are kept."""


_NULL: Final = Raw(b"null")


class SessionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One session, as it is written down."""

    revision: str
    principal: str
    capabilities: Raw
    client: Raw
    level: str | None = None
    is_ready: bool = False
    followed: list[str] = []
    path: str = ""
    """Where it was opened: at `/mcp`, or at `/mcp/` and this name."""

    def terms(self) -> Terms:
        """What was agreed."""
        revision = Revision(self.revision)
        return Terms(
            revision=revision,
            capabilities=read(revision, ClientCapabilities, bytes(self.capabilities)),
            client_info=None if self.client == _NULL else read(revision, Implementation, bytes(self.client)),
            caller=caller_of_key(self.principal),
            log_level=self.level,  # type: ignore[arg-type]  # one that was written here
        )


def write_record(terms: Terms, followed: list[str], *, is_ready: bool, path: str = "") -> bytes:
    revision, size, kept = terms.revision, 0, []
    for uri in followed:
        size += len(uri.encode()) + 4
        if size > MAX_RECORD // 2:
            break
        kept.append(uri)
    return msgspec.json.encode(
        SessionRecord(
            revision=revision.value,
            principal=terms.principal,
            capabilities=raw(write(revision, terms.capabilities)),
            client=_NULL if terms.client_info is None else raw(write(revision, terms.client_info)),
            level=terms.log_level,
            is_ready=is_ready,
            followed=kept,
            path=path,
        )
    )


def read_record(record: bytes) -> SessionRecord:
    """Raises `msgspec.MsgspecError` for what is none."""
    return msgspec.json.decode(record, type=SessionRecord)
