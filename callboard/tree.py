"""The whole supervision tree, as data: which actor runs under which, which is restarted, in which order they end.

    SERVER or BROKER                          open_tree(host(...)) or open_tree(broker(...))
      backends                                a broker has
        NAME                                  one for each backend: all of it is started anew together
          connections, answers, subscriptions its connections; what it asks of clients; what is followed at it
          backend                             the actor that connects, reads lists, checks health
      control
        broker                                owns the catalogue, starts and ends backends; a broker has one
      issuers                                 where tokens are checked
        issuer-N                              fetches the keys of one issuer, or asks it about its tokens
      parking                                 requests that wait for their clients' next message
      progress                                sends progress reports that came too fast
      hosted-tasks                            calls that go on after their requests were answered, each an actor
      requests                                requests of modern clients that wait, each an actor
      sessions
        NAME                                  one for each session: it ends when either of the two does
          session, reader                     writes to the client; reads what it says
      audit                                   the audit log, if there is one
        writer                                appends what waits, by a thread
      http-N, admin, asgi, pings-N            listeners, added while they listen
        keep-alive, write-batch, slow-requests  one timer or queue for all connections of a listener
        connections                           one for each connection
        listener-N                            accepts
    node                                      open_tree(node()): the parent of several processes
      workers                                 one for each process
      cluster                                 below a node among others
        takes, news, keeper                   look for sessions; hear what other nodes say; announce this one, write
    client                                    open_tree(client())
      answers, background, requests           answers to what the server asks; its reader; what was asked of it

Order is meaning: children start top to bottom and end bottom to top. So nothing new comes in before open requests
have finished, and requests outlive the connections that brought them.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import attrs

from callboard.supervisor import Actor, Backoff, ChildSpec, Intensity, Restart, Strategy, Supervisor, SupervisorSpec

Make: TypeAlias = Callable[[], Actor[Any]]
"""Makes an actor: called for each incarnation of it."""

Children: TypeAlias = tuple[ChildSpec[Any] | SupervisorSpec, ...]

BACKENDS: Final = "backends"
CONNECTIONS: Final = "connections"
REQUESTS: Final = "requests"
TASKS: Final = "hosted-tasks"
SESSIONS: Final = "sessions"
ANSWERS: Final = "answers"
SUBSCRIPTIONS: Final = "subscriptions"
CONTROL: Final = "control"
BROKER: Final = "broker"
BACKGROUND: Final = "background"
ISSUERS: Final = "issuers"

AFTER_CRASH: Final = Backoff(first=1.0, most=30.0)
"""How long a backend stays down whose actor crashed: that is a fault of ours, which the next attempt may meet again."""

CRASHES: Final = Intensity(20, per=60.0)
"""Crashes after which a backend is given up: more than those pauses allow. It is never given up."""

ENDLESS: Final = Intensity(1_000_000, per=1.0)
"""Restarts that the admin listener and the broker's own actor may have: any number. Neither may end the server."""

WORKERS: Final = "workers"

WORKER_WAITS: Final = Backoff(first=0.1, most=10.0)
"""How long the place of a worker stays empty that ended by itself."""

WORKER_CRASHES: Final = Intensity(1_000_000, per=30.0)
"""Restarts that workers may have: any number. The place of one that lived for less than those seconds stays empty twice
as long as before."""

WORKER_STARTS: Final = 60.0
"""Seconds for a process to begin: a server may load much."""

WORKER_KILLED: Final = 1.0
"""Seconds for the end of a worker that was killed."""

KEPT_ENDS: Final = 10.0
"""Seconds for a backend that workers share to end, and for what was asked of it to be answered."""

STORE_WAITS: Final = Backoff(first=0.1, most=0.5)
"""How long a node waits until it tries again to reach the store that all nodes share."""

NEWS_WAITS: Final = Backoff(first=0.1, most=5.0)
"""How long news of backends wait after the broker's own actor has crashed."""


def host(name: str, parking: Make, reports: Make) -> SupervisorSpec:
    """A hosted server."""
    return SupervisorSpec(
        name,
        children=(
            ChildSpec("parking", parking, shutdown=0, kept="requests that wait are in it; it has nothing to finish"),
            ChildSpec("progress", reports, shutdown=0, kept="requests have reports in it; the last ones they send"),
            SupervisorSpec(TASKS),
            SupervisorSpec(REQUESTS),
            SupervisorSpec(SESSIONS),
        ),
    )


def broker(name: str, parking: Make, reports: Make, own: Make) -> SupervisorSpec:
    """A broker: a server whose handlers are other servers. If its own actor crashes, calls go on with the lists as they
    are, and the next incarnation reads anew what each backend has."""
    served = host(name, parking, reports)
    control = SupervisorSpec(CONTROL, children=(ChildSpec(BROKER, own),), intensity=ENDLESS, backoff=NEWS_WAITS)
    return attrs.evolve(served, children=(SupervisorSpec(BACKENDS), control, *served.children))


def backend(name: str) -> SupervisorSpec:
    """One backend of a broker. If its actor crashes, all that belongs to it is started anew; no other one notices."""
    return SupervisorSpec(
        name,
        children=(SupervisorSpec(CONNECTIONS), SupervisorSpec(ANSWERS), SupervisorSpec(SUBSCRIPTIONS)),
        strategy=Strategy.ONE_FOR_ALL,
        intensity=CRASHES,
        backoff=AFTER_CRASH,
        restart=Restart.TEMPORARY,
    )


