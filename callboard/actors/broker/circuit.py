"""When a backend is tried, how often, and when it is left alone: arithmetic, no clock, no task."""

from enum import Enum

import attrs

from callboard.actors.broker.policy import Restarts
from callboard.supervisor.window import RestartWindow


class CircuitState(Enum):
    """How it stands with a backend."""

    STARTING = "starting"
    """Tried for the first time."""
    UP = "up"
    RESTARTING = "restarting"
    """Lost a moment ago, and tried again soon."""
    DOWN = "down"
    """Lost too often: requests fail at once, until the time has come to try once more."""
    TRIED = "tried"
    """The one attempt after that is under way."""
    ASLEEP = "asleep"
    """Not running, as nothing needs it: the next request starts it."""
    WAKING = "waking"
    """Being started for a request."""
    ENDED = "ended"


@attrs.define
class Circuit:
    """The state of one backend. `attempts` counts those that failed in a row."""

    restarts: Restarts
    state: CircuitState = CircuitState.STARTING
    attempts: int = attrs.field(default=0, init=False)
    restarted: int = attrs.field(default=0, init=False)
    """How often it was started again, with its processes for single clients."""
    _since: float = attrs.field(default=0.0, init=False)
    _window: RestartWindow = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._window = RestartWindow(self.restarts.intensity)

    @property
    def may_wait(self) -> bool:
        """Whether it may be up in a moment, so that a request had better wait than fail."""
        return self.rests or self.state in (CircuitState.STARTING, CircuitState.RESTARTING)

    @property
    def rests(self) -> bool:
        """Whether it is not running since nothing needed it: as good as up to clients."""
        return self.state in (CircuitState.ASLEEP, CircuitState.WAKING)

    @property
    def is_news(self) -> bool:
        """Whether the attempt that failed is worth a log line: always of one that was up, less and less often of one
        that stays dead."""
        attempt = self.attempts + 1
        return self.state is CircuitState.UP or attempt <= 4 or attempt & (attempt - 1) == 0

    def opened(self, now: float) -> None:
        """It answers."""
        self.state, self._since = CircuitState.UP, now

    def lost(self, now: float) -> float:
        """It died, or could not be reached. Returns the seconds to wait before the next attempt."""
        if self.state is CircuitState.UP and now - self._since >= self.restarts.intensity.per:
            self.attempts = 0  # it had been well for long
        self.attempts += 1
        if self.state is CircuitState.TRIED or not self._window.allow(now):
            self.state = CircuitState.DOWN
            return self.restarts.cool_down
        self.state = CircuitState.RESTARTING
        return self.restarts.backoff.delay(self.attempts)

    def tried(self, now: float) -> None:
        """The next attempt begins."""
        self.restarted += 1
        if self.state is CircuitState.DOWN:
            self.state = CircuitState.TRIED
            self._window.allow(now)  # if it comes up only to die, this was a restart like any other
