"""The rows of each table that operators see: clients, requests, servers, tools, topics, dead letters.

Read where they are, when an operator looks: nothing is counted for them. Every table has a bound, however much the
server holds. Nothing is in them that a request said but names, and no handle: no session id, no state, no query of a
URI.
"""

import heapq
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
from time import perf_counter
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import trio

from callboard import tree
from callboard.actors.broker.backend import Backend
from callboard.actors.broker.offer import BrokerOffer
from callboard.actors.changes import Change, ListChanged
from callboard.actors.client.duplex_link import DuplexLink
from callboard.actors.client.link import Link
from callboard.actors.lifecycle import RequestState
from callboard.actors.server.exchange import Exchange
from callboard.actors.server.host import Host, OpenSession
from callboard.actors.server.request import RequestActor
from callboard.actors.server.subscription import Subscription
from callboard.actors.terms import Terms
from callboard.observe.journal import Journal, PastRequest
from callboard.observe.sampler import cpu_of, resident_bytes
from callboard.supervisor import DeadLetters, Snapshot, Supervisor
from callboard.transports.memory import MemoryConnection
from callboard.transports.server.http.connection import HttpConnection
from callboard.transports.wire import SocketWire

Row: TypeAlias = dict[str, Any]

MOST: Final = 200
"""Rows of one table."""

MOST_CHILDREN: Final = 50
"""Children of one supervisor that the tree shows, beside those that are always there."""

AT_ONCE: Final = 2_000
"""Sessions that are looked at before others get a turn."""

SAID: Final = 5
"""Last lines on the standard error of a server that is not up."""

TEXT: Final = 200
"""Characters of a name: they are words of clients and backends."""

_OWN: Final = frozenset({"admin", "inner", "nodes"})
"""Listeners for others than clients: the admin listener, and those for other workers."""


