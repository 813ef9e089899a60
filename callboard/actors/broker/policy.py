"""How one backend is to be treated: what its operator can say about it, beside where it is."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import attrs

from callboard.codecs.bridge.overrides import NO_OVERRIDES, ToolOverride
from callboard.codecs.revisions import Revision
from callboard.supervisor import Backoff, Intensity

Share: TypeAlias = Literal["all", "tenant", "principal", "session"]
"""The requests that share a connection to a legacy backend: all, those of one tenant (of a principal without one: its
own), of one principal, or of one session."""

SHARES: Final[tuple[Share, ...]] = ("all", "tenant", "principal", "session")

Start: TypeAlias = Literal["eager", "lazy"]
"""When the program of a backend is started: with the broker, or when it is needed first."""

STARTS: Final[tuple[Start, ...]] = ("eager", "lazy")

TIMEOUT: Final = 60.0
"""Seconds that a backend may say nothing about a request. Each progress report begins them anew."""

CAP: Final = 600.0
"""Seconds that a request may take at a backend in all, those that it is parked not counted."""

MAX_IN_FLIGHT: Final = 1024
"""Most requests that one backend has in flight, and three quarters of them for one client; one more is refused."""

MAX_CONNECTIONS: Final = 16
"""Most connections (of stdio: processes) to one legacy backend; one client may hold three quarters of them."""

IDLE_TIME: Final = 300.0
"""Seconds after which an unused connection is ended. The one that the lists come from stays."""

COOL_DOWN: Final = 30.0
"""Seconds that a backend which crashed too often is left alone, before it is tried once more."""


@attrs.frozen(kw_only=True)
class Filter:
    """Filter of names: *allow* must match and *deny* must not. Shell patterns."""

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()

    def lets(self, name: str) -> bool:
        """Whether *name*, as the backend calls it, is offered to clients."""
        is_open = self.allow == ("*",) and not self.deny
        return is_open or (_any(self.allow, name) and not _any(self.deny, name))


NO_FILTER: Final = Filter()
"""Lets all names through."""


@attrs.frozen(kw_only=True)
class Profile:
    """A choice of servers and tools, which is served at a path of its own."""

    name: str
    servers: tuple[str, ...] = ()
    tools: Filter = NO_FILTER
    """Which tools are shown, by the names that clients of the profile see."""


@attrs.frozen
class ServerChoice:
    """The servers and tools of an offer that has not all of them."""

    servers: tuple[str, ...]
    tools: Filter = NO_FILTER
    is_own: bool = False
    """Whether names are those that the server gives itself."""

    def settings_of(self, settings: "BackendSettings") -> "BackendSettings":
        return attrs.evolve(settings, prefix="", rename={}) if self.is_own else settings


def _any(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@attrs.frozen(kw_only=True)
class Restarts:
    """When a backend that died comes back: so often in so many seconds, after such pauses; then it is down, and tried
    again each time that *cool_down* has passed."""

    intensity: Intensity = attrs.field(factory=Intensity)
    backoff: Backoff = attrs.field(factory=Backoff)
    cool_down: float = COOL_DOWN


@attrs.frozen(kw_only=True)
class BackendSettings:
    """All of it, with what is right for most."""

    prefix: str | None = None
    """Prefix of its names, followed by `__`. None: its own name. Empty: no prefix, unless names collide."""
    tools: Filter = NO_FILTER
    rename: Mapping[str, str] = MappingProxyType({})
    """Other names for its tools and prompts: as it calls them, as clients see them (before the prefix)."""
    override: Mapping[str, ToolOverride] = NO_OVERRIDES
    """What clients see of its tools and prompts in place of what it says, by the names that it gives them."""
    timeout: float = TIMEOUT
    cap: float = CAP
    max_in_flight: int = MAX_IN_FLIGHT
    max_connections: int = MAX_CONNECTIONS
    idle_time: float = IDLE_TIME
    start: Start = "eager"
    idle_stop: float | None = None
    """Seconds without use after which its program is ended, until it is needed again. None: it runs on."""
    share: Share = "principal"
    restarts: Restarts = attrs.field(factory=Restarts)
    revision: Revision | None = None
    """The revision to speak, even if the server has later ones."""
    trusted: bool = False
    """Whether what it says of caching, of read-only and of idempotent tools is believed."""
    pin: bool = False
    """Whether a tool or skill with a changed definition is withheld until the operator approves of it."""
    roots: tuple[str, ...] = ()
    """Roots for a backend that asks outside of any request."""
    required: bool = False
    """Whether the broker is not ready without it."""
    local: bool = False
    """With workers: whether each of them has the server for itself, although it is one that they would share."""
    max_result: int | None = None
    """Bytes of a result up to which it is passed on whole. None: up to the largest answer that there can be."""
    drive_tasks: bool = False
    """Whether a modern client without tasks may call tools that a modern server runs only as tasks: the broker then
    sees the task through. Else the client is told to declare tasks. Legacy clients always may."""
    task_after: float | None = None
    """Seconds after which a call of a client with tasks goes on as a task of the broker's own. None: only if the server
    makes one of it."""
    pass_headers: tuple[str, ...] = ()
    """Headers of a client's HTTP request that go on to a server at a URL. In lower case."""
