"""The rows of each table that operators see: clients, requests, servers, tools, topics, dead letters.

Read where they are, when an operator looks: nothing is counted for them. Every table has a bound, however much the
server holds. They come one by one, and others may run in between: what is gone by then is left out, and None stands for
what was looked at and is no row. Nothing is in them that a request said but names, and no handle: no session id, no
state, no query of a URI.
"""

import heapq
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
from time import perf_counter
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable
from urllib.parse import urlsplit

import trio

from callboard import tree
from callboard.actors.broker.backend import Backend
from callboard.actors.broker.offer import BrokerOffer
from callboard.actors.broker.override_problems import override_problems
from callboard.actors.changes import Change, ListChanged
from callboard.actors.client.duplex_link import DuplexLink
from callboard.actors.client.link import Link
from callboard.actors.client.recorded_link import RecordedLink
from callboard.actors.lifecycle import RequestState
from callboard.actors.server.exchange import Exchange
from callboard.actors.server.host import Host
from callboard.actors.server.offer import Offer
from callboard.actors.server.open_session import OpenSession
from callboard.actors.server.request import RequestActor
from callboard.actors.server.subscription import Subscription
from callboard.actors.terms import Terms
from callboard.codecs.bridge.definitions import TOOLS
from callboard.codecs.caller import ANYBODY
from callboard.observe.journal import Journal, PastRequest
from callboard.observe.rates import Rates
from callboard.observe.sampler import cpu_of, resident_bytes
from callboard.observe.turns import Parts
from callboard.supervisor import DeadLetters, Fact, Snapshot, Supervisor
from callboard.transports.memory import MemoryConnection
from callboard.transports.server.http.connection import HttpConnection
from callboard.transports.ssl_wire import SslWire
from callboard.transports.wire import SocketWire

Row: TypeAlias = dict[str, Any]

MOST: Final = 200
"""Rows of one table."""

MOST_CHILDREN: Final = 50
"""Children of one supervisor that the tree shows, beside those that are always there."""

AT_ONCE: Final = 1_000
"""Sessions that are looked at before others get a turn."""

SAID: Final = 5
"""Last lines on the standard error of a server that is not up."""

LAST_LINES: Final = 20
"""Last lines on the standard error of any server, for operators who ask for them."""

TEXT: Final = 200
"""Characters of a name: they are words of clients and backends."""

_OWN: Final = frozenset({"admin", "inner", "nodes"})
"""Listeners for others than clients: the admin listener, and those for other workers."""


