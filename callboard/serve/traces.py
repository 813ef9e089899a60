"""How tracing begins and ends with a server."""

from collections.abc import Awaitable, Callable

from callboard.actors.server.host import Host
from callboard.serve.options import TraceAccept
from callboard.supervisor import get_logger
from callboard.supervisor.logs import add_to_lines

log = get_logger("callboard.serving")


def begin_tracing(host: Host, accept: TraceAccept) -> Callable[[], Awaitable[None]]:
    """Trace the requests of *host* from now on. Returns what ends it: the spans that are left are exported, which takes
    two seconds at most."""
    from callboard.observe.tracing import Tracing, current_ids, find_tracer, flush  # needs an extra

    tracer = find_tracer()
    if tracer is None:
        log.warning("tracing_not_configured", hint="no OpenTelemetry SDK is set up: run it by opentelemetry-instrument")
    else:
        host.observer = host.tracer = Tracing(tracer, host.offer.owner_of, accept, host.observer)
        add_to_lines(current_ids)

    async def end() -> None:
        if tracer is not None:
            add_to_lines(None)
            await flush()

    return end
