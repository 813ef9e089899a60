"""The journal of a server: how its requests ended, how long they took, and which were slow or failed.

It is written for each request, so it is short: a look-up, a bisection, two additions. Nothing of what a request said is
in it but the names of tools and prompts that the server itself offers.
"""

import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Final, TypeAlias

import attrs

from callboard.actors.server.observer import CANCELLED, EndedRequest
from callboard.codecs.revisions import METHODS
from callboard.observe.durations import BOUNDS, Durations

MOST_NAMES: Final = 200
"""Tools and prompts with figures of their own. Further ones are counted together."""

OTHER: Final = "other"
"""Name under which those beyond that are counted."""

UNKNOWN: Final = "_OTHER"
"""Name under which those are counted that the server does not offer: a client can think of any number."""

KEPT: Final = 100
"""Slow requests, and failed ones, that are remembered."""

KEPT_FOR: Final = 600.0
"""Seconds after which a slow request is forgotten."""

NAMED: Final = frozenset({"tools/call", "prompts/get"})
"""Methods with a name that is told apart."""

Series: TypeAlias = tuple[str, str, str, str, str]
"""Method, name, revision, transport and error of requests that are counted together."""


def known_method(said: str) -> str:
    """The method that a client names, if there is one such: it can think of any number, of any length."""
    return said if said in METHODS else UNKNOWN


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
    series: dict[Series, Durations] = attrs.field(factory=dict, init=False)
    behind: dict[tuple[str, str, str, str], Durations] = attrs.field(factory=dict, init=False)
    """By backend, method, name and error: what backends took."""
    overhead: Durations = attrs.field(factory=Durations, init=False)
    sessions: dict[tuple[str, str], Durations] = attrs.field(factory=dict, init=False)
    """By transport and revision: how long sessions were open."""
    refused: Counter[str] = attrs.field(factory=Counter, init=False)
    """By reason: what was refused before it was a request."""
    failed: deque[PastRequest] = attrs.field(factory=lambda: deque(maxlen=KEPT), init=False)
    _slowest: list[PastRequest] = attrs.field(factory=list, init=False)  # the fastest of them first
    _slow: float = attrs.field(default=0.0, init=False)  # seconds from which on one is among them
    _quick: dict[Series, Durations] = attrs.field(factory=dict, init=False)  # as requests say it, and what is known
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
        series = self._quick.get(key) or self._find(key)
        series.counts[bisect_left(BOUNDS, seconds)] += 1
        series.total += seconds
        series.last = now
        if slot.behind:
            self.overhead.add(seconds - slot.behind)
        if error or seconds > self._slow:
            self._remember(slot, error, seconds)

    def backend_over(self, server: str, method: str, name: str | None, error: str, seconds: float) -> None:
        """A backend has answered, or has not."""
        key = server, method, self._name(method, name or ""), error
        found = self.behind.get(key)
        if found is None:
            found = self.behind[key] = Durations()
        found.add(seconds)

    def session_over(self, transport: str, revision: str, seconds: float) -> None:
        self.sessions.setdefault((transport, revision), Durations()).add(seconds)

    def refuse(self, reason: str) -> None:
        self.refused[reason] += 1

    # What it tells.

    @property
    def slowest(self) -> list[PastRequest]:
        """The slowest of the last ten minutes, those first."""
        self._forget_old()
        return self._slowest[::-1]

    def total(self) -> Durations:
        """All requests together."""
        return Durations.sum(self.series.values())

    def errors(self) -> int:
        """How many have failed: those not counted that their clients cancelled."""
        return sum(some.count for (*_, error), some in self.series.items() if error and error != CANCELLED)

    def by_name(self) -> Iterator[tuple[str, str, Durations, int]]:
        """For each tool and prompt that was used: method, name, how long, and how many have failed."""
        found: dict[tuple[str, str], tuple[list[Durations], int]] = {}
        for (method, name, _, _, error), some in self.series.items():
            if method in NAMED:
                lists, failed = found.setdefault((method, name), ([], 0))
                lists.append(some)
                found[method, name] = lists, failed + (some.count if error else 0)
        for (method, name), (lists, failed) in found.items():
            yield method, name, Durations.sum(lists), failed

    def of_backend(self, server: str) -> Durations:
        """All that was asked of a backend."""
        return Durations.sum(some for (one, *_), some in self.behind.items() if one == server)

    def errors_of_backend(self, server: str) -> int:
        found = ((error, some) for (one, _, _, error), some in self.behind.items() if one == server)
        return sum(some.count for error, some in found if error and error != CANCELLED)

    def _find(self, key: Series) -> Durations:
        """The counts that a request belongs to which says of itself what *key* does."""
        asked, said, revision, transport, error = key
        method, name = known_method(asked), self._name(asked, said)
        known = method, name, revision, transport, error
        series = self.series.get(known)
        if series is None:
            series = self.series[known] = Durations()
        if (method, name) == (asked, said):  # else a client could fill it
            self._quick[key] = series
        return series

    def _name(self, method: str, said: str) -> str:
        if method not in NAMED or said in self._names:
            return said if method in NAMED else ""
        if self.owner_of(method, said) is None:
            return UNKNOWN
        if len(self._names) >= MOST_NAMES:
            return OTHER
        self._names.add(said)
        return said

    def _remember(self, slot: EndedRequest, error: str, seconds: float) -> None:
        method, now = known_method(slot.method), time.time()
        name = self._name(method, slot.target or "")
        past = PastRequest(now, method, name, self.owner_of(method, name) or "", error, seconds, slot.terms.principal)
        if error:
            self.failed.append(past)
        if seconds > self._slow:
            self._slowest.append(past)
            self._slowest.sort(key=lambda one: one.seconds)
            self._forget_old()

    def _forget_old(self) -> None:
        oldest = time.time() - KEPT_FOR
        if any(one.at < oldest for one in self._slowest):
            self._slowest = [one for one in self._slowest if one.at >= oldest]
        del self._slowest[:-KEPT]
        self._slow = self._slowest[0].seconds if len(self._slowest) == KEPT else 0.0
