"""The last ten minutes, second by second: what sparklines show. Kept in memory, and nowhere else."""

from collections import deque
from collections.abc import Mapping
from typing import Final

import attrs

from callboard.observe.turns import Parts

POINTS: Final = 600

NUMBERS: Final = (
    *("requests", "errors", "in_flight", "parked", "clients", "servers_up"),
    *("p50", "p99", "overhead_p99", "loop_lag", "resident", "cpu"),
)
"""What is kept. Requests and errors are those of the second, durations are in seconds, CPU is a share of one core."""


@attrs.define(eq=False)
class History:
    """One ring for each number. None stands for a second in which there was nothing to measure."""

    rings: dict[str, deque[float | None]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.rings = {name: deque(maxlen=POINTS) for name in NUMBERS}

    def add(self, point: Mapping[str, float | None]) -> None:
        for name, ring in self.rings.items():
            ring.append(point.get(name))

    def latest(self, name: str) -> float | None:
        ring = self.rings[name]
        return ring[-1] if ring else None

    def told(self) -> Parts[dict[str, list[float | None]]]:
        """As the page gets it: rounded, it is a third as long."""
        found = {name: list(ring) for name, ring in self.rings.items()}  # of one moment: then it is worked on
        for name, points in found.items():
            found[name] = [None if one is None else float(f"{one:.4g}") for one in points]
            yield
        return found
