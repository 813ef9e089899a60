"""A log line for each request: the client, what it asked for, the outcome, and how long that took; never its words."""

from collections.abc import Callable
from time import perf_counter

import attrs

from callboard.actors.server.observer import EndedRequest, Observer
from callboard.observe.rows import clip
from callboard.supervisor import get_logger

log = get_logger("callboard.access")


@attrs.frozen(eq=False)
class AccessLog:
    """An `Observer` that writes a line, and tells the *next* one."""

    owner_of: Callable[[str, str], str | None]
    next: Observer | None = None

    def over(self, slot: EndedRequest, error: str = "") -> None:
        seconds, info, name = perf_counter() - slot.began, slot.terms.client_info, slot.target
        facts: dict[str, object] = {"principal": slot.terms.principal}
        if info is not None:
            facts["client"] = clip(f"{info.name} {info.version}")
        if slot.admission is not None:
            facts["transport"] = slot.admission.transport
        facts["method"] = slot.method
        if name:
            facts["name"] = clip(name)
            if server := self.owner_of(slot.method, name):
                facts["server"] = server
        log.always("request", **facts, outcome=error or "ok", ms=round(seconds * 1e3, 2))
        if self.next is not None:
            self.next.over(slot, error)

    def refuse(self, reason: str) -> None:
        log.info("refused", reason=reason)
        if self.next is not None:
            self.next.refuse(reason)

    def backend_over(self, server: str, method: str, name: str | None, error: str, seconds: float) -> None:
        if self.next is not None:
            self.next.backend_over(server, method, name, error, seconds)

    def session_over(self, transport: str, revision: str, seconds: float) -> None:
        if self.next is not None:
            self.next.session_over(transport, revision, seconds)
