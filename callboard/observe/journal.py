"""The journal of a server: how its requests ended, how long they took, and which were slow or failed.

It is written for each request, so it is short: a look-up, a bisection, three additions. What is asked of it often (all
requests together, those of each tool or backend) is added up on the way, so that reading it costs the same however many
series there are. Nothing of what a request said is in it but the names of tools and prompts that the server itself
offers; and there is a bound for everything that clients and backends can make more of.
"""

import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, nlargest
from itertools import count
from time import perf_counter
from typing import Final, TypeAlias

import attrs

from callboard.actors.server.observer import CANCELLED, TOOL_ERROR, EndedRequest
from callboard.codecs.revisions import METHODS
from callboard.errors import CODES
from callboard.observe.durations import BOUNDS, Durations

MOST_NAMES: Final = 200
"""Tools and prompts with figures of their own. Further ones are counted together."""

LONGEST_NAME: Final = 128
"""Characters of such a name. Longer ones are counted together with those beyond the first."""

MOST_SERIES: Final = 2_000
"""Combinations of method, name, revision, transport and error with figures of their own; and as many of what backends
were asked. Further ones are counted together, by their error."""

OTHER: Final = "other"
"""Name under which those beyond these bounds are counted, and errors with codes that no specification has."""

UNKNOWN: Final = "_OTHER"
"""Name under which those are counted that the server does not offer: a client can think of any number."""

KEPT: Final = 100
"""Slow requests, and failed ones, that are remembered."""

KEPT_FOR: Final = 600.0
"""Seconds after which a slow request is forgotten."""

FORGET_EVERY: Final = 10.0
"""Seconds in which those are looked for at most once, unless they are asked for."""

NAMED: Final = frozenset({"tools/call", "prompts/get"})
"""Methods with a name that is told apart."""

ERROR_TYPES: Final = frozenset({"", CANCELLED, TOOL_ERROR, *map(str, CODES)})
"""Errors that are told apart."""

Series: TypeAlias = tuple[str, str, str, str, str]
"""Method, name, revision, transport and error of requests that are counted together."""

Noted: TypeAlias = tuple[float, str, str, str, float, str]
"""When a slow request ended, its method, name and error, how long it took, and its principal."""

BackSeries: TypeAlias = tuple[str, str, str]
"""Method, name and error of what a backend was asked."""


def known_method(said: str) -> str:
    """The method that a client names, if there is one such: it can think of any number, of any length."""
    return said if said in METHODS else UNKNOWN


def known_error(said: str) -> str:
    """The type of an error. A backend can think of any number of codes."""
    return said if said in ERROR_TYPES else OTHER


class TotalDurations(Durations):
    """All requests for one tool, or to one backend, however they ended."""

    __slots__ = ("errors", "failed")

    def __init__(self) -> None:
        super().__init__()
        self.failed = 0
        self.errors = 0  # those not counted that their clients cancelled


class SeriesDurations(Durations):
    """The requests of one series."""

    __slots__ = ("whole",)

    def __init__(self, whole: TotalDurations) -> None:
        super().__init__()
        self.whole = whole


@attrs.define(eq=False)
class BackendFigures:
    """What one backend was asked."""

    whole: TotalDurations = attrs.field(factory=TotalDurations, init=False)
    series: dict[BackSeries, SeriesDurations] = attrs.field(factory=dict, init=False)
    revision: str = attrs.field(default="", init=False)
    transport: str = attrs.field(default="", init=False)


@attrs.frozen
class PastRequest:
    """A request that was slow, or failed."""

    at: float
    """When it ended: seconds since 1970."""
    method: str
    name: str
    server: str
    error: str
    seconds: float
    principal: str


