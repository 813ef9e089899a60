"""The audit log: one JSON line for each decision and for each call, without what was asked or answered.

Lines wait in a bounded queue until a thread writes them, so that no call waits for a disk. When the queue is full, or
the disk is, either the lines are dropped and counted, or nothing new is begun until they can be written: the operator's
choice. Requests without a valid token, of which there may be any number, are limited to so many lines a second.
"""

import hashlib
import hmac
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, ClassVar, Final

import attrs
import msgspec
import trio

from callboard.actors.rate import Rate, RateLimit
from callboard.codecs.caller import Caller
from callboard.codecs.canonical import canonical
from callboard.errors import CallboardError
from callboard.supervisor.audit import WhenFull

MOST_LINES: Final = 10_000
"""Lines that wait to be written: some seconds of all that one process can serve. Some 5 MiB."""

RESERVE: Final = 20_000
"""Lines beyond these of requests that had begun before new ones were refused: as many as may be in flight, and more."""

MOST_BYTES: Final = 16 * 1024 * 1024
"""Bytes of arguments that wait for their digest."""

LONGEST: Final = 256
"""Characters of one text in a line."""

LONGEST_ID: Final = 64
"""Characters of the id that a client gave its request."""

MOST_DETAILS: Final = 16
"""Members of the `detail` of a line."""

BATCH: Final = 500
"""Lines that are written at once."""

DEEPEST: Final = 5
"""Actors that a caller acts for (`act` of its token) that a line names."""

FROM_STRANGERS: Final = Rate(50, per=1.0)
"""Lines of one event that those without a valid token can cause. More of them are counted, in the next line."""

STRANGERS: Final = frozenset({"authentication_refused", "request_refused"})
"""Events that they cause."""


class AuditLine(msgspec.Struct, omit_defaults=True, gc=False):
    """One line. Members with nothing to say are left out."""

    time: Any
    """When: seconds since 1970, until it is written."""
    event: str
    id: str = ""
    """Random, given when it is written."""
    outcome: str = ""
    """ok, tool_error, refused, failed, cancelled, timeout."""
    principal: str = ""
    tenant: str = ""
    issuer: str = ""
    client_id: str = ""
    actor: list[str] = []
    """Those that the caller acts for, the latest first: `act` of its token (RFC 8693)."""
    client: str = ""
    remote: str = ""
    transport: str = ""
    revision: str = ""
    server: str = ""
    method: str = ""
    name: str = ""
    """Tool, prompt, or URI without its query."""
    request: str = ""
    """The id that the client gave its request."""
    trace: str = ""
    duration: float | None = None
    code: int | None = None
    rule: str = ""
    arguments: str = ""
    """Keyed digest, if that is wanted."""
    reason: str = ""
    left_out: int = 0
    """Lines of the same event before this one that were too many."""
    detail: dict[str, Any] = {}


_TEXTS: Final = frozenset(
    name
    for name in AuditLine.__struct_fields__
    if name not in {"time", "event", "id", "actor", "duration", "code", "left_out", "detail"}
)


def clipped(text: str, most: int = LONGEST) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def without_query(uri: str) -> str:
    """A URI as a line has it: without query, fragment, and the user before its host. Any of these may be a secret."""
    short = uri[: LONGEST * 4].partition("#")[0].partition("?")[0]
    scheme, mark, rest = short.partition("://")
    if mark:
        host, slash, path = rest.partition("/")
        short = f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}"
    return clipped(short)


def actors_of(caller: Caller) -> list[str]:
    """The chain of `act` claims, by subject."""
    found: list[str] = []
    acts = caller.claims.get("act")
    while isinstance(acts, Mapping) and len(found) < DEEPEST:
        found.append(clipped(str(acts.get("sub") or acts.get("client_id") or "")))
        acts = acts.get("act")
    return found


def digest_of(key: bytes, arguments: bytes) -> str:
    """HMAC-SHA-256 of the canonical JSON of *arguments*: the key proves a claim of what they were.
    Without a key, short arguments could be guessed."""
    try:
        return hmac.new(key, canonical(arguments), hashlib.sha256).hexdigest()
    except CallboardError:
        return "invalid"


