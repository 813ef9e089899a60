"""What the audit log is told of requests and sessions: an `Observer` and `Auditor`."""

from collections.abc import Callable, Mapping
from copy import copy
from time import perf_counter
from typing import Any, Final

import attrs

from callboard.actors.server.observer import CANCELLED, TOOL_ERROR, EndedRequest, Observer
from callboard.actors.terms import Terms
from callboard.codecs.caller import Caller, caller_of_key
from callboard.codecs.envelope import Request
from callboard.codecs.revisions import Implementation
from callboard.codecs.routing import Route
from callboard.errors import DRAINING, INSUFFICIENT_SCOPE, NOT_APPROVED, OVERLOADED, TIMED_OUT
from callboard.observe.audit import LONGEST, LONGEST_ID, Audit, AuditLine, clipped, tell_caller, without_query

AUDITED: Final = frozenset({"tools/call", "resources/read", "prompts/get"})
"""Methods of which each request has a line. Of others those have one that are refused."""

REFUSED: Final[Mapping[str, str]] = {
    str(INSUFFICIENT_SCOPE): "scope_refused",
    str(OVERLOADED): "quota_refused",
    str(NOT_APPROVED): "approval_refused",
}
"""By error: the event of a request that was refused."""

OUTCOMES: Final[Mapping[str, str]] = {
    "": "ok",
    TOOL_ERROR: "tool_error",
    CANCELLED: "cancelled",
    str(TIMED_OUT): "timeout",
    str(DRAINING): "refused",
    **dict.fromkeys(REFUSED, "refused"),
}
"""By error. Others are `failed`."""

REMEMBERED: Final = 256
"""Clients of which it is remembered what their lines have in common."""

UNNOTED: Final = frozenset({"auth"})
"""Reasons of refusals that have an event of their own, with more to say."""


@attrs.frozen(eq=False)
class AuditObserver:
    """Writes a line for each request that matters, and tells the *next* observer of all of them."""

    audit: Audit
    owner_of: Callable[[str, str], str | None]
    next: Observer | None = None
    _whose: dict[tuple[int, int], tuple[Caller, Implementation | None, AuditLine]] = attrs.field(
        factory=dict, init=False
    )
    """What the lines of a client have in common: these two are the same objects for most of its requests."""

    @property
    def counts(self) -> Mapping[str, int]:
        return {"written": self.audit.written, "dropped": self.audit.dropped}

    def begin(self, slot: EndedRequest, request: Request, route: Route) -> Observer:
        if slot.method not in AUDITED:
            return self
        arguments = None
        if self.audit.key is not None and (given := request.members.get("arguments")) is not None:
            arguments = bytes(given)  # a copy: it would keep the whole frame
        return AuditedRequest(self, route.name or route.uri or "", arguments)

    def over(self, slot: EndedRequest, error: str = "") -> None:
        if slot.method == "initialize" and not error:
            self.audit.put(self.line(slot, "session_begun"))
        elif error in REFUSED and not self.audit.is_refusing:
            self.tell(slot, slot.target or "", error)
        if self.next is not None:
            self.next.over(slot, error)

    def tell(self, slot: EndedRequest, name: str, error: str, arguments: bytes | None = None) -> None:
        """Write the line of a request."""
        line = self.line(slot, REFUSED.get(error, "request"))
        line.outcome = OUTCOMES.get(error, "failed")
        line.duration = perf_counter() - slot.began
        if error and error not in (TOOL_ERROR, CANCELLED):
            line.code = int(error)
        if name:
            line.name = without_query(name) if slot.method == "resources/read" else clipped(name)
            line.server = self.owner_of(slot.method, name) or ""
        self.audit.put(line, arguments)

    def line(self, slot: EndedRequest, event: str) -> AuditLine:
        """What all lines of requests say."""
        terms = slot.terms
        caller, info = caller_of(terms), terms.client_info
        whose = self._whose.get((id(caller), id(info)))
        if whose is None or whose[0] is not caller or whose[1] is not info:
            if len(self._whose) >= REMEMBERED:
                self._whose.clear()
            whose = self._whose[id(caller), id(info)] = caller, info, about(AuditLine(0.0, ""), caller, info)
        line = copy(whose[2])
        line.revision = terms.revision.value
        line.time, line.event = self.audit.clock(), event
        line.method = clipped(slot.method)
        line.remote = remote_of(slot)
        line.request = str(slot.request_id)[:LONGEST_ID]
        if slot.admission is not None:
            line.transport = slot.admission.transport
        if slot.trace is not None:
            line.trace = slot.trace.to_keep()[:16].hex()
        return line

    def backend_over(self, server: str, method: str, name: str | None, error: str, seconds: float) -> None:
        if self.next is not None:
            self.next.backend_over(server, method, name, error, seconds)

    def refuse(self, reason: str) -> None:
        if reason not in UNNOTED:
            self.audit.take("request_refused", {"outcome": "refused", "reason": reason})
        if self.next is not None:
            self.next.refuse(reason)

    def session_over(self, transport: str, revision: str, seconds: float) -> None:
        if self.next is not None:
            self.next.session_over(transport, revision, seconds)

    def session_ended(self, terms: Terms, transport: str, peer: str, seconds: float) -> None:
        line = about(AuditLine(self.audit.clock(), "session_ended"), caller_of(terms), terms.client_info)
        line.revision = terms.revision.value
        line.transport, line.remote, line.duration = transport, address_of(peer), seconds
        self.audit.put(line)


class AuditedRequest:
    """The observer of one request: it keeps what its line says, and the slot does not know."""

    __slots__ = ("_arguments", "_log", "_name")

    def __init__(self, log: AuditObserver, name: str, arguments: bytes | None) -> None:
        self._log, self._name, self._arguments = log, name, arguments

    def over(self, slot: EndedRequest, error: str = "") -> None:
        if not (error in REFUSED and self._log.audit.is_refusing):
            self._log.tell(slot, self._name, error, self._arguments)
        if (after := self._log.next) is not None:
            after.over(slot, error)

    def backend_over(self, server: str, method: str, name: str | None, error: str, seconds: float) -> None:
        self._log.backend_over(server, method, name, error, seconds)

    def refuse(self, reason: str) -> None:
        self._log.refuse(reason)

    def session_over(self, transport: str, revision: str, seconds: float) -> None:
        self._log.session_over(transport, revision, seconds)


def caller_of(terms: Terms) -> Caller:
    caller: Caller | None = getattr(terms, "caller", None)
    return caller_of_key(terms.principal) if caller is None else caller


def about(line: AuditLine, caller: Caller, info: Implementation | None) -> AuditLine:
    """Say whose request or session it is."""
    tell_caller(line, caller)
    if info is not None:
        line.client = clipped(f"{info.name[:LONGEST]} {info.version[:LONGEST_ID]}")
    return line


def remote_of(slot: Any) -> str:
    """The address that a request came from; empty if it came by a pipe."""
    outlet = getattr(slot, "outlet", None)
    peer = getattr(getattr(outlet, "response", outlet), "peer", "")
    return address_of(peer) if isinstance(peer, str) else ""


def address_of(peer: str) -> str:
    """The address in the account of an anonymous client."""
    return clipped(peer.rpartition("@")[2]) if "@" in peer else ""
