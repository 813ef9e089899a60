"""How a session gets into the tree: alone, or with the reader of its connection."""

import trio

from callboard import tree
from callboard.actors.outlet import Connection
from callboard.actors.server.host import Host
from callboard.actors.server.reader import Reader
from callboard.actors.server.session import Session
from callboard.actors.tape import Track
from callboard.codecs.caller import TRUSTED, Caller, as_caller
from callboard.errors import ActorError
from callboard.supervisor import Supervisor


async def open_session(host: Host, connection: Connection, name: str, caller: Caller | str = TRUSTED) -> Supervisor:
    """Begin to serve one connection. Its supervisor ends when the peer hangs up, or when it is stopped."""
    session = Session(host, connection, as_caller(caller))
    return await add_session(host, session, name, [Reader(session, connection)].pop)


async def add_session(host: Host, session: Session, name: str, *readers: tree.Make) -> Supervisor:
    """Put a session into the tree. Without readers, the transport that holds it hands it what the peer says.

    Raises `Overloaded` if its account, or all together, have too many.
    """
    # Handed out once: a spec that kept the session would be kept by it, too, by way of its supervisor.
    spec = tree.session(name, [session].pop, readers, host.requests)
    shares, account, tell = host.sessions, session.account, session.on_end
    shares.take(account)
    if host.tape is not None:
        session.track = Track(host.tape, host.offer.info.name, name)
    began = trio.current_time()

    def ended() -> None:
        shares.give_back(account)
        host.clients.pop(name, None)
        if host.observer is not None and session.terms is not None:
            host.observer.session_over(session.transport, session.terms.revision, trio.current_time() - began)
            if host.auditor is not None:
                seconds = trio.current_time() - began
                host.auditor.session_ended(session.terms, session.transport, session.peer, seconds)
        tell()

    session.on_end, host.clients[name] = ended, session
    try:
        supervisor = await host.root.supervisor_of(tree.SESSIONS).add(spec)
    except ActorError:  # it has not begun, so it does not end either
        session.on_end = tell
        del host.clients[name]
        shares.give_back(account)
        raise
    if host.on_session is not None:
        host.on_session(session)
    return supervisor