@attrs.define(eq=False)
class Journal:
    """An `Observer` of one server or broker."""

    owner_of: Callable[[str, str], str | None]
    """The backend that has the tool or prompt; empty for a server's own. None if there is none such."""
    series: dict[Series, SeriesDurations] = attrs.field(factory=dict, init=False)
    behind: dict[str, BackendFigures] = attrs.field(factory=dict, init=False)
    """By backend: what it was asked."""
    overhead: Durations = attrs.field(factory=Durations, init=False)
    sessions: dict[tuple[str, str], Durations] = attrs.field(factory=dict, init=False)
    """By transport and revision: how long sessions were open."""
    refused: Counter[str] = attrs.field(factory=Counter, init=False)
    """By reason: what was refused before it was a request."""
    ended: Counter[str] = attrs.field(factory=Counter, init=False)
    """By error: requests that ended with one, or were cancelled."""
    failed: deque[PastRequest] = attrs.field(factory=lambda: deque(maxlen=KEPT), init=False)
    _slowest: list[tuple[float, int, Noted]] = attrs.field(factory=list, init=False)  # a heap: the fastest first
    _numbers: "count[int]" = attrs.field(factory=count, init=False)
    _forgot_at: float = attrs.field(default=0.0, init=False)
    _slow: float = attrs.field(default=0.0, init=False)  # seconds from which on one is among them
    _quick: dict[Series, SeriesDurations] = attrs.field(factory=dict, init=False)  # as requests say it
    _wholes: dict[tuple[str, str], TotalDurations] = attrs.field(factory=dict, init=False)  # by method and name
    _behind: int = attrs.field(default=0, init=False)  # series of all backends
    _names: set[str] = attrs.field(factory=set, init=False)

    # What is told to it.

    def over(self, slot: EndedRequest, error: str = "") -> None:
        now = perf_counter()
        seconds = now - slot.began
        admission = slot.admission
        transport = ""
        if admission is not None:
            transport, admission.used_at = admission.transport, now
        key = slot.method, slot.target or "", slot.terms.revision, transport, error
        try:
            part = self._quick[key]
        except KeyError:
            part = self._find(key)
        place, whole = bisect_left(BOUNDS, seconds), part.whole
        part.counts[place] += 1
        part.total += seconds
        whole.counts[place] += 1
        whole.last = now
        if seconds > whole.most:
            whole.most = seconds
        if slot.behind:
            self.overhead.add(seconds - slot.behind)
        if error or seconds > self._slow:
            self._remember(slot, whole, known_error(error), seconds)

    def backend_over(self, server: str, method: str, name: str | None, error: str, seconds: float) -> None:
        """A backend has answered, or has not."""
        figures = self.behind.get(server) or self.behind.setdefault(self._backend(server), BackendFigures())
        part = figures.series.get((method, name or "", error)) or self._find_behind(figures, method, name or "", error)
        place, whole = bisect_left(BOUNDS, seconds), part.whole
        part.counts[place] += 1
        part.total += seconds
        whole.counts[place] += 1
        if seconds > whole.most:
            whole.most = seconds
        if error:
            _note(whole, error)

    def session_over(self, transport: str, revision: str, seconds: float) -> None:
        self.sessions.setdefault((transport, revision), Durations()).add(seconds)

    def refuse(self, reason: str) -> None:
        self.refused[reason] += 1

    # What it tells.

    @property
    def slowest(self) -> list[PastRequest]:
        """The slowest of the last ten minutes, those first."""
        self._forget_old(time.time())
        return [self._past(*noted) for *_, noted in sorted(self._slowest, reverse=True)]

    def total(self) -> Durations:
        """All requests together: how many took how long."""
        return Durations.sum(self._wholes.values())

    def errors(self) -> int:
        """How many have failed: those not counted that their clients cancelled."""
        return self.ended.total() - self.ended[CANCELLED]

    def by_name(self) -> Iterator[tuple[str, str, Durations, int]]:
        """For each tool and prompt that was used: method, name, how long, and how many have failed."""
        for (method, name), whole in self._wholes.items():
            if method in NAMED:
                yield method, name, whole, whole.failed

    def of_backend(self, server: str) -> Durations:
        """All that was asked of a backend."""
        return self.behind[server].whole if server in self.behind else Durations()

    def errors_of_backend(self, server: str) -> int:
        return self.behind[server].whole.errors if server in self.behind else 0

    def _find(self, key: Series) -> SeriesDurations:
        """The counts that a request belongs to which says of itself what *key* does."""
        asked, said, revision, transport, error = key
        known = known_method(asked), self._name(asked, said), revision, transport, known_error(error)
        part = self.series.get(known)
        if part is None and len(self.series) >= MOST_SERIES:
            known = OTHER, "", "", "", known_error(error)
            part = self.series.get(known)
        if part is None:
            part = self.series[known] = SeriesDurations(self._wholes.setdefault(known[:2], TotalDurations()))
        is_offered = known == key or (known[1] == OTHER and known[4] == error)
        if is_offered and len(self._quick) < 2 * MOST_SERIES:  # else a client could fill it
            self._quick[key] = part
        return part

    def _find_behind(self, figures: BackendFigures, method: str, said: str, error: str) -> SeriesDurations:
        known = known_method(method), self._name(method, said), known_error(error)
        if known not in figures.series and self._behind >= MOST_SERIES:
            known = OTHER, "", known_error(error)
        part = figures.series.get(known)
        if part is None:
            part = figures.series[known] = SeriesDurations(figures.whole)
            self._behind += 1
        return part

    def _backend(self, name: str) -> str:
        """A configuration that is read again can have any number of backends, one after the other."""
        return name if len(self.behind) < MOST_NAMES else OTHER

    def _name(self, method: str, said: str) -> str:
        if method not in NAMED or said in self._names:
            return said if method in NAMED else ""
        if self.owner_of(method, said) is None:
            return UNKNOWN
        if len(self._names) >= MOST_NAMES or len(said) > LONGEST_NAME:
            return OTHER
        self._names.add(said)
        return said

    def _remember(self, slot: EndedRequest, whole: TotalDurations, error: str, seconds: float) -> None:
        now = time.time()
        # Not all of it: a client can think of any name.
        method, name = known_method(slot.method), (slot.target or "")[: LONGEST_NAME + 1]
        noted = now, method, name, error, seconds, slot.terms.principal
        if error:
            self.ended[error] += 1
            _note(whole, error)
            self.failed.append(self._past(*noted))
        if seconds > self._slow:
            heappush(self._slowest, (seconds, next(self._numbers), noted))
            if now - self._forgot_at > FORGET_EVERY:
                self._forget_old(now)
            elif len(self._slowest) > KEPT:
                heappop(self._slowest)
            self._slow = self._slowest[0][0] if len(self._slowest) == KEPT else 0.0

    def _past(self, at: float, method: str, said: str, error: str, seconds: float, principal: str) -> PastRequest:
        name = self._name(method, said)
        return PastRequest(at, method, name, self.owner_of(method, name) or "", error, seconds, principal)

    def _forget_old(self, now: float) -> None:
        self._forgot_at, oldest = now, now - KEPT_FOR
        self._slowest = nlargest(KEPT, (one for one in self._slowest if one[2][0] >= oldest))
        heapify(self._slowest)
        self._slow = self._slowest[0][0] if len(self._slowest) == KEPT else 0.0


def _note(whole: TotalDurations, error: str) -> None:
    whole.failed += 1
    whole.errors += error != CANCELLED
