"""How a server is run: any set of transports at once, in one process, until it is asked to end."""

import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Unpack

import attrs
import trio

from callboard import tree
from callboard.actors.quotas import own_limit
from callboard.actors.server.client_pings import begin_pings
from callboard.actors.server.drain import drain
from callboard.actors.server.host import Host
from callboard.errors import CannotServe
from callboard.serve.admin import Health, admin_edge
from callboard.serve.auditing import open_audit_log
from callboard.serve.authorization import begin_renewing, open_guard
from callboard.serve.banner import announce, announce_drain
from callboard.serve.code_watch import loaded_files
from callboard.serve.collector import collecting_now_and_then, collecting_seldom
from callboard.serve.inspector import InspectorPages
from callboard.serve.logins import broker_with_logins, check_alone, open_logins
from callboard.serve.options import Options, Ready, ServePlan, listening_at, listening_told, warnings_for
from callboard.serve.processes import run_workers
from callboard.serve.recording import record_behind
from callboard.serve.refused_names import RefusedNames
from callboard.serve.traces import begin_tracing
from callboard.serve.watchdog import watched_loop
from callboard.serve.worker import begin_work, inherited, leave, place_backends, started
from callboard.server.habits import check_options
from callboard.server.served import Hosted
from callboard.supervisor import Supervisor, SupervisorSpec, get_logger
from callboard.supervisor.audit import note
from callboard.supervisor.colours import coloured, shows_colours
from callboard.transports.bind import BindAddress, Bound, listen
from callboard.transports.descriptors import raise_descriptor_limit
from callboard.transports.limits import Settings
from callboard.transports.server.http.endpoint import Endpoint, Pages
from callboard.transports.server.http.guard import Guard
from callboard.transports.server.http.homes import Alone
from callboard.transports.server.http.listener import HttpListener, http_edge
from callboard.transports.server.stdio import Stdio
from callboard.transports.server.tls import Certificate
from callboard.transports.server.websocket.upgrade import WebSocketUpgrade
from callboard.transports.signals import heed_hangups, heed_signals
from callboard.workers.worker import Worker

log = get_logger("callboard.serving")


async def serve(
    server: Hosted,
    *,
    until: Callable[[], Awaitable[None]] = trio.sleep_forever,
    task_status: trio.TaskStatus[Ready] = trio.TASK_STATUS_IGNORED,
    **options: Unpack[Options],
) -> None:
    """Serve until *until* returns, or the client at the other end of stdio leaves; then drain, and return.

    Raises `CannotServe` if one of the transports cannot be opened. Cancelled, it ends at once.
    """
    plan = ServePlan(**options)
    tls, settings = plan.tls(), plan.settings
    async with AsyncExitStack() as stack:
        pipes = stack.enter_context(plan.pipes()) if plan.serves_stdio else None
        worker = plan.worker
        if worker is not None:
            bound, admin = inherited(worker, plan.places()), None  # which the parent has
            parking = worker.parking(server.info.name, settings)
            place_backends(worker, server)
        else:
            bound = {place: await stack.enter_async_context(listen(place)) for place in plan.places()}
            admin = None if plan.admin is None else await stack.enter_async_context(listen(plan.admin))
            parking = plan.parking(server.info.name)
        ready = Ready(server.info, tuple(listening_at(plan, bound, admin)), tuple(warnings_for(plan, bound, admin)))
        audit = open_audit_log(plan, server.info, stack)
        pages = InspectorPages() if plan.inspector else await open_logins(server, plan)
        tape = None if plan.record is None else stack.enter_context(record_behind(server, plan.record))
        host = await stack.enter_async_context(server.host(parking=parking))
        host.tape = tape
        begin_pings(host.root, host.clients, settings.client_ping)
        health = Health(server, host)
        view = None
        if plan.admin is not None:
            from callboard.observe.view import ServerView  # 3 MiB, which few need

            view = ServerView(host, server, listening_told(ready.listening), health.is_ready)
            view.begin()
        if plan.access_log:
            from callboard.observe.access_log import AccessLog

            host.observer = AccessLog(host.offer.owner_of, host.observer)
        if plan.trace:
            stack.push_async_callback(begin_tracing(host, plan.accepts_traces()))
        if audit is not None:
            await audit.join(host)  # around all other observers
        if admin is not None and view is not None:
            room = plan.room(view, health, admin.place)
            host.root.spawn(room.viewers, name="viewers", shutdown=0)
            await host.root.add(admin_edge(health, plan.access(admin.place, is_admin=True), admin.sockets, room))
        link = None
        if worker is not None:
            worker.join(host)
            server.join_workers()
            link = await begin_work(worker, host, server, plan, stack, view)
        make = own_limit if worker is None else worker.shared_limit
        tables, guard = await open_guard(
            *(host, server, plan.authenticate, plan.authorization), url=plan.local_url(bound.values()), make=make
        )
        doors = [_edge(plan, host, place, at, tls, guard, pages) for place, at in bound.items()]
        if link is not None:
            await link.introduce()
        edges = [await host.root.add(door) for door in doors]
        begin_renewing(host, guard, tls, plan.authenticate, tables)
        ends: list[Callable[[], Awaitable[object]]] = [until]
        if pipes is not None:
            ends.append(
                host.root.spawn(Stdio(plan.stdio_host(host), pipes, settings.max_frame), name="stdio").wait_ended
            )
        ready = attrs.evolve(ready, behind=server.behind())
        if link is not None:
            files = loaded_files() if plan.reload else ()
            link.say(started(server, ready.warnings, 0 if worker is None else worker.port, files))
            ends.append(link.leaving.wait)
        if plan.on_ready is not None:
            plan.on_ready(ready)
        task_status.started(ready)
        await _wait_first(ends)
        drain_time = settings.drain_time
        if worker is not None and link is not None:
            with trio.move_on_after(link.linger):
                if link.linger:
                    close = partial(_close_listeners, edges, are_last=link.drain_within is not None)
                    await leave(worker, host, edges, close, until, settings.spread)
            link.is_draining = True
            drain_time = drain_time if link.drain_within is None else link.drain_within
        elif settings.lame_duck:
            health.is_leaving = True
            log.info("leaving", lame_duck=settings.lame_duck)
            await trio.sleep(settings.lame_duck)  # a second signal ends it at once
        await drain(
            host,
            close_doors=partial(_close_listeners, edges),
            edges=[edge.address for edge in edges],
            tell=partial(announce_drain, within=drain_time),
            within=drain_time,
            spread=settings.spread,
        )


