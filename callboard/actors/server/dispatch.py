"""The requests of one session: each is admitted, found its handler, started; and those in flight are known by id."""

from collections.abc import Container
from functools import partial
from typing import ClassVar, Protocol

import attrs

from callboard.actors.lifecycle import RequestEvent
from callboard.actors.server.client_requests import SessionKey
from callboard.actors.server.exchange import Exchange
from callboard.actors.server.host import Errand, Host, is_retry
from callboard.actors.server.inline import InFlight, run_adopted
from callboard.actors.server.reply_slot import ReplySlot
from callboard.actors.server.request import Handler
from callboard.codecs.envelope import Request, RequestId
from callboard.codecs.revisions import Model
from callboard.codecs.routing import Route
from callboard.errors import InvalidParams, RequestFailed
from callboard.supervisor import Supervisor


class Carrier(Protocol):
    """The reader of a connection that requests share; runs what needs no task of its own."""

    def carries(self, name: str) -> bool:
        """Whether a call of this tool may run there."""

    async def carry(self, errand: Errand, slot: ReplySlot, name: str, cap: float) -> None:
        """Run an inline call, and answer with its outcome."""


class OwnMethods(Protocol):
    """What a session answers itself, and no handler of the server's does."""

    own_methods: ClassVar[Container[str]]

    @property
    def supervisor(self) -> Supervisor: ...

    def answer(self, exchange: Exchange) -> Model | None:
        """The answer to a method of its own; None if it has no such method, or a handler must wait for it."""

    def handler(self, method: str) -> Handler | None:
        """What serves a method of its own that waits."""


@attrs.define(eq=False)
class Dispatch:
    """Starts requests, and knows those that are in flight."""

    host: Host
    principal: str
    account: str
    key: SessionKey
    carrier: Carrier | None = attrs.field(default=None, init=False)
    in_flight: dict[RequestId, InFlight] = attrs.field(factory=dict, init=False)
    _tokens: dict[RequestId, RequestId] = attrs.field(factory=dict, init=False)  # and whose they are

    async def serve(self, request: Request, route: Route, slot: ReplySlot, session: OwnMethods) -> None:
        """Answer a request, or start what will. Raises `PeerError` and `RequestFailed`."""
        method = self.host.method_for(request, slot.terms, besides=session.own_methods)
        if route.progress_token is not None and route.progress_token in self._tokens:
            raise InvalidParams("the progress token is already in use")
        home = session.supervisor
        if (errand := self._errand(request, route, slot, home)) is not None:
            await self._run_errand(errand, route, slot)
            return
        if is_retry(method, route, slot.terms):
            self._admit(slot)
            going_on = await self.host.resume(request, route, slot, home, self.key)
        else:
            going_on = self.host.exchange(request, route, slot, home, self.key)
            if (result := session.answer(going_on)) is not None:
                await slot.answer(result)
                return
            if await self.host.answers_at_once(going_on):
                return
            self._admit(slot)
            self.host.start(going_on, session.handler(request.method))
        if slot.is_open:
            self.in_flight[request.id] = going_on

    def note(self, slot: ReplySlot, going_on: InFlight) -> None:
        """An inline call waits: from now on it can be cancelled."""
        self.in_flight[slot.request_id] = going_on

    def closed(self, request_id: RequestId, token: RequestId | None) -> None:
        """A request is answered, or nothing will be."""
        self.in_flight.pop(request_id, None)
        if token is not None and self._tokens.get(token) == request_id:
            del self._tokens[token]

    def cancel_all(self, event: RequestEvent) -> None:
        for going_on in list(self.in_flight.values()):
            going_on.cancel(event)

    def _errand(self, request: Request, route: Route, slot: ReplySlot, home: Supervisor) -> Errand | None:
        """What the task that brought a request can run itself, if it is one of that kind. Raises `Overloaded`."""
        if slot.is_shared:
            can_run = self.carrier is not None and self.carrier.carries(route.name or "")
        else:
            can_run = slot.outlet.adopt is not None
        if not can_run:
            return None
        exchange = partial(self.host.exchange, request, route, slot, home, self.key)
        errand = self.host.offer.errand(request, route, slot.terms, exchange, slot.account)
        if errand is not None:
            try:  # not `undo_unless_done`: every call of a tool comes by here
                self._admit(slot)
            except RequestFailed:
                errand.close()
                raise
        return errand

    def _admit(self, slot: ReplySlot) -> None:
        """Count a request that may take a while, until its slot closes. Raises `Overloaded`."""
        host, account, closed = self.host, self.account, slot.on_close
        host.check_in_flight(len(self.in_flight))
        host.check_rate(slot.method, self.principal)
        host.in_flight.take(account)
        if slot.terms.progress_token is not None:
            self._tokens[slot.terms.progress_token] = slot.request_id

        def over() -> None:
            host.in_flight.give_back(account)
            closed()

        slot.on_close = over

    async def _run_errand(self, errand: Errand, route: Route, slot: ReplySlot) -> None:
        cap, adopt = self.host.cap, slot.outlet.adopt
        if slot.is_shared and self.carrier is not None:
            await self.carrier.carry(errand, slot, route.name or "", cap)
        elif adopt is not None:
            await run_adopted(errand, slot, adopt, cap, self.note)
