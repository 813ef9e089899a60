"""The lists of a backend as it gave them last: kept while its program does not run, and read as if it had said them."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

import attrs
import trio

from callboard.actors.broker.listing import INLINE, MAX_ENTRIES, MAX_LISTS, BackendList, BackendLists
from callboard.actors.client.negotiate import Agreed
from callboard.codecs.bridge.definitions import KINDS, Kind
from callboard.codecs.bridge.guard import Examined
from callboard.codecs.bridge.overrides import examine_overridden


@attrs.frozen
class CachedLists:
    """What is known of a server that does not run: what it agreed to, and each list in its own words."""

    agreed: Agreed
    lists: Mapping[str, Sequence[bytes]]

    @classmethod
    def of(cls, agreed: Agreed, listings: BackendLists) -> "CachedLists | None":
        """None if a list was not read: what is not known is not kept."""
        if not all(one.is_read for one in listings.lists.values()):
            return None
        return cls(agreed, {member: _in_order(one) for member, one in listings.lists.items()})


def _in_order(one: BackendList) -> Sequence[bytes]:
    """What is shown of a list, as the server wrote it and in its order."""
    written = {id(examined): data for data, examined in one.known.items()}
    return tuple(written[id(each)] for each in one.definitions if id(each) in written)


class KeptLists(Protocol):
    """Keeps the lists of one server from one run to the next."""

    async def load(self) -> CachedLists | None:
        """None if there are none of just this server, or they cannot be read. Never raises for that."""

    async def save(self, lists: CachedLists) -> None:
        """Keep them in place of those before. That it cannot is logged, and nothing else."""


async def restore(listings: BackendLists, cached: CachedLists) -> None:
    """Have *listings* as they were. They pass the guard of definitions again: a cache is trusted no more than a
    server."""
    listings.expect(cached.agreed)
    room = MAX_LISTS
    for kind in KINDS:
        page: list[bytes] = []
        for data in cached.lists.get(kind.member, ())[:MAX_ENTRIES]:
            room -= len(data)
            if room < 0:
                break
            page.append(data)
        examine = partial(_examine, kind, page, listings)
        is_long = sum(map(len, page)) > INLINE
        listings.take_kept(kind, page, await trio.to_thread.run_sync(examine) if is_long else examine())


def _examine(kind: Kind, page: Sequence[bytes], listings: BackendLists) -> list[Examined]:
    return examine_overridden(kind, page, listings.without, listings.overrides)
