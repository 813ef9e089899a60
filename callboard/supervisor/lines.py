"""Rules for every log line of callboard: printable, of limited length, and rate-limited.

Names, reasons and URIs come from untrusted peers, and so does the number of lines that they cause.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs

from callboard.supervisor.printable import clean

MAX_TEXT: Final = 1000
"""Characters of one fact in a log line."""

MAX_TRACEBACK: Final = 16_384
"""Characters of the fact `exception`, a traceback for an author who looks. Its last line says most."""

MAX_ITEMS: Final = 32
"""Members of one fact in a log line that is a list or an object."""

BURST: Final = 50
"""Lines of one event about one peer that are written in a row. More of them are counted."""

REFILL: Final = 2.0
"""Lines of one event about one peer that are written for each second, once the burst is used up."""

MERGED: Final = 10.0
"""Seconds within which a line that says the same again is counted, and not written."""

MAX_KINDS: Final = 1000
"""Pairs of event and peer with counted lines. The one that was silent for longest is forgotten."""

SILENT: Final = BURST / REFILL
"""Seconds of silence after which a pair is forgotten in any case: it may write a whole burst again."""

_PEERS: Final = ("backend", "session", "peer", "actor", "path")


def tidy(value: object) -> object:
    """*value* as a log line may hold it: strings cleaned and clipped, also inside of lists and objects."""
    if isinstance(value, str):
        return clean(_clipped(value))
    if isinstance(value, list | tuple):
        return [tidy(one) for one in value[:MAX_ITEMS]]
    if isinstance(value, Mapping):
        pairs = list(value.items())[:MAX_ITEMS]
        return {tidy(key) if isinstance(key, str) else key: tidy(one) for key, one in pairs}
    return value


def _clipped(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}... ({len(text)} characters)"


@attrs.define(eq=False)
class _Kind:
    """The lines of one event about one peer."""

    tokens: float
    at: float
    line: object = None
    repeated: int = 0
    left_out: int = 0
    again: Callable[..., None] | None = None


@attrs.define(eq=False)
class LogLines:
    """Decides which lines are written, and counts the others."""

    clock: Callable[[], float] = time.monotonic
    _kinds: "OrderedDict[tuple[str, object], _Kind]" = attrs.field(factory=OrderedDict, init=False)
    _merging: set[tuple[str, object]] = attrs.field(factory=set, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    def write(self, write: Callable[..., None], event: str, facts: Mapping[str, Any]) -> None:
        """Have *write* write the line, unless it says the same as the one before or is one too many. Lines that were
        merged are told of when they are over, which another line brings to light."""
        tidied = {name: tidy(value) for name, value in facts.items()}
        if isinstance(whole := facts.get("exception"), str):
            tidied["exception"] = clean(whole[-MAX_TRACEBACK:])
        with self._lock:
            due = [*self._due(), *self._admit(write, clean(event), tidied)]
        for one, name, told in due:
            one(name, **told)

    def flush(self) -> None:
        """Tell of all lines that were merged and not told of yet."""
        with self._lock:
            due = [self._summary(key) for key in list(self._merging)]
        for one, name, told in due:
            one(name, **told)

    def forget(self) -> None:
        """Begin anew."""
        with self._lock:
            self._kinds.clear()
            self._merging.clear()

    def _admit(
        self, write: Callable[..., None], event: str, facts: dict[str, Any]
    ) -> Iterator[tuple[Callable[..., None], str, dict[str, Any]]]:
        now = self.clock()
        peer = next((facts[name] for name in _PEERS if isinstance(facts.get(name), str)), None)
        key = event, peer
        kind = self._kinds.get(key)
        if kind is None:
            self._forget_silent(now)
            kind = self._kinds[key] = _Kind(BURST, now)
            if len(self._kinds) > MAX_KINDS:
                self._merging.discard(self._kinds.popitem(last=False)[0])
        else:
            self._kinds.move_to_end(key)
            if kind.line == facts and now - kind.at < MERGED:
                kind.repeated += 1
                kind.again = write
                self._merging.add(key)
                return
            if kind.repeated:
                yield self._summary(key)
        kind.tokens = min(BURST, kind.tokens + (now - kind.at) * REFILL)
        kind.at = now
        if kind.tokens < 1:
            kind.left_out += 1
            return
        kind.tokens -= 1
        kind.line = facts
        told = facts if not kind.left_out else {**facts, "left_out": kind.left_out}
        kind.left_out = 0
        yield write, event, told

    def _forget_silent(self, now: float) -> None:
        while self._kinds:
            key, kind = next(iter(self._kinds.items()))
            if now - kind.at < SILENT or kind.repeated:
                return
            del self._kinds[key]

    def _due(self) -> Iterator[tuple[Callable[..., None], str, dict[str, Any]]]:
        now = self.clock()
        for key in list(self._merging):
            if now - self._kinds[key].at >= MERGED:
                yield self._summary(key)

    def _summary(self, key: tuple[str, object]) -> tuple[Callable[..., None], str, dict[str, Any]]:
        self._merging.discard(key)
        kind = self._kinds[key]
        repeated, kind.repeated = kind.repeated, 0
        facts: dict[str, Any] = {**kind.line, "repeated": repeated} if isinstance(kind.line, dict) else {}
        if kind.again is None:
            raise RuntimeError("nothing was merged")
        return kind.again, key[0], facts
