"""What one process counts, as families of metrics.

The names of the first ones are OpenTelemetry's for MCP, in Prometheus' spelling. All but the durations are read when
they are asked for. A label is never something that a client can choose freely: no principal, no session, no URI, and of
names only those that the server offers.
"""

import platform
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Final, Literal

import trio

from callboard._version import __version__
from callboard.actors.broker.backend import Backend
from callboard.actors.broker.circuit import CircuitState
from callboard.actors.broker.offer import BrokerOffer
from callboard.actors.server.host import Host
from callboard.actors.server.observer import CANCELLED
from callboard.actors.server.offer import Offer
from callboard.errors import TIMED_OUT
from callboard.observe import rows
from callboard.observe.durations import BOUNDS
from callboard.observe.journal import BackendFigures, Journal
from callboard.observe.metrics import Families, Family, Labels, Sample, histogram
from callboard.observe.sampler import Sampler, cpu_of, cpu_seconds, resident_bytes
from callboard.supervisor import Fact

OPERATION: Final = BOUNDS[5:]
"""Bounds of operations: those of OpenTelemetry, and four below them."""

OVERHEAD: Final = BOUNDS[:13]
"""Bounds of what callboard itself takes: 10 us to 100 ms."""

NETWORK: Final[Mapping[str, tuple[str, str]]] = {
    "stdio": ("pipe", ""),
    "http": ("tcp", "http"),
    "sse": ("tcp", "http"),
    "websocket": ("tcp", "websocket"),
}
"""Transport and protocol, as OpenTelemetry names them."""

_TIMED_OUT: Final = str(TIMED_OUT)


async def families_of(host: Host, journal: Journal, sampler: Sampler) -> Families:
    """Everything that is counted here. Made in steps: there may be thousands of series."""
    _note_links(host.offer, journal)
    families = [family async for family in _operations(journal)]
    families.append(
        await histogram(
            "callboard_loop_lag_seconds",
            "How late the event loop was: high values say that the process is the bottleneck.",
            OVERHEAD,
            [({}, sampler.lag)],
        )
    )
    for some in (_present(host), _backends(host.offer), _losses(host, journal), _contexts(host), _actors(host)):
        for family in some:
            families.append(family)
            await trio.lowlevel.checkpoint()
    return [*families, *_process()]


async def _operations(journal: Journal) -> AsyncIterator[Family]:
    series = list(journal.series.items())
    yield await histogram(
        "mcp_server_operation_duration_seconds",
        "How long requests of clients took.",
        OPERATION,
        ((_front(*key), took) for key, took in series),
    )
    behind = [(_back(server, figures), list(figures.series.items())) for server, figures in journal.behind.items()]
    yield await histogram(
        "mcp_client_operation_duration_seconds",
        "How long servers behind the broker took.",
        OPERATION,
        (
            (_labels(mcp_method_name=method, gen_ai_tool_name=name, error_type=error) | common, took)
            for common, some in behind
            for (method, name, error), took in some
        ),
    )
    sessions = list(journal.sessions.items())
    yield await histogram(
        "mcp_server_session_duration_seconds",
        "How long sessions of clients were open.",
        OPERATION,
        (
            (_labels(mcp_protocol_version=revision, network_transport=NETWORK.get(transport, ("", ""))[0]), took)
            for (transport, revision), took in sessions
        ),
    )
    yield await histogram(
        "callboard_overhead_seconds",
        "What a brokered request took beside the time of its server.",
        OVERHEAD,
        [({}, journal.overhead)],
    )


def _note_links(offer: Offer, journal: Journal) -> None:
    """How each backend is spoken to, as it was last: labels must not come and go with it."""
    if isinstance(offer, BrokerOffer):
        for name, figures in journal.behind.items():
            backend = offer.backends.get(name)
            if backend is not None and backend.agreed is not None:
                figures.revision = backend.agreed.revision.value
            if backend is not None and backend.shared is not None:
                figures.transport = rows.transport_of(backend.shared.link) or figures.transport


def _back(server: str, figures: BackendFigures) -> Labels:
    network, protocol = NETWORK.get(figures.transport, ("", ""))
    return _labels(
        server=server,
        mcp_protocol_version=figures.revision,
        network_transport=network,
        network_protocol_name=protocol,
    )


def _contexts(host: Host) -> Iterator[Family]:
    tracer = host.tracer
    if tracer is not None:
        yield Family(
            "callboard_trace_context_dropped_total",
            "counter",
            "Members of trace contexts of clients that were invalid or too long.",
            [Sample({"key": key}, count) for key, count in sorted(tracer.dropped.items())],
        )


def _front(method: str, name: str, revision: str, transport: str, error: str) -> Labels:
    network, protocol = NETWORK.get(transport, ("", ""))
    return _labels(
        mcp_method_name=method,
        gen_ai_tool_name=name,
        error_type=error,
        mcp_protocol_version=str.__str__(revision),
        network_transport=network,
        network_protocol_name=protocol,
    )


def _labels(**labels: str) -> Labels:
    return {name: value for name, value in labels.items() if value}


def _gauge(name: str, help_: str, value: float, **labels: str) -> Family:
    return Family(name, "gauge", help_, [Sample(labels, value)])


def _present(host: Host) -> Iterator[Family]:
    there = rows.counts(host)
    transports = Counter(session.transport for session in host.clients.values())
    sessions = [Sample({"transport": name}, count) for name, count in transports.items()]
    yield Family("callboard_sessions", "gauge", "Sessions that are open.", sessions or [Sample({})])
    yield _gauge("callboard_connections", "Connections of clients that are open.", there["connections"])
    yield _gauge("callboard_in_flight", "Requests that wait.", there["in_flight"])
    yield _gauge("callboard_parked", "Requests that wait for input of their client.", there["parked"])
    yield _gauge("callboard_subscriptions", "Streams of subscriptions that are open.", there["subscriptions"])
    yield _gauge("callboard_client_memory_bytes", "Memory that clients take up, estimated.", there["memory"])


