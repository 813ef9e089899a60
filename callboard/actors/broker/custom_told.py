"""Notifications of backends that the specification does not have, on their way to one client."""

from collections.abc import Iterable, Mapping, Set
from typing import Final

from msgspec import Raw

from callboard.actors.broker.backend import Backend
from callboard.actors.broker.leases import Lease
from callboard.actors.outlet import FrameKind, Outbound
from callboard.actors.server.client_requests import SessionKey
from callboard.actors.server.exchange import Exchange
from callboard.actors.server.extensions import has_declared_any
from callboard.actors.server.progress import RELAYED_BYTES
from callboard.actors.server.task_exchange import TaskExchange
from callboard.codecs.members import write_members
from callboard.codecs.revisions import METHODS

MAX_METHOD: Final = 128
"""Longest name of a method or notification of an extension, in characters."""

OWN_METHODS: Final = (
    *("tasks/", "notifications/tasks", "skills/", "notifications/skills", "resources/directory/"),
    *("dev.callboard/", "notifications/dev.callboard/"),
)
"""How methods and notifications begin that a broker speaks itself, on each side and by ids and URIs of its own: those
of tasks and skills, and what only callboard says. No extension of another has them, whatever it declares."""


def may_cross(method: str) -> bool:
    """Whether a method or notification may be that of an extension which crosses."""
    return method not in METHODS and len(method) <= MAX_METHOD and not method.startswith(OWN_METHODS)


def custom_of(backend: Backend) -> Set[str]:
    """The extensions of a backend that cross, and may have methods of their own."""
    return frozenset() if backend.agreed is None else backend.transparent.custom_of(backend.agreed.capabilities)


def told(method: str, params: Mapping[str, Raw]) -> Outbound:
    """The notification as a client gets it. Of many that wait, the newest are kept."""
    frame = write_members({"jsonrpc": "2.0", "method": method, "params": dict(params)})
    return Outbound(frame, FrameKind.REPORT)


def under_way_in(uses: Iterable[Lease]) -> dict[SessionKey, Exchange]:
    """The latest request of each session that can still be told something. That of a task may be over."""
    return {
        exchange.session: exchange
        for use in uses
        if (exchange := use.exchange) is not None
        and exchange.session is not None
        and exchange.slot.is_open
        and not isinstance(exchange, TaskExchange)
    }


def tell_exchange(backend: Backend, exchange: Exchange, method: str, params: Mapping[str, Raw]) -> None:
    """Tell the client of a request, on the request's way, if it has declared an extension of the backend's."""
    if may_cross(method) and has_declared_any(exchange.terms.capabilities, custom_of(backend)):
        frame = told(method, params).frame
        if len(frame) <= RELAYED_BYTES:
            exchange.tell_nowait(frame)
