"""The limit that a search has found, and the probes that led to it."""

from typing import Any, Self

import attrs


@attrs.frozen(kw_only=True)
class Probe:
    """One rate that was tried for a while."""

    rate: float
    held: bool
    why: str = ""
    """What did not hold."""
    seconds: float = 0.0
    answered: float = 0.0
    """Each second."""
    p50_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None
    errors: int = 0
    generator_cpu: float = 0.0
    is_bound_by_generator: bool = False


@attrs.frozen(kw_only=True)
class LimitFound:
    """What a search came to."""

    conditions: str
    rate: float | None
    """The highest rate at which the conditions held; None if they held at none."""
    is_confirmed: bool
    probes: tuple[Probe, ...]
    note: str = ""
    """Why it ended early, or may be too low."""

    def as_json(self) -> dict[str, Any]:
        return attrs.asdict(self)

    @classmethod
    def of_json(cls, written: Any) -> Self:
        """Raises KeyError or TypeError for what was not written by `as_json`."""
        return cls(**{**written, "probes": tuple(Probe(**one) for one in written["probes"])})

    def __str__(self) -> str:
        if self.rate is None:
            return f"none: {self.conditions} did not hold at any rate"
        sure = "" if self.is_confirmed else ", not confirmed"
        return f"{self.rate:,.1f} per second ({self.conditions}{sure})"
