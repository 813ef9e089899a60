"""When a request should go, if that does not depend on when the last one was answered. Arithmetic: no clock."""

import attrs


@attrs.frozen(kw_only=True)
class Pace:
    """So many requests a second, reached evenly over *ramp* seconds.

    Latency is counted from when a request should have gone: a server that stalls makes those wait that would have come
    meanwhile, and their waiting is what its users would feel.
    """

    rate: float = attrs.field(validator=attrs.validators.gt(0))
    ramp: float = attrs.field(default=0.0, validator=attrs.validators.ge(0))
    burst: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    """Requests that go at once. The rate is the same: after so many there is a pause."""

    part: int = 0
    of: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    """Index of this process among several: each sends every nth request."""

    def due(self, number: int) -> float:
        """Seconds after the start at which request *number* (0 is the first) should go."""
        number = number * self.of + self.part
        number -= number % self.burst
        during_ramp = self.rate * self.ramp / 2  # requests until the rate is reached
        if number < during_ramp:
            return float((2 * self.ramp * number / self.rate) ** 0.5)
        return self.ramp + (number - during_ramp) / self.rate

    def share(self, part: int, of: int) -> "Pace":
        """The pace of one process among *of*. Together they send when one would."""
        if not 0 <= part < of:
            raise ValueError(f"part {part} of {of}")
        return attrs.evolve(self, part=part, of=of)
