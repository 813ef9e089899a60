"""How often something happens, from counts that are looked at now and then: nothing is written for each time."""

from collections import deque
from collections.abc import Mapping
from time import perf_counter
from typing import Final, TypeAlias

import attrs

WINDOW: Final = 5.0
"""Seconds that a rate is of, at least, once they have passed."""

OLDEST: Final = 30.0
"""Seconds after which a count says nothing about now: in between nobody has looked."""

Counts: TypeAlias = Mapping[str, tuple[int, ...]]


@attrs.define(eq=False)
class Rates:
    """Remembers the counts of the last looks."""

    _before: deque[tuple[float, Counts]] = attrs.field(factory=deque, init=False)

    def per_second(self, counts: Counts) -> Mapping[str, tuple[float, ...]]:
        """How much each has grown in a second; nothing for those that were not known before."""
        before, now = self._before, perf_counter()
        while before and now - before[0][0] > OLDEST:
            before.popleft()
        while len(before) > 1 and now - before[1][0] >= WINDOW:
            before.popleft()
        before.append((now, counts))
        began, base = before[0]
        seconds = now - began
        if seconds < 0.1:
            return {}
        return {
            name: tuple(round(max(0, new - old) / seconds, 2) for new, old in zip(now_counts, base[name], strict=True))
            for name, now_counts in counts.items()
            if name in base
        }