def _backends(offer: Offer) -> Iterator[Family]:
    if not isinstance(offer, BrokerOffer):
        return
    backends = list(offer.backends.values())[: rows.MOST]
    for name, kind, help_, value in _OF_BACKENDS:
        samples = [Sample({"server": one.name}, found) for one in backends if (found := value(one)) is not None]
        yield Family(name, kind, help_, samples, merge="max")
    states = [
        Sample({"server": one.name, "state": state.value}, float(one.circuit.state is state))
        for one in backends
        for state in CircuitState
    ]
    yield Family("callboard_backend_state", "gauge", "1 for the state that the server is in.", states, merge="max")


def _of_process(measure: Callable[[int], float]) -> Callable[[Backend], float | None]:
    """What is measured of a server's process; None if it has none of ours."""

    def value(backend: Backend) -> float | None:
        pid = None if backend.shared is None else backend.shared.pid
        return None if pid is None else measure(pid)

    return value


_OF_BACKENDS: Final[tuple[tuple[str, Literal["counter", "gauge"], str, Callable[[Backend], float | None]], ...]] = (
    ("callboard_backend_up", "gauge", "Whether the server can be used.", lambda one: float(one.is_available)),
    (
        "callboard_backend_restarts_total",
        "counter",
        "How often the server was started again.",
        lambda one: one.circuit.restarted,
    ),
    ("callboard_backend_connections", "gauge", "Connections to the server.", lambda one: len(one.pool)),
    ("callboard_backend_in_flight", "gauge", "Requests that it has not answered yet.", lambda one: one.in_flight.total),
    (
        "callboard_backend_process_resident_bytes",
        "gauge",
        "Memory of the server's process.",
        _of_process(resident_bytes),
    ),
    (
        "callboard_backend_process_cpu_seconds_total",
        "counter",
        "CPU time of the server's process.",
        _of_process(cpu_of),
    ),
)
"""Name, kind, help and value of what is told of each backend."""


def _losses(host: Host, journal: Journal) -> Iterator[Family]:
    letters = [
        Sample({"kind": kind, "reason": reason.value}, count)
        for (kind, reason), count in host.root.dead_letters.counts.most_common(rows.MOST)
    ]
    yield Family("callboard_dead_letters_total", "counter", "Messages between actors that were not delivered.", letters)
    refused = [Sample({"reason": reason}, count) for reason, count in journal.refused.items()]
    yield Family("callboard_refused_total", "counter", "Requests that were refused before they began.", refused)
    if host.auditor is not None:
        lines = [Sample({"outcome": outcome}, count) for outcome, count in host.auditor.counts.items()]
        yield Family("callboard_audit_lines_total", "counter", "Lines of the audit log, written and dropped.", lines)
    for name, error, help_ in (
        ("callboard_cancelled_total", CANCELLED, "Requests that their clients cancelled."),
        ("callboard_timeouts_total", _TIMED_OUT, "Requests that took too long."),
    ):
        yield Family(name, "counter", help_, [Sample({}, journal.ended[error])])


def _actors(host: Host) -> Iterator[Family]:
    """By kind of actor. Of thousands of the same kind only some are looked at, but how many there are is known."""
    nodes = list(host.root.tree(rows.MOST_CHILDREN).walk())
    counts: Counter[str] = Counter()
    depths: dict[str, int] = {}
    for node in nodes:
        counts[node.kind] += 1
        if node.hidden and node.children:
            counts[node.children[-1].kind] += node.hidden  # those that are not shown are like those that are
        if node.kind and node.mailbox_size:
            depths[node.kind] = max(depths.get(node.kind, 0), node.mailbox_depth)
    restarts = host.root.dead_letters.restarts
    yield Family("callboard_actors", "gauge", "Actors that are there.", _by_kind(counts))
    yield Family("callboard_actor_restarts_total", "counter", "How often actors were restarted.", _by_kind(restarts))
    help_ = "Messages that wait in the fullest mailbox."
    yield Family("callboard_mailbox_depth_max", "gauge", help_, _by_kind(depths), merge="max")
    for node in nodes:
        if node.kind == "Reloader":
            yield from _reloads(node.facts)


def _by_kind(values: Mapping[str, float]) -> list[Sample]:
    return [Sample({"kind": kind}, value) for kind, value in values.items() if kind]


def _reloads(facts: Mapping[str, Fact]) -> Iterator[Family]:
    yield Family(
        "callboard_config_reloads_total",
        "counter",
        "How often the configuration was changed while it was in use.",
        [Sample({"outcome": outcome}, float(facts[outcome] or 0)) for outcome in ("reloaded", "rejected")],
        merge="max",
    )
    yield Family(
        "callboard_config_last_reload_timestamp_seconds",
        "gauge",
        "When the configuration in use was read.",
        [Sample({}, float(facts["reloaded_at"] or 0))],
        merge="max",
    )


def _process() -> Iterator[Family]:
    versions = {"version": __version__, "python": platform.python_version(), "trio": trio.__version__}
    yield Family("callboard_info", "info", "Versions.", [Sample(versions, 1.0)], merge="max")
    yield Family("process_cpu_seconds_total", "counter", "CPU time of all processes.", [Sample({}, cpu_seconds())])
    yield _gauge("process_resident_memory_bytes", "Memory of all processes.", resident_bytes())
