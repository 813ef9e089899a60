"""An open session, as an operator and the author of a server see it."""

from collections.abc import Collection, Mapping
from typing import ClassVar, Protocol

from callboard.actors.outlet import Sink
from callboard.actors.server.client_requests import SessionKey
from callboard.actors.server.reply_slot import InFlight
from callboard.actors.terms import Terms
from callboard.codecs.caller import Caller
from callboard.codecs.envelope import RequestId
from callboard.supervisor import Supervisor


class OfferHolder(Protocol):
    """The host of a session, as far as it matters here."""

    @property
    def offer(self) -> object: ...


class Hearing(Protocol):
    """The lists and resources of which a session is told."""

    @property
    def lists(self) -> Collection[object]: ...

    @property
    def followed(self) -> Collection[object]: ...


class SessionRequests(Protocol):
    """The requests of a session."""

    count: int
    used_at: float
    latest: Terms | None
    """Of the latest request, if they are observed: the name of a client that agreed on nothing before."""

    @property
    def in_flight(self) -> Mapping[RequestId, InFlight]: ...


class OpenSession(Protocol):
    """A session, as an operator sees it."""

    transport: ClassVar[str]
    caller: Caller
    peer: str
    terms: Terms | None
    key: SessionKey
    sink: Sink
    is_ready: bool

    @property
    def host(self) -> OfferHolder: ...

    @property
    def is_attached(self) -> bool: ...

    @property
    def supervisor(self) -> Supervisor: ...

    def hang_up(self) -> None: ...

    @property
    def principal(self) -> str: ...

    @property
    def requests(self) -> SessionRequests: ...

    @property
    def hearing(self) -> Hearing | None: ...

    @property
    def started_at(self) -> float: ...
