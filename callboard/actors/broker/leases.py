"""Keys and leases of connections to a backend: the client that a connection belongs to, the requests that use it."""

import math
from collections.abc import Collection, Hashable, Sequence
from typing import Final
from weakref import ref

import attrs
import trio
from msgspec import UNSET

from callboard.actors.broker.policy import Share
from callboard.actors.client.hearer import OnChange, OnLog, OnQuestion
from callboard.actors.server.exchange import Exchange
from callboard.actors.server.progress import MAX_REPORT_TEXT, ProgressReport
from callboard.actors.server.spans import TraceHeaders
from callboard.codecs.bridge.askable import NOTHING, Signature, askable
from callboard.codecs.caller import ANYBODY, Caller, caller_of_key
from callboard.codecs.revisions import ProgressNotificationParams

EVERYBODY: Final = ""
"""Key of a connection that all clients share."""


@attrs.frozen
class TenantShare:
    """The clients of one tenant, that share a connection. They are several principals all the same."""

    tenant: str


def sharer(share: Share, principal: str) -> Hashable:
    """The clients that may be on a connection together with those of *principal*."""
    if share == "all" or principal == ANYBODY:
        return EVERYBODY
    tenant = caller_of_key(principal).tenant if share == "tenant" else ""
    return TenantShare(tenant) if tenant else principal


@attrs.frozen
class ConnectionKey:
    """The account of a connection to a legacy backend, the questions that its clients can answer, and what they
    declare beside."""

    who: Hashable = EVERYBODY
    signature: Signature = NOTHING
    whose: Hashable = attrs.field(default=attrs.Factory(lambda self: self.who, takes_self=True))
    """The principal of a session, or the account that all clients share."""
    mark: Hashable = attrs.field(default=None, repr=False)
    """What of its caller went to a backend that gets something of each caller's own: see `CallerReach`."""
    caller: Caller | None = attrs.field(default=None, eq=False, repr=False)
    """Whom it was opened for there."""

    @property
    def can_be_asked(self) -> bool:
        """Whether its clients can answer any question."""
        return bool(askable(self.signature))

    @property
    def is_of_one_client(self) -> bool:
        return self.who != EVERYBODY and not isinstance(self.who, TenantShare)


SHARED: Final = ConnectionKey()


class Lease:
    """One exchange on a connection. Without one it is the broker's own business.

    It hears itself what the backend says on the way (see `Hearer`): an object for that would be one more for each call.
    """

    __slots__ = ("exchange", "may_ask", "principal", "task")

    on_told: OnChange | None = None
    on_custom: OnChange | None = None
    trace_headers: TraceHeaders = ()

    def __init__(self, exchange: Exchange | None = None, principal: str = ANYBODY, *, may_ask: bool = False) -> None:
        self.exchange = exchange
        self.principal = principal
        self.may_ask = may_ask  # whether the backend may ask the client while this is under way
        self.task: str | None = None  # the task that this is about, as the backend calls it

    def on_progress(self, report: ProgressNotificationParams) -> None:
        if self.exchange is not None and self.exchange.terms.progress_token is not None:
            total = None if report.total is UNSET else report.total
            message = None if report.message is UNSET else report.message[:MAX_REPORT_TEXT]
            self.exchange.report_nowait(ProgressReport(report.progress, total, message))

    @property
    def on_log(self) -> OnLog | None:
        return None if self.exchange is None else self.exchange.log_nowait

    @property
    def on_question(self) -> OnQuestion | None:
        return None

    def why_cancelled(self) -> str:
        return "" if self.exchange is None else self.exchange.why_cancelled()


class StreamLease(Lease):
    """A subscription at a modern backend: for clients of one principal, or for all."""

    __slots__ = ("on_told",)

    def __init__(self, on_told: OnChange, who: Hashable) -> None:
        super().__init__(principal=ANYBODY if who == EVERYBODY else str(who))
        self.on_told = on_told


LINGER: Final = 5.0
"""Seconds for which a server may still speak of a request that was given up: it may not have heard that yet."""


@attrs.define(eq=False)
class GivenUp:
    """The clients of requests on a connection that were given up a moment ago. More than two are as two."""

    _clients: set[Hashable] = attrs.field(factory=set, init=False)
    _until: float = attrs.field(default=-math.inf, init=False)

    def add(self, use: Lease) -> None:
        now = trio.current_time()
        if now >= self._until:
            self._clients.clear()
        if len(self._clients) < 2:  # with two, each client has another one beside it
            self._clients.add(_client_of(use))
        self._until = now + LINGER

    def is_of_others(self, use: Lease) -> bool:
        """Whether any was of another client than that of *use*."""
        return trio.current_time() < self._until and self._clients != {_client_of(use)}


def _client_of(use: Lease) -> Hashable:
    """The client of a request. One that is neither authenticated nor has a session is none of those before."""
    if use.principal != ANYBODY:
        return use.principal
    session = None if use.exchange is None else use.exchange.session
    return object() if session is None else ref(session)


def are_of_one_client(uses: Collection[Lease]) -> bool:
    """Whether all that is under way is one request, or of one session, or of one authenticated principal."""
    first = next(iter(uses))
    if len(uses) == 1:
        return True
    if first.principal != ANYBODY:
        return all(use.principal == first.principal for use in uses)
    exchanges = [use.exchange for use in uses if use.exchange is not None]
    return len(exchanges) == len(uses) and is_one_session(exchanges)


def is_one_session(exchanges: Sequence[Exchange]) -> bool:
    """Whether all of them are of one session of a legacy client."""
    first = exchanges[0].session
    return first is not None and all(exchange.session is first for exchange in exchanges)