def client_rows(host: Host) -> Iterator[Row | None]:
    """The sessions that were used last, and connections of clients that have none."""
    used: list[tuple[str, OpenSession]] = []
    sessions = list(host.clients.items())
    for at in range(0, len(sessions), AT_ONCE):
        some = (*used, *sessions[at : at + AT_ONCE])
        used = heapq.nlargest(MOST // 2, some, key=lambda item: item[1].requests.used_at)
        yield None
    parked = Counter(one.session for one in host.parking.exchanges())
    for name, session in used:
        if host.clients.get(name) is session:
            yield _session_row(name, session, parked[session.key])
    left = MOST // 2
    for connection in _connections(host.root):
        yield None if connection is None else _connection_row(connection)
        left -= connection is not None
        if not left:
            return


def _session_row(name: str, session: OpenSession, parked: int) -> Row:
    requests, wire, hearing = session.requests, getattr(session, "wire", None), session.hearing
    return {
        "name": name,
        "principal": clip(session.principal),
        **_said_of(session.terms or requests.latest),
        "transport": session.transport,
        "peer": _address(session.peer),
        "since": round(trio.current_time() - session.started_at, 1),
        "idle": round(perf_counter() - requests.used_at, 3) if requests.used_at else None,
        "in_flight": requests.count,
        "parked": parked + len(session.key.questions),
        "subscriptions": 0 if hearing is None else len(hearing.lists) + len(hearing.followed),
        **(_traffic(wire) or _traffic(session.sink)),
    }


def _address(peer: str) -> str:
    """The address of a client: its account, if it were anonymous, has it."""
    return clip(peer.removeprefix(f"{ANYBODY}@"))


def _said_of(terms: Terms | None) -> Row:
    """What a client has said of itself."""
    info = None if terms is None else terms.client_info
    return {
        "client": None if info is None else clip(info.name),
        "version": None if info is None else clip(info.version),
        "revision": None if terms is None else terms.revision.value,
    }


def _connections(root: Supervisor) -> Iterator[HttpConnection | None]:
    """Those whose clients have no session."""
    for edge in list(edges(root)):
        every = list(edge.some(sys.maxsize))
        for at in range(0, len(every), AT_ONCE):
            yield None
            for one in every[at : at + AT_ONCE]:
                if isinstance(one, HttpConnection) and one.terms is not None and one.upgraded is None:
                    yield one


def _connection_row(one: HttpConnection) -> Row | None:
    """None if it has turned into something else meanwhile."""
    if one.terms is None:
        return None
    idle = one.wire.idle() if isinstance(one.wire, SocketWire | SslWire) else None
    return {
        "name": one.name,
        "principal": clip(one.terms.principal),
        **_said_of(one.terms),
        "transport": "http",
        "peer": _address(one.peer),
        "since": round(trio.current_time() - one.started_at, 1),
        "idle": None if idle is None else round(idle, 3),
        "in_flight": int(one.is_answering),
        "served": one.served,
        **_traffic(one.wire),
    }


@runtime_checkable
class MessageBytes(Protocol):
    """Messages of a client that are no bytes of one socket: those of pipes, and of sessions on many connections."""

    received: int
    sent: int


def _traffic(of: object) -> Row:
    """Bytes of a client: those of its socket, or of its messages; nothing where they are not known."""
    if isinstance(of, SocketWire | SslWire):
        received, sent = of.traffic()
    elif isinstance(of, MessageBytes):
        received, sent = of.received, of.sent
    else:
        return {}
    return {"bytes_in": received, "bytes_out": sent}


def running_rows(host: Host) -> Iterator[Row | None]:
    """Requests that wait, the oldest first: those of modern clients, and those of sessions."""
    now, left = trio.current_time(), MOST
    for row in chain(_modern_rows(host, now), _legacy_rows(host, now)):
        left -= row is not None
        yield row
        if not left:
            return


def _modern_rows(host: Host, now: float) -> Iterator[Row | None]:
    for one in list(host.requests.some(4 * MOST)):
        yield _request_row(host, one.exchange, one.started_at, now) if isinstance(one, RequestActor) else None


def _legacy_rows(host: Host, now: float) -> Iterator[Row | None]:
    sessions = list(host.clients.values())
    for at in range(0, len(sessions), AT_ONCE):
        for session in [one for one in sessions[at : at + AT_ONCE] if one.requests.in_flight]:
            for one in list(session.requests.in_flight.values()):
                if isinstance(one, Exchange) and isinstance(one.actor, RequestActor):
                    yield _request_row(host, one, one.actor.started_at, now)
        yield None


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
    if is_parked(exchange):
        row["round"] = exchange.rounds.number
    if exchange.progress is not None and (latest := exchange.progress.latest) is not None:
        row["progress"], row["total"] = latest.progress, latest.total
    return row


def is_parked(exchange: Exchange) -> bool:
    return exchange.life.state is RequestState.PARKED


def state_of(exchange: Exchange) -> str:
    if is_parked(exchange):
        return "parked"
    if exchange.waits_for_client:
        return "waits for client"
    if exchange.waits_for_operator is not None:
        return "waits for approval"
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
    clock, pins = perf_counter(), pins_of(host.offer)
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
            **({} if (pin := pins(method, name)) is None else {"pin": pin}),
        }


def pins_of(offer: Offer) -> Callable[[str, str], str | None]:
    """Whether a tool is pinned: what it is was approved, and it is withheld if it changes."""
    if not isinstance(offer, BrokerOffer):
        return lambda method, name: None
    pinned = {name for name, backend in offer.backends.items() if backend.settings.pin}
    entries = offer.catalogue.shown(TOOLS)
    withheld = offer.catalogue.withheld()

    def pin(method: str, name: str) -> str | None:
        if method != "tools/call":
            return None
        if name in withheld:
            return "waits for approval"
        return "pinned" if name in entries and entries[name].backend in pinned else None

    return pin


def server_rows(
    host: Host, journal: Journal, transports: Mapping[str, str | None], rates: Rates
) -> Iterator[Row | None]:
    """The backends of a broker. *transports*: as they are configured, for those that are not up."""
    offer = host.offer
    if not isinstance(offer, BrokerOffer):
        return
    backends = dict(islice(offer.backends.items(), MOST))
    counts: dict[str, tuple[int, ...]] = {}
    for name in backends:
        counts[name] = journal.of_backend(name).count, journal.errors_of_backend(name)
        yield None
    now = rates.per_second(counts)
    for name, backend in backends.items():
        row: Row = {}
        for pid in [one.pid for one in backend.pool if one.pid is not None]:
            _add_process(row, pid)
            yield None
        if offer.backends.get(name) is backend:
            row |= _server_row(offer, backend, journal)
            row["transport"] = row["transport"] or transports.get(name)
            row["calls_per_second"], row["errors_per_second"] = now.get(name, (None, None))
            yield row


