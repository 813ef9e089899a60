"""How often a client may do something: arithmetic, no clock."""

from collections.abc import Hashable

import attrs


@attrs.frozen
class Rate:
    """So many times in so many seconds, and as many at once."""

    count: int = attrs.field(validator=attrs.validators.ge(1))
    per: float = attrs.field(default=1.0, validator=attrs.validators.gt(0))

    @property
    def interval(self) -> float:
        """Seconds that one takes up."""
        return self.per / self.count


@attrs.define(eq=False)
class RateLimit:
    """One meter for each key that is counted. Expired meters cost nothing and are dropped.

    A meter is one number: when it will be empty again (the generic cell rate algorithm).
    """

    rate: Rate
    most: int = 10_000
    _empty_at: dict[Hashable, float] = attrs.field(factory=dict, init=False)

    def allow(self, who: Hashable, now: float, count: int = 1) -> bool:
        """Add *count* to the meter of the key, unless that exceeds the rate."""
        empty_at = max(self._empty_at.get(who, now), now) + self.rate.interval * count
        if empty_at - now > self.rate.per + self.rate.interval / 2:
            return False
        if len(self._empty_at) >= self.most:
            self._forget(now)
        self._empty_at[who] = empty_at
        return True

    def wait(self, who: Hashable, now: float) -> float:
        """Seconds until the key may do it once more; 0 if it may now, as far as this process knows."""
        empty_at = max(self._empty_at.get(who, now), now) + self.rate.interval
        return max(empty_at - now - self.rate.per - self.rate.interval / 2, 0.0)

    def _forget(self, now: float) -> None:
        self._empty_at = {who: empty_at for who, empty_at in self._empty_at.items() if empty_at > now}
