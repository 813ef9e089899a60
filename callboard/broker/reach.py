"""How a backend is reached: by the broker for all clients, or for one caller with what is the caller's own."""

import hashlib
from collections.abc import AsyncIterator, Hashable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

import attrs
import trio

from callboard.actors.broker.connection import Begin, Reach
from callboard.actors.broker.logins import CallerLogin
from callboard.actors.client.conversation import Conversation
from callboard.actors.client.duplex_link import DuplexLink
from callboard.actors.client.link import Link
from callboard.actors.client.negotiate import Agreed
from callboard.actors.client.recorded_link import RecordedLink
from callboard.actors.tape import Tape, Track
from callboard.broker.placing import Placed
from callboard.client.connect import Connector
from callboard.client.routes import ClientAccess, Target, TransportRoute, TransportRoutes, ways_to
from callboard.codecs.caller import Caller
from callboard.codecs.caller_template import NotFilledIn, fill_header, fill_variable
from callboard.codecs.revisions import Revision
from callboard.config import PythonTarget, Remote
from callboard.config.loading import loaded
from callboard.config.model import OpenApiTarget, PersonalCommand
from callboard.errors import CannotServe, NotAuthorized
from callboard.supervisor import get_logger
from callboard.transports.client.credentials import Auth
from callboard.transports.client.process import Command

if TYPE_CHECKING:
    from callboard.oauth.login_desk import LoginDesk

log = get_logger("callboard.broker")

_SESSIONS: Final = count(1)  # those that are recorded, by number


class CallerAuth(Protocol):
    """Credentials for what a caller's token is exchanged for: a `TokenExchange`, which takes time to load."""

    def auth_for(self, token: str) -> Auth: ...


class UserAuthentication(CallerLogin, Protocol):
    """Credentials of callers that log in themselves: a `UserLogin`, which takes time to load."""

    def mark_of(self, caller: Caller) -> bytes: ...
    def auth_for(self, caller: Caller) -> Auth: ...


def reach_for_all(name: str, placed: Placed, tape: Tape | None = None) -> Reach:
    """How a backend is reached, each time that a connection is opened, by the broker itself."""
    target: Target
    if isinstance(placed.target, OpenApiTarget):
        target = _of_api(placed.target)
    else:
        target = loaded(placed.target) if isinstance(placed.target, PythonTarget) else placed.target
    from callboard.config.auth import oauth_for  # it takes time to load

    auth = None if placed.auth is None else oauth_for(placed.auth)
    ways = ways_to(target, ClientAccess(auth=auth, on_stderr=partial(_says, name)))
    return _by(ways, placed.settings.revision, name, tape)


def reach_for_callers(
    name: str, placed: Placed, logins: "LoginDesk | None" = None, tape: Tape | None = None
) -> "PersonalReach | None":
    """The same for each caller; None if nothing of the caller's own goes there. Raises `CannotServe` if callers have to
    log in, and there is no place for that."""
    target, auth = placed.target, placed.auth
    is_exchanged = auth is not None and auth.grant == "token_exchange"
    is_user = auth is not None and auth.grant == "user"
    if not is_exchanged and not is_user and not getattr(target, "templates", None):
        return None
    if auth is None or not isinstance(target, Remote):
        return PersonalReach(name, placed, tape=tape)
    from callboard.config.auth import exchange_for, login_for, oauth_for  # it takes time to load

    if is_user:
        if logins is None:
            raise CannotServe(f"{name}: users cannot log in: this needs HTTP and `authorization.resource` at the start")
        return PersonalReach(name, placed, login=login_for(auth, name, target.url, logins), tape=tape)
    if is_exchanged:
        return PersonalReach(name, placed, exchange_for(auth, target.url), tape=tape)
    return PersonalReach(name, placed, auth=oauth_for(auth), tape=tape)


@attrs.frozen(eq=False)
class PersonalReach:
    """Connections of a caller's own: its token is exchanged, and templates are filled in with what it is."""

    name: str
    placed: Placed
    exchange: CallerAuth | None = None
    auth: Auth | None = None
    """Credentials that are the same for all callers."""
    login: UserAuthentication | None = None
    """Where each caller has to log in itself."""
    tape: Tape | None = None

    def mark(self, caller: Caller) -> Hashable:
        if caller.is_anonymous:
            raise NotAuthorized("needs a caller that is authenticated")
        mark = hashlib.sha256()
        if self.exchange is not None:
            if caller.token is None:
                raise NotAuthorized("needs a token of the caller's that can be exchanged")
            mark.update(caller.token.encode("utf-8", "surrogatepass"))
        if self.login is not None:
            mark.update(self.login.mark_of(caller))
        target = self.placed.target
        if isinstance(target, Remote | PersonalCommand):
            for key, value in self._filled(target, caller).items():
                mark.update(f"{key}\0{value}\0".encode("utf-8", "surrogatepass"))
        return mark.digest()

    def reach(self, caller: Caller) -> Reach:
        target = self.placed.target
        if isinstance(target, Remote):
            headers = {**target.headers, **self._filled(target, caller)}
            target = attrs.evolve(target, headers=headers, templates={})
        elif isinstance(target, PersonalCommand):
            env = {**target.env, **self._filled(target, caller)}
            target = Command(args=target.args, env=env, cwd=target.cwd)
        if isinstance(target, PythonTarget | OpenApiTarget):
            raise TypeError("a server in this process has no credentials")
        ways = ways_to(target, ClientAccess(auth=self._auth(caller), on_stderr=partial(_says, self.name)))
        return _by(ways, self.placed.settings.revision, self.name, self.tape)

    def _auth(self, caller: Caller) -> Auth | None:
        if self.exchange is not None and caller.token is not None:
            return self.exchange.auth_for(caller.token)
        return self.auth if self.login is None else self.login.auth_for(caller)

    def _filled(self, target: Remote | PersonalCommand, caller: Caller) -> dict[str, str]:
        fill = fill_header if isinstance(target, Remote) else fill_variable
        try:
            return {name: fill(template, caller) for name, template in target.templates.items()}
        except NotFilledIn as error:
            raise NotAuthorized(str(error)) from None


def _of_api(target: OpenApiTarget) -> TransportRoutes:
    """A server in this process, which is made in a thread: a large document takes seconds."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Link]:
        server = await trio.to_thread.run_sync(loaded, target)
        [way] = ways_to(server, ClientAccess()).ways
        async with way.open() as link:
            yield link

    return TransportRoutes(None, (TransportRoute("memory", opened),))


def _by(ways: TransportRoutes, revision: Revision | None, name: str, tape: Tape | None) -> Reach:
    @asynccontextmanager
    async def reach(begin: Begin) -> AsyncIterator[tuple[Conversation, Agreed]]:
        if tape is not None:
            begin = _recorded(begin, Track(tape, name, f"{name}-{next(_SESSIONS)}"))
        async with AsyncExitStack() as stack:
            yield await Connector(ways, begin, stack).meet(revision)

    return reach


def _recorded(begin: Begin, track: Track) -> Begin:
    def begin_recorded(link: Link) -> Conversation:
        if isinstance(link, DuplexLink):
            link.peer = track.server
        return begin(RecordedLink(link, track))

    return begin_recorded


def _says(backend: str, line: str) -> None:
    log.debug("backend_stderr", backend=backend, text=line)