def backend_actor(make: Make) -> ChildSpec[Any]:
    """The actor of a backend, below `backend`."""
    return ChildSpec("backend", make, restart=Restart.TRANSIENT, significant=True)


def session(name: str, own: Make, readers: Iterable[Make], requests: Supervisor) -> SupervisorSpec:
    """A session, with the reader of its connection where that is its own. Stopping begins with not reading any more.
    The reader's task is one of the *requests*: it may stay with one that is parked when the session ends."""
    return SupervisorSpec(
        name,
        children=(
            ChildSpec("session", own, restart=Restart.TEMPORARY, significant=True),
            *(
                ChildSpec("reader", reader, restart=Restart.TEMPORARY, significant=True, shutdown=0, tasks=requests)
                for reader in readers
            ),
        ),
        restart=Restart.TEMPORARY,
    )


def issuers() -> SupervisorSpec:
    """The actors that speak to authorization servers. A crash of one never ends the server."""
    return SupervisorSpec(ISSUERS, intensity=ENDLESS, backoff=AFTER_CRASH)


def issuer(name: str, make: Make) -> ChildSpec[Any]:
    """The actor for one issuer, below `issuers`."""
    return ChildSpec(name, make, shutdown=0, kept="tokens are checked by what it has")


def node() -> SupervisorSpec:
    """A server in several processes: its parent has one actor for each of them."""
    return SupervisorSpec(
        "node",
        children=(SupervisorSpec(WORKERS, intensity=WORKER_CRASHES, backoff=WORKER_WAITS),),
    )


def cluster(takes: Make, news: Make, keeper: Make) -> SupervisorSpec:
    """A node among others, below `node`. Two of these end whenever the store does not answer."""
    return SupervisorSpec(
        "cluster",
        children=(
            ChildSpec("takes", takes, shutdown=0),
            ChildSpec("news", news, shutdown=0),
            ChildSpec("keeper", keeper, shutdown=0),
        ),
        intensity=ENDLESS,
        backoff=STORE_WAITS,
    )


def worker(name: str, make: Make) -> ChildSpec[Any]:
    """One worker process, below `node`. A new one takes the place of one that ended by itself."""
    return ChildSpec(name, make, restart=Restart.TRANSIENT, shutdown=WORKER_KILLED, start_within=WORKER_STARTS)


def keeper() -> SupervisorSpec:
    """The process that has the backends which workers share: a broker in a broker, one for each of them."""
    return SupervisorSpec("keeper", children=(SupervisorSpec(BACKENDS, intensity=ENDLESS, backoff=AFTER_CRASH),))


def kept(name: str, make: Make) -> ChildSpec[Any]:
    """One of them, below `keeper`."""
    return ChildSpec(name, make, restart=Restart.TRANSIENT, shutdown=KEPT_ENDS)


def keep_alive(make: Make, name: str = "keep-alive") -> ChildSpec[Any]:
    """Actor that sends comments to idle streams, or pings to idle sockets."""
    return ChildSpec(name, make, shutdown=0, kept="it holds the streams and sockets")


def listeners(write_batch: Make, slow_requests: Make, accepting: Sequence[Make], write_time: float) -> Children:
    """The children of a listener that take connections in, and the connections."""
    return (
        ChildSpec("write-batch", write_batch, shutdown=0, kept="wires write by way of it"),
        ChildSpec("slow-requests", slow_requests, shutdown=0, kept="connections are reminded by it"),
        SupervisorSpec(CONNECTIONS, drain=write_time),
        *(ChildSpec(f"listener-{number}", make, shutdown=0) for number, make in enumerate(accepting, 1)),
    )


def http(name: str, comments: Make, listening: Children, http2_time: float | None = None) -> SupervisorSpec:
    """An HTTP listener, WebSockets included. *http2_time*: seconds that requests of HTTP/2 have to finish, if it has
    that: those are no connection's own."""
    http2 = () if http2_time is None else (SupervisorSpec(REQUESTS, drain=http2_time),)
    return SupervisorSpec(name, children=(keep_alive(comments), *http2, *listening))


def asgi(comments: Make) -> SupervisorSpec:
    """The endpoint as an ASGI application: the server in front has the connections."""
    return SupervisorSpec("asgi", children=(keep_alive(comments), SupervisorSpec(REQUESTS)))


def guests() -> SupervisorSpec:
    """WebSockets that another library reads. What they have in flight may finish, for a moment."""
    return SupervisorSpec("websockets", drain=2.0)


def inner(name: str, listening: Children) -> SupervisorSpec:
    """Where other workers reach this one."""
    return SupervisorSpec(name, children=listening, intensity=ENDLESS)


def admin(listening: Children) -> SupervisorSpec:
    """The admin listener. It is there before the others listen, and after they have stopped."""
    return SupervisorSpec("admin", children=listening, intensity=ENDLESS)


def audit(writer: Make) -> SupervisorSpec:
    """The audit log. What waits to be written outlives its writer."""
    return SupervisorSpec(
        "audit", children=(ChildSpec("writer", writer, shutdown=0),), intensity=ENDLESS, backoff=STORE_WAITS
    )


def client() -> SupervisorSpec:
    """A client of one server."""
    return SupervisorSpec("client", children=(SupervisorSpec(ANSWERS), SupervisorSpec(BACKGROUND)))