def _add_process(row: Row, pid: int) -> None:
    """One of those that a backend has: the figures are of all together, the id is that of the first."""
    row.setdefault("pid", pid)
    for name, figure in (("processes", 1), ("resident", resident_bytes(pid)), ("cpu_seconds", cpu_of(pid))):
        row[name] = row.get(name, 0) + figure


def last_lines(host: Host, server: str) -> list[str] | None:
    """What a server said last on its standard error; None if there is none of that name. It may be anything, so it is
    in no view: an operator asks for it."""
    backend = host.offer.backends.get(server) if isinstance(host.offer, BrokerOffer) else None
    if backend is None:
        return None
    link = None if backend.shared is None else backend.shared.link
    said = backend.said if link is None else link.tail
    return [clip(line) for line in list(said)[-LAST_LINES:]]


def _server_row(offer: BrokerOffer, backend: Backend, journal: Journal) -> Row:
    shared, is_up = backend.shared, backend.is_available
    took = journal.of_backend(backend.name)
    catalogue, skills = offer.catalogue, () if backend.skills is None else backend.skills.withheld
    waiting = len(skills) + sum(catalogue.withholder(name)[0] == backend.name for name in catalogue.withheld())
    row: Row = {
        "name": clip(backend.name),
        "state": backend.circuit.state.value,
        "is_up": is_up,
        "required": backend.settings.required,
        "why": None if is_up else clip(backend.why or "no response yet"),
        "next_try": None if backend.next_try is None else round(max(0.0, backend.next_try - trio.current_time()), 1),
        "transport": None if shared is None else transport_of(shared.link),
        "revision": None if backend.agreed is None else backend.agreed.revision.value,
        "connections": len(backend.pool),
        "max_connections": backend.settings.max_connections,
        "in_flight": backend.in_flight.total,
        "max_in_flight": backend.settings.max_in_flight,
        "parked": sum(use.exchange is not None and is_parked(use.exchange) for one in backend.pool for use in one.uses),
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
    if problems := override_problems(backend.name, backend.listings):
        row["overrides"] = [clip(problem) for problem in problems]
    return row


def transport_of(link: Link | None) -> str | None:
    """How a server is spoken to."""
    if link is None:
        return None
    if link.is_http:
        return "http"
    if link.process is not None:
        return "stdio"
    if isinstance(link, RecordedLink):
        link = link.link
    is_here = isinstance(link, DuplexLink) and isinstance(link.connection, MemoryConnection)
    return "in process" if is_here else "websocket"


def topic_rows(host: Host) -> Iterator[Row]:
    """Lists and resources that clients follow."""
    offer, lists = host.offer, host.audience.lists
    own = ((_topic(change), count, None, lists.changed_at(change)) for change, count in lists.counts())
    upstream: Iterator[tuple[str, int, str | None, float | None]] = iter(())
    if isinstance(offer, BrokerOffer):
        upstream = (
            (plain_uri(uri), count, name, changed_at)
            for name, backend in offer.backends.items()
            for uri, count, changed_at in backend.subscriptions.counts()
        )
    now = time.monotonic()
    for name, count, server, changed_at in list(islice(chain(own, upstream), MOST)):
        changed = None if changed_at is None else round(now - changed_at, 1)
        yield {"topic": name, "listeners": count, "server": server, "changed": changed}


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


def tree_of(root: Supervisor) -> Parts[Row]:
    """The supervision tree. An actor that ends while it is looked at is shown all the same."""
    tree = yield from root.tree_in_parts(MOST_CHILDREN)
    return (yield from node_row(tree))


def node_row(node: Snapshot) -> Parts[Row]:
    """An actor and all below it; what is as usual is left out."""
    age = round(max(0.0, node.age), 1)
    row: Row = {"name": clip(node.name), "kind": node.kind, "state": clip(node.state), "age": age}
    if node.mailbox_size:
        row["mailbox"] = [node.mailbox_depth, node.mailbox_size, node.handled]
    if node.restarts:
        row["restarts"] = node.restarts
    if node.last_failure:
        row["failure"] = clip(node.last_failure)
    if node.facts:
        row["facts"] = {key: _fact(key, value) for key, value in node.facts.items()}
    if node.children:
        row["children"] = []
        for child in node.children:
            row["children"].append((yield from node_row(child)))
            yield
    if node.hidden:
        row["hidden"] = node.hidden
    return row


def _fact(key: str, value: Fact) -> Fact:
    if not isinstance(value, str):
        return value
    return plain_uri(value) if key == "uri" else clip(value)


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
        "waiting_calls": len(host.approvals.waiting),
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
