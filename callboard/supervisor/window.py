"""How many restarts are too many, and how long to wait before the next. Arithmetic: no clock, no Trio."""

import random
from collections.abc import Callable

import attrs


@attrs.frozen
class Intensity:
    """At most *restarts* in any *per* seconds; one more escalates.

    Levels should not share one intensity: the limits of nested supervisors multiply.
    """

    restarts: int = attrs.field(default=5, validator=attrs.validators.ge(0))
    per: float = attrs.field(default=30.0, kw_only=True, validator=attrs.validators.gt(0))


@attrs.frozen(kw_only=True)
class Backoff:
    """How long a child stays down: *first*, then twice as long each time, up to *most*, plus jitter.

    Jitter only ever lengthens, by at most that fraction: backends that died together do not return together.
    """

    first: float = attrs.field(default=0.1, validator=attrs.validators.ge(0))
    most: float = attrs.field(default=5.0, validator=attrs.validators.ge(0))
    jitter: float = attrs.field(default=0.2, validator=attrs.validators.ge(0))
    random: Callable[[], float] = attrs.field(default=random.random, repr=False)

    def delay(self, streak: int) -> float:
        """Seconds to wait before the restart that follows *streak* deaths in a row (1 is the first)."""
        steps = min(streak - 1, 64)  # past this every doubling has long reached `most`
        return min(self.most, self.first * 2.0**steps) * (1.0 + self.jitter * self.random())


@attrs.define
class RestartWindow:
    """The restarts that still count, as OTP counts them: one exactly *per* seconds old is still in."""

    intensity: Intensity
    _times: list[float] = attrs.field(factory=list, init=False)  # a few; an empty deque weighs ten times as much

    def allow(self, now: float) -> bool:
        """Whether one more restart at *now* stays within the intensity; if so it is counted."""
        while self._times and self._times[0] < now - self.intensity.per:
            del self._times[0]
        if len(self._times) >= self.intensity.restarts:
            return False
        self._times.append(now)
        return True