def run(server: Hosted, **options: Unpack[Options]) -> None:
    """`serve` in an event loop of its own, until a signal says that it is enough: the first one lets it drain."""
    options.setdefault("on_ready", announce)
    if broker_with_logins(server) is not None:
        check_alone(ServePlan(**options))
    if run_workers(options, has_backends=server.behind() is not None):
        return
    worker = options.get("worker")
    if worker is not None and worker.is_keeper:
        _run_keeper(server, worker, ServePlan(**options).settings)
        return
    raise_descriptor_limit()
    with collecting_seldom():
        trio.run(partial(_run, server, options))


def run_or_exit(server: Hosted, **options: Unpack[Options]) -> None:
    """`run`; what keeps it from running is one line, as in the commands, and the exit code 2."""
    check_options(options, Options.__annotations__)
    try:
        run(server, **options)
    except CannotServe as error:
        sys.stderr.write(f"callboard: {coloured(str(error)) if shows_colours() else error}\n")
        sys.exit(2)


def _run_keeper(server: Hosted, worker: Worker, settings: Settings) -> None:
    from callboard.broker.broker import Broker  # most processes have none
    from callboard.serve.keeper import run_keeper

    if not isinstance(server, Broker):
        raise CannotServe("only a broker has backends to keep")
    run_keeper(server, worker, settings)


async def _run(server: Hosted, options: Options) -> None:
    """Serve until a signal comes. One that comes before the server is ready ends it at once: there is nothing to drain.

    Raises `KeyboardInterrupt` if that was Ctrl-C.
    """
    announces, is_ready, early = options.get("on_ready"), False, 0

    def on_ready(ready: Ready) -> None:
        nonlocal is_ready
        is_ready = True
        if announces is not None:
            announces(ready)

    def on_first(number: int) -> None:
        nonlocal early
        if not is_ready:
            early = number
            whole.cancel()

    options["on_ready"] = on_ready
    with (
        trio.CancelScope() as whole,
        heed_signals(whole.cancel, on_first=on_first) as asked,
        heed_hangups(),
        collecting_now_and_then(),
        watched_loop(server),
    ):
        await serve(server, until=asked.wait, **options)
    if early == signal.SIGINT:
        raise KeyboardInterrupt


def _edge(
    plan: ServePlan,
    host: Host,
    place: BindAddress,
    bound: Bound,
    tls: Certificate | None,
    guard: Guard | None,
    pages: Pages | None,
) -> SupervisorSpec:
    """The tree behind one address."""
    settings = plan.settings
    refused = RefusedNames(str(bound.place), "--token-file" if plan.authorization is None else "--authorization")
    is_http, is_ws = place == plan.http, place == plan.ws
    homes = Alone() if plan.worker is None else plan.worker.homes
    endpoint = Endpoint(
        host,
        plan.access(bound.place),
        settings,
        guard=guard,
        is_http=is_http,
        legacy_sse=is_http and plan.legacy_sse,
        on_upgrade=WebSocketUpgrade(host, settings, guard, homes).serve if is_ws else None,
        homes=homes,
        on_unauthorized=partial(_tell_unauthorized, refused),
        pages=pages if is_http else None,
    )
    with_http2 = is_http and plan.http_engine == "asgi"
    turns = None if plan.worker is None else plan.worker.share.door()
    if plan.worker is not None:
        plan.worker.endpoints.append(endpoint)
    return http_edge("http" if is_http else "ws", endpoint, bound.sockets, tls, with_http2=with_http2, turns=turns)


def _tell_unauthorized(refused: RefusedNames, peer: str, reason: str | None) -> None:
    refused.token(peer, reason)
    note("authentication_refused", outcome="refused", remote=peer.rpartition("@")[2], reason=reason or "no token")


async def _close_listeners(edges: Sequence[Supervisor], *, are_last: bool = False) -> None:
    """Accept no connection any more, and free the addresses: the next process may take them over. If these *are_last*
    to listen there, connections that wait are taken first: the kernel would reset them."""
    for edge in edges:
        for address, actor in edge.actors():
            if isinstance(actor, HttpListener):
                await address.stop()
                if are_last:
                    actor.take_waiting(edge.supervisor_of(tree.CONNECTIONS))
                actor.listening.close()


async def _wait_first(ends: Sequence[Callable[[], Awaitable[object]]]) -> None:
    """Wait until one of them returns."""
    async with trio.open_nursery() as nursery:

        async def wait(end: Callable[[], Awaitable[object]]) -> None:
            await end()
            nursery.cancel_scope.cancel()

        for end in ends:
            nursery.start_soon(wait, end)
