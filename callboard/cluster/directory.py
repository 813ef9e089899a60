"""Who is there: the nodes of a cluster, as each announces itself, and how long one is believed to live."""

from collections.abc import Iterable
from typing import Final

import attrs
import msgspec

HEARTBEAT: Final = 3.0
"""Seconds between two announcements of a node; each also reads those of all others."""

DEAD_AFTER: Final = 10.0
"""Seconds without a new announcement after which a node is dead: by the clock of the one that waits for it."""

MAX_NODES: Final = 256
"""Nodes that are looked at; more are left out."""

LINK_PROTOCOL: Final = 1
"""Number of what workers speak among each other."""

LINKS_SPOKEN: Final = frozenset((LINK_PROTOCOL,))
"""Those that this version understands. A node with another one is there, and nothing is forwarded to it."""


class NodeWorker(msgspec.Struct, frozen=True):
    """A worker of a node, and the port at which others reach it."""

    name: bytes
    number: int
    generation: int
    port: int
    hangs: bool = False
    is_leaving: bool = False


class NodeEntry(msgspec.Struct, frozen=True):
    """What a node says of itself."""

    name: str
    host: str
    workers: list[NodeWorker] = []
    is_leaving: bool = False
    """Whether it ends soon: its workers still answer, and open no more sessions."""
    link: int = LINK_PROTOCOL
    build: str = ""
    beat: int = 0
    """Grows with each announcement. One that does not grow is an old one."""
    figures: dict[str, float] = {}
    """What operators of other nodes see of it: some counts, none of which matters to them."""


@attrs.define
class _Seen:
    entry: NodeEntry
    at: float


@attrs.define(eq=False)
class Roll:
    """The other nodes, and when each was heard of. Arithmetic: no clock, no store."""

    own: str
    _seen: dict[str, _Seen] = attrs.field(factory=dict, init=False)

    def read(self, entries: Iterable[NodeEntry], now: float) -> bool:
        """These are announced now. Those that are silent for too long are dead. True if that changed anything."""
        before = self._facts()
        for entry in entries:
            known = self._seen.get(entry.name)
            if entry.name == self.own or (known is None and len(self._seen) >= MAX_NODES):
                continue
            if known is None or entry.beat > known.entry.beat:
                self._seen[entry.name] = _Seen(entry, now)
        for name in [name for name, seen in self._seen.items() if now - seen.at > DEAD_AFTER]:
            del self._seen[name]
        return self._facts() != before

    def _facts(self) -> dict[str, NodeEntry]:
        """All that is known and matters, without how often it was said."""
        return {name: msgspec.structs.replace(seen.entry, beat=0, figures={}) for name, seen in self._seen.items()}

    def remove(self, name: str) -> bool:
        """A node has said that it ends now."""
        return self._seen.pop(name, None) is not None

    def excuse(self, now: float) -> None:
        """The store was away: that a node was silent meanwhile means nothing."""
        for seen in self._seen.values():
            seen.at = now

    def beat_of(self, worker: bytes) -> int | None:
        """The number of the announcement that has this worker; None if none has."""
        beats = (seen.entry.beat for seen in self._seen.values() for one in seen.entry.workers if one.name == worker)
        return next(beats, None)

    def nodes(self) -> list[NodeEntry]:
        return [seen.entry for seen in self._seen.values()]