async def client_rows(host: Host) -> list[Row]:
    """The sessions that were used last, and connections of clients that have none."""
    used: list[tuple[str, OpenSession]] = []
    sessions = list(host.clients.items())
    for at in range(0, len(sessions), AT_ONCE):
        some = (*used, *sessions[at : at + AT_ONCE])
        used = heapq.nlargest(MOST // 2, some, key=lambda item: item[1].requests.used_at)
        await trio.lowlevel.checkpoint()
    clock = perf_counter()
    rows = [_session_row(name, session, clock) for name, session in used]
    return [*rows, *islice(_connection_rows(host.root), MOST // 2)]


def _session_row(name: str, session: OpenSession, clock: float) -> Row:
    requests, wire = session.requests, getattr(session, "wire", None)
    return {
        "name": name,
        "principal": clip(session.principal),
        **_said_of(session.terms or requests.latest),
        "transport": session.transport,
        "peer": clip(session.peer),
        "idle": round(clock - requests.used_at, 3) if requests.used_at else None,
        "in_flight": requests.count,
        **_traffic(wire),
    }


def _said_of(terms: Terms | None) -> Row:
    """What a client has said of itself."""
    info = None if terms is None else terms.client_info
    return {
        "client": None if info is None else clip(info.name),
        "version": None if info is None else clip(info.version),
        "revision": None if terms is None else terms.revision.value,
    }


def _connection_rows(root: Supervisor) -> Iterator[Row]:
    for edge in edges(root):
        for one in edge.some(sys.maxsize):
            if isinstance(one, HttpConnection) and one.terms is not None and one.upgraded is None:
                yield {
                    "name": one.name,
                    "principal": clip(one.terms.principal),
                    **_said_of(one.terms),
                    "transport": "http",
                    "peer": clip(one.peer),
                    "served": one.served,
                    **_traffic(one.wire),
                }


def _traffic(wire: object) -> Row:
    if not isinstance(wire, SocketWire):
        return {}
    received, sent = wire.traffic()
    return {"bytes_in": received, "bytes_out": sent}


def running_rows(host: Host) -> Iterator[Row]:
    """Requests that wait, the oldest first: those of modern clients, and those of sessions."""
    now = trio.current_time()
    modern = (one for one in host.requests.some(4 * MOST) if isinstance(one, RequestActor))
    rows = (_request_row(host, one.exchange, one.started_at, now) for one in modern)
    sessions = (one for session in host.clients.values() for one in session.requests.in_flight.values())
    legacy = (
        _request_row(host, one, one.actor.started_at, now)
        for one in sessions
        if isinstance(one, Exchange) and isinstance(one.actor, RequestActor)
    )
    yield from islice(chain(rows, legacy), MOST)


def _request_row(host: Host, exchange: Exchange, started_at: float, now: float) -> Row:
    terms, method = exchange.terms, exchange.request.method
    row: Row = {
        "age": round(now - started_at, 3),
        "method": clip(method),
        "target": target(exchange),
        "server": host.offer.owner_of(method, exchange.route.name or "") or None,
        "principal": clip(terms.principal),
        "client": client_of(terms),
        "revision": terms.revision.value,
        "state": state_of(exchange),
    }
    if exchange.life.state is RequestState.PARKED:
        row["round"] = exchange.rounds.number
    if exchange.progress is not None and (latest := exchange.progress.latest) is not None:
        row["progress"], row["total"] = latest.progress, latest.total
    return row


def state_of(exchange: Exchange) -> str:
    if exchange.life.state is RequestState.PARKED:
        return "parked"
    if exchange.waits_for_client:
        return "waits for client"
    return "answering" if exchange.life.is_over else "running"


def target(exchange: Exchange) -> str | None:
    """The tool or prompt, or the resource without what may be secret in its URI."""
    route = exchange.route
    return clip(route.name) if route.name else plain_uri(route.uri) if route.uri else None


def plain_uri(uri: str) -> str:
    """A URI without user, query and fragment."""
    try:
        parts = urlsplit(uri)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return "invalid URI"
    return clip(f"{parts.scheme}://{host}{port}{parts.path}" if parts.netloc else f"{parts.scheme}:{parts.path}")


def client_of(terms: Terms) -> str | None:
    return None if terms.client_info is None else clip(f"{terms.client_info.name} {terms.client_info.version}")


def past_row(past: PastRequest) -> Row:
    return {
        "ago": round(time.time() - past.at, 1),
        "method": past.method,
        "target": past.name or None,
        "server": past.server or None,
        "error": past.error or None,
        "seconds": round(past.seconds, 6),
        "principal": clip(past.principal),
    }


def tool_rows(host: Host, journal: Journal) -> Iterator[Row]:
    """Tools and prompts: those that were used, and then the others."""
    used = {(method, name): (took, failed) for method, name, took, failed in journal.by_name()}
    offered = {(method, name): server for method, name, server in host.offer.offered()}
    clock = perf_counter()
    names = chain(sorted(used, key=lambda one: -used[one][0].count), (one for one in offered if one not in used))
    for method, name in islice(names, MOST):
        took, failed = used.get((method, name), (None, 0))
        yield {
            "name": clip(name),
            "kind": "tool" if method == "tools/call" else "prompt",
            "server": offered.get((method, name)) or None,
            "calls": 0 if took is None else took.count,
            "errors": failed,
            "p50": None if took is None else took.quantile(0.5),
            "p99": None if took is None else took.quantile(0.99),
            "idle": None if took is None or not took.last else round(clock - took.last, 1),
        }


def server_rows(host: Host, journal: Journal) -> Iterator[Row]:
    """The backends of a broker."""
    offer = host.offer
    if isinstance(offer, BrokerOffer):
        for backend in islice(offer.backends.values(), MOST):
            yield _server_row(offer, backend, journal)


def _server_row(offer: BrokerOffer, backend: Backend, journal: Journal) -> Row:
    shared, is_up = backend.shared, backend.is_up
    pid = None if shared is None else shared.pid
    took = journal.of_backend(backend.name)
    waiting = sum(1 for name in offer.catalogue.withheld() if name.startswith(f"{backend.name}_"))
    row: Row = {
        "name": clip(backend.name),
        "state": backend.circuit.state.value,
        "is_up": is_up,
        "required": backend.settings.required,
        "why": None if is_up else clip(backend.why or "not connected"),
        "next_try": None if backend.next_try is None else round(max(0.0, backend.next_try - trio.current_time()), 1),
        "transport": None if shared is None else transport_of(shared.link),
        "revision": None if backend.agreed is None else backend.agreed.revision.value,
        "connections": len(backend.pool),
        "max_connections": backend.settings.max_connections,
        "in_flight": backend.in_flight.total,
        "max_in_flight": backend.settings.max_in_flight,
        "restarts": backend.circuit.restarted,
        "calls": took.count,
        "errors": journal.errors_of_backend(backend.name),
        "p50": took.quantile(0.5),
        "p99": took.quantile(0.99),
        "withheld": waiting,
        **offer.catalogue.counts(backend.name),
    }
    if not is_up and backend.said:
        row["said"] = [clip(line) for line in backend.said[-SAID:]]
    if pid is not None:
        row |= {"pid": pid, "resident": resident_bytes(pid), "cpu_seconds": cpu_of(pid)}
    return row


def transport_of(link: Link | None) -> str | None:
    """How a server is spoken to."""
    if link is None:
        return None
    if link.is_http:
        return "http"
    if link.process is not None:
        return "stdio"
    is_here = isinstance(link, DuplexLink) and isinstance(link.connection, MemoryConnection)
    return "in process" if is_here else "websocket"


def topic_rows(host: Host) -> Iterator[Row]:
    """Lists and resources that clients follow."""
    offer = host.offer
    own = ((_topic(change), count, None) for change, count in host.audience.lists.counts())
    upstream: Iterator[tuple[str, int, str | None]] = iter(())
    if isinstance(offer, BrokerOffer):
        upstream = (
            (plain_uri(uri), count, name)
            for name, backend in offer.backends.items()
            for uri, count in backend.subscriptions.counts()
        )
    for name, count, server in islice(chain(own, upstream), MOST):
        yield {"topic": name, "listeners": count, "server": server}


def _topic(change: Change) -> str:
    return f"{change.name} list" if isinstance(change, ListChanged) else plain_uri(change.uri)


def dead_letters(letters: DeadLetters) -> Row:
    now = trio.current_time()
    return {
        "total": letters.total,
        "counts": [
            {"kind": kind, "reason": reason.value, "count": count}
            for (kind, reason), count in letters.counts.most_common(MOST)
        ],
        "recent": [
            {"ago": round(now - one.at, 1), "path": clip(one.path), "kind": one.kind, "reason": one.reason.value}
            for one in letters.recent[-100:][::-1]
        ],
    }


def tree_of(root: Supervisor) -> Row:
    return node_row(root.tree(MOST_CHILDREN))


def node_row(node: Snapshot) -> Row:
    """An actor and all below it; what is as usual is left out."""
    row: Row = {"name": clip(node.name), "kind": node.kind, "state": clip(node.state), "age": round(node.age, 1)}
    if node.mailbox_size:
        row["mailbox"] = [node.mailbox_depth, node.mailbox_size, node.handled]
    if node.restarts:
        row["restarts"] = node.restarts
    if node.last_failure:
        row["failure"] = clip(node.last_failure)
    if node.facts:
        row["facts"] = {key: clip(value) if isinstance(value, str) else value for key, value in node.facts.items()}
    if node.children:
        row["children"] = [node_row(child) for child in node.children]
    if node.hidden:
        row["hidden"] = node.hidden
    return row


def counts(host: Host) -> Mapping[str, int]:
    """How much there is of everything."""
    return {
        "sessions": host.sessions.total,
        "in_flight": host.in_flight.total,
        "parked": len(host.parking),
        "subscriptions": sum(isinstance(one, Subscription) for one in host.requests.some(sys.maxsize)),
        "connections": connections(host.root),
        "dead_letters": host.root.dead_letters.total,
        "memory": host.memory.total,
    }


def connections(root: Supervisor) -> int:
    """How many connections are open, of all listeners."""
    return sum(edge.child_count for edge in edges(root))


def edges(root: Supervisor) -> Iterator[Supervisor]:
    """The supervisors of connections, one for each address."""
    for edge in root.some(MOST):
        if isinstance(edge, Supervisor) and edge.spec.name not in _OWN:
            with suppress(LookupError):
                yield edge.supervisor_of(tree.CONNECTIONS)


def clip(text: str) -> str:
    return text if len(text) <= TEXT else f"{text[: TEXT - 1]}…"
