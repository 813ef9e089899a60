"""`--token-file`: many identities, for tests of quotas and tenants. Tokens never stand in a report."""

import heapq
import itertools
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from callboard.bench.seats import L, Open
from callboard.errors import CallboardError

MAX_TOKENS: Final = 10_000
"""Identities of one run. Each may be a session, and a machine has no more sockets than a few of these."""

MAX_TOKEN: Final = 16 * 1024
"""Characters of one token. Servers accept 8 or 16 KiB of headers in all."""

_TOKEN: Final = re.compile(r"[!-~]+")


class BadTokens(CallboardError):
    """A file without tokens. One line says where, and never what is in it."""


def read_tokens(text: str) -> tuple[str, ...]:
    """A token on each line. Empty lines, and those that begin with #, are left out. Raises `BadTokens`."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        token = line.strip()
        if not token or token.startswith("#"):
            continue
        if len(token) > MAX_TOKEN or not _TOKEN.fullmatch(token):
            raise BadTokens(f"line {number} is not a token: expected up to {MAX_TOKEN:,} visible ASCII characters")
        found.append(token)
        if len(found) > MAX_TOKENS:
            raise BadTokens(f"more than {MAX_TOKENS:,} tokens")
    if not found:
        raise BadTokens("has no token: expected one on each line")
    return tuple(found)


def by_turns(opens: Sequence[Open[L]]) -> Open[L]:
    """Sessions of several identities, one after the other. A session that is opened in place of one that was lost is
    of the same identity."""
    if len(opens) == 1:
        return opens[0]
    free, places = list[int](), itertools.count()

    @asynccontextmanager
    async def open_lane() -> AsyncIterator[L]:
        place = heapq.heappop(free) if free else next(places)
        try:
            async with opens[place % len(opens)]() as lane:
                yield lane
        finally:
            heapq.heappush(free, place)

    return open_lane


def by_cycle(opens: Sequence[Open[L]]) -> Open[L]:
    """The same for sessions that do not last: each is of the next identity."""
    turns = itertools.cycle(opens)
    return lambda: next(turns)()
