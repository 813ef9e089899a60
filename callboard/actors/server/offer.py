"""What a host offers to its peers: the interface of `ServerOffer` and `BrokerOffer`, and of a session's own methods."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

from callboard.actors.changes import ListName
from callboard.actors.rules import AccessRules, Decision, Gate
from callboard.actors.server.exchange import Exchange, Handler
from callboard.actors.server.extensions import AddedMethod
from callboard.actors.server.task_store import TaskStore
from callboard.codecs.bridge.results import Forwarded
from callboard.codecs.caller import Caller
from callboard.codecs.mcp_headers.header_map import HeaderMap
from callboard.codecs.revisions import Implementation, Model, Revision, ServerCapabilities
from callboard.codecs.routing import Route

Instant: TypeAlias = Callable[[Exchange], Model | Forwarded | None]
"""A handler that never waits: it runs where the request was read. None if this request has to wait after all: then the
handler of the same name has it."""


class OwnMethods(Protocol):
    """What a session answers itself, and no handler of the server's does."""

    def own_answer(self, exchange: Exchange) -> Model | None:
        """The answer to a method of its own; None if it has no such method, or a handler must wait for it."""

    def own_handler(self, method: str) -> Handler | None:
        """What serves a method of its own that waits."""


class Offer(Protocol):
    """The interface of an offer: `ServerOffer` and `BrokerOffer` implement it."""

    info: Implementation
    instructions: str | None
    revisions: frozenset[Revision]
    instant: Mapping[str, Instant]
    handlers: Mapping[str, Handler]

    @property
    def added(self) -> Mapping[str, AddedMethod]:
        """Methods of extensions. One that the specification has, too, belongs to the extension in the revisions of its
        row; `handlers` does not name it. What it finds need not be in it: see `CustomMethods`."""

    @property
    def task_store(self) -> TaskStore | None:
        """The calls that go on after they were answered; None if there can be none."""

    def capabilities(self, revision: Revision) -> ServerCapabilities: ...

    def header_map(self, method: str, route: Route) -> HeaderMap:
        """The arguments of a request that are mirrored into HTTP headers."""

    def owner_of(self, method: str, name: str) -> str | None:
        """The backend that has the tool or prompt; empty for a server's own. None if there is none such."""

    def rule_name(self, method: str, name: str, exchange: Exchange | None = None) -> str:
        """The name that rules and quotas go by, of a tool or prompt that is asked for by this *name*: by *exchange*, or
        by any client."""

    def offered(self) -> Iterable[tuple[str, str, str]]:
        """Method, name and owner of every tool and prompt."""

    def guard(self, exchange: Exchange) -> None:
        """Raises the answer to a request if its caller may not use, or not know of, what it asks for."""

    def decide_resource(self, rules: AccessRules, caller: Caller, uri: str, method: str) -> Decision:
        """May *caller* use the resource by this method? One that there is not is open: it is not found later."""

    def gates(self, rules: AccessRules) -> Mapping[ListName, Sequence[Gate]]:
        """What guards the entries of each list, in their order."""

    def instructions_for(self, rules: AccessRules, caller: Caller) -> str | None:
        """The instructions, without those of servers that *caller* may not know of."""
