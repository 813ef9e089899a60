"""Extensions and experimental capabilities that cross a broker: which they are, and how those of many are merged."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from fnmatch import fnmatchcase
from heapq import nsmallest
from typing import Any, Final
from weakref import ReferenceType, ref

import attrs
import msgspec
from msgspec import UNSET

from callboard.codecs.bridge.askable import NOTHING, Signature, declaration, signature_of
from callboard.codecs.canonical import canonical
from callboard.codecs.members import raw
from callboard.codecs.revisions import ClientCapabilities, JSONObject, ServerCapabilities, UnsetType
from callboard.errors import PeerError

UI: Final = "io.modelcontextprotocol/ui"
"""The extension of MCP Apps. It has no methods of servers, and crosses by default: most hosts declare it."""

OWN: Final = frozenset({"io.modelcontextprotocol/tasks", "io.modelcontextprotocol/skills"})
"""Extensions that a broker speaks itself, on each side: they never cross as they are."""

MAX_CLIENT_BYTES: Final = 2048
"""Bytes of what crosses of one client's declarations: as much as a session keeps. What does not fit does not cross."""

MAX_CLIENT_NAMES: Final = 16
"""Declarations of one client that cross. Hosts have one or two; each set of them has connections of its own."""

MAX_LOOKED_AT: Final = 256
"""Declarations of one client or server that are looked at, extensions and experimental ones each, of those that may
cross: the first ones by name. To write one and compare it takes as long as to read a hundred."""

MAX_SERVER_BYTES: Final = 16_384
"""Bytes of what one server declares of its extensions that clients are told of."""

MAX_MERGED_BYTES: Final = 65_536
"""Bytes of the same of all servers: it is in each answer to `initialize` and `server/discover`."""

LEAST_SERVER_BYTES: Final = 256
"""Bytes that each server may declare, however many there are. With more servers each has a smaller share of the whole:
none uses up that of the others."""

MAX_REMEMBERED_CLIENTS: Final = 512
"""Capabilities of clients with a remembered signature, and of servers; then it begins anew."""

MAX_DEPTH: Final = 8
"""Levels of settings that are merged. Below that, the first server's stand."""


@attrs.define(eq=False)
class Transparent:
    """What crosses: `ui`, and names that fit one of the patterns. It may be replaced while the broker runs."""

    extensions: tuple[str, ...] = ()
    experimental: tuple[str, ...] = ()
    version: int = attrs.field(default=0, init=False)
    _known: dict[int, tuple[ReferenceType[ClientCapabilities], Signature]] = attrs.field(factory=dict, init=False)
    _custom: dict[int, tuple[ReferenceType[ServerCapabilities], Set[str]]] = attrs.field(factory=dict, init=False)

    def replace(self, extensions: Sequence[str], experimental: Sequence[str]) -> None:
        """These cross from now on."""
        after = tuple(extensions), tuple(experimental)
        if after != (self.extensions, self.experimental):
            self.extensions, self.experimental = after
            self.version += 1
            self._known.clear()
            self._custom.clear()

    def lets(self, name: str) -> bool:
        """Whether an extension crosses."""
        return name == UI or (name not in OWN and _fits(name, self.extensions))

    def custom_of(self, capabilities: ServerCapabilities) -> Set[str]:
        """The extensions of a server that cross, and may have methods of their own: of those that are looked at. Each
        of its notifications asks for them."""
        known = self._custom.get(id(capabilities))
        if known is not None and known[0]() is capabilities:
            return known[1]
        found = frozenset(name for _, name, _ in self._crossing(capabilities.extensions, UNSET) if name != UI)
        if len(self._custom) >= MAX_REMEMBERED_CLIENTS:
            self._custom.clear()
        self._custom[id(capabilities)] = ref(capabilities), found
        return found

    def signature_of(self, capabilities: ClientCapabilities) -> Signature:
        """What a client can be asked, and what it declares that crosses. The same capabilities come with each request
        of a client, as one object: it is looked at once."""
        of = capabilities
        if of.extensions is of.roots is of.sampling is of.elicitation is of.experimental is UNSET:
            return NOTHING
        known = self._known.get(id(capabilities))
        if known is not None and known[0]() is capabilities:
            return known[1]
        signature = signature_of(capabilities)
        if capabilities.extensions is not UNSET or capabilities.experimental is not UNSET:
            signature |= frozenset(self._declared(capabilities))
        if len(self._known) >= MAX_REMEMBERED_CLIENTS:
            self._known.clear()
        # Not the capabilities themselves: what a client says once may be as large as a frame.
        self._known[id(capabilities)] = ref(capabilities), signature or NOTHING
        return signature or NOTHING

    def _declared(self, capabilities: ClientCapabilities) -> Iterator[str]:
        room, names = MAX_CLIENT_BYTES, MAX_CLIENT_NAMES
        for kind, name, settings in self._crossing(capabilities.extensions, capabilities.experimental):
            try:
                written = declaration(kind, name, settings)
            except PeerError:
                continue  # what is not JSON that a frame may hold
            if len(written) <= room:
                room, names = room - len(written), names - 1
                yield written
            if not names:
                return

    def _crossing(
        self, extensions: Mapping[str, Any] | UnsetType, experimental: Mapping[str, Any] | UnsetType
    ) -> Iterator[tuple[str, str, JSONObject]]:
        """Kind, name and settings of all that crosses; `ui` first, the rest in the order of names."""
        said = {} if extensions is UNSET else extensions
        for name in nsmallest(MAX_LOOKED_AT, filter(self.lets, said), key=lambda name: (name != UI, name)):
            yield "extensions", name, said[name]
        tried = {} if experimental is UNSET else experimental
        for name in nsmallest(MAX_LOOKED_AT, (name for name in tried if _fits(name, self.experimental))):
            yield "experimental", name, tried[name]

    def merged(self, servers: Iterable[ServerCapabilities]) -> dict[str, dict[str, JSONObject]]:
        """What servers declare that crosses, by kind and name. Settings of several are merged: lists are united, and
        of two other values the first server's stands."""
        found: dict[str, dict[str, Any]] = {}
        said, left = list(servers), MAX_MERGED_BYTES
        share = min(MAX_SERVER_BYTES, max(LEAST_SERVER_BYTES, MAX_MERGED_BYTES // max(1, len(said))))
        for server in said:
            room = share
            for kind, name, settings in self._crossing(server.extensions, server.experimental):
                size = len(raw(settings)) + len(name.encode())
                if size > room:
                    continue
                mine = found.setdefault(kind, {})
                both = settings if name not in mine else merged_settings(mine[name], settings)
                more = size if name not in mine else len(raw(both)) - len(raw(mine[name]))
                if more <= left:  # what another server has said already costs nothing
                    room, left, mine[name] = room - size, left - more, both
        return found


def merged_settings(one: Any, other: Any, depth: int = 0) -> Any:
    """Two values of one setting as one."""
    if isinstance(one, Mapping) and isinstance(other, Mapping) and depth < MAX_DEPTH:
        both = {key: merged_settings(one[key], other[key], depth + 1) for key in one if key in other}
        return {**other, **one, **both}
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        known = {canonical(msgspec.json.encode(item)) for item in one}
        return [*one, *(item for item in other if canonical(msgspec.json.encode(item)) not in known)]
    return one


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