@attrs.define(eq=False)
class Audit:
    """The lines that wait to be written, and what becomes of those that are too many."""

    when_full: WhenFull = "drop"
    key: bytes | None = attrs.field(default=None, repr=False)
    """Of the digests of arguments; None: there are none."""
    clock: Callable[[], float] = time.time
    on_full: Callable[[bool], None] | None = attrs.field(default=None, init=False)
    """Told to refuse what is new, and that it need not be refused any more. Only called for `refuse`."""
    written: int = attrs.field(default=0, init=False)
    dropped: int = attrs.field(default=0, init=False)
    is_failing: bool = attrs.field(default=False, init=False)
    """Whether the last attempt to write has failed."""
    is_refusing: bool = attrs.field(default=False, init=False)
    """Whether nothing new is begun meanwhile. Then a refusal is no line: they would fill the queue."""
    waiting: deque[tuple[AuditLine, bytes | None]] = attrs.field(factory=deque, init=False)
    arrived: trio.Event = attrs.field(factory=trio.Event, init=False)
    _bytes: int = attrs.field(default=0, init=False)
    _gap: int = attrs.field(default=0, init=False)  # lines dropped since one was written
    _rate: RateLimit = attrs.field(factory=lambda: RateLimit(FROM_STRANGERS), init=False)
    _left_out: Counter[str] = attrs.field(factory=Counter, init=False)

    encoder: ClassVar[msgspec.json.Encoder] = msgspec.json.Encoder()

    # What is told to it.

    def put(self, line: AuditLine, arguments: bytes | None = None) -> None:
        """Have *line* written. Never blocks, never raises."""
        waiting = self.waiting
        if len(waiting) >= MOST_LINES or self._bytes > MOST_BYTES:
            if self.when_full == "drop" or len(waiting) >= MOST_LINES + RESERVE:
                self.dropped += 1
                self._gap += 1
                return
            self._look()
        if arguments is not None:
            self._bytes += len(arguments)
        waiting.append((line, arguments))
        if len(waiting) == 1:
            self.arrived.set()

    def take(self, event: str, fields: Mapping[str, object]) -> None:
        """A note of any room: see `supervisor.audit.note`."""
        now = self.clock()
        if event in STRANGERS and (self.is_refusing or not self._rate.allow(event, now)):
            self._left_out[event] += 1
            return
        line = AuditLine(now, event)
        detail: dict[str, Any] = {}
        for name, value in fields.items():
            if name == "caller" and isinstance(value, Caller):
                tell_caller(line, value)
            elif name in _TEXTS:
                setattr(line, name, clipped(str(value)))
            elif name in ("duration", "code") and isinstance(value, int | float):
                setattr(line, name, value)
            elif len(detail) < MOST_DETAILS:
                detail[clipped(name)] = value if isinstance(value, bool | int | float | None) else clipped(str(value))
        if detail:
            line.detail = detail
        if event in self._left_out:
            line.left_out = self._left_out.pop(event)
        self.put(line)

    # What its writer asks and tells.

    def batch(self) -> list[tuple[AuditLine, bytes | None]]:
        """The lines that are to be written next. They stay until `settle`."""
        return list(islice(self.waiting, BATCH))

    def encode(self, batch: Sequence[tuple[AuditLine, bytes | None]]) -> list[bytes]:
        """*batch* as it is written. Called in a thread."""
        ids = os.urandom(8 * len(batch)).hex()
        lines = []
        for number, (line, arguments) in enumerate(batch):
            if not line.id:  # else it was tried before
                line.id = ids[16 * number : 16 * number + 16]
                line.time = datetime.fromtimestamp(line.time, UTC)
                if line.duration is not None:
                    line.duration = round(line.duration, 6)
                if arguments is not None and self.key is not None:
                    line.arguments = digest_of(self.key, arguments)
            lines.append(self._encode(line) + b"\n")
        return lines

    def _encode(self, line: AuditLine) -> bytes:
        try:
            return self.encoder.encode(line)
        except (ValueError, TypeError, OverflowError):  # half a character: the rest must not wait behind it for ever
            return self.encoder.encode(AuditLine(line.time, line.event, id=line.id, reason="cannot be written as JSON"))

    def settle(self, count: int, *, is_failing: bool) -> None:
        """The first *count* lines are written."""
        self.is_failing = is_failing
        for _ in range(count):
            arguments = self.waiting.popleft()[1]
            if arguments is not None:
                self._bytes -= len(arguments)
        self.written += count
        if self._gap and count and not is_failing:
            gap, self._gap = self._gap, 0
            self.waiting.append((AuditLine(self.clock(), "audit_lines_dropped", detail={"lines": gap}), None))
        if not self.waiting:
            self.arrived = trio.Event()
        self._look()

    def _look(self) -> None:
        """Whether new requests are refused."""
        if self.when_full != "refuse":
            return
        most, most_bytes = (MOST_LINES // 2, MOST_BYTES // 2) if self.is_refusing else (MOST_LINES, MOST_BYTES)
        is_full = self.is_failing or len(self.waiting) >= most or self._bytes > most_bytes
        if is_full != self.is_refusing:
            self.is_refusing = is_full
            if self.on_full is not None:
                self.on_full(is_full)


def tell_caller(line: AuditLine, caller: Caller) -> None:
    """Name the caller; of its claims nothing but those that it acts for."""
    line.principal, line.tenant = clipped(caller.principal), clipped(caller.tenant)
    line.issuer, line.client_id = clipped(caller.issuer), clipped(caller.client_id)
    if caller.claims:
        line.actor = actors_of(caller)
