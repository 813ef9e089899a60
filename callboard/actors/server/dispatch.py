"""The requests of one session: counted while they are in flight, and known by id."""

import attrs

from callboard.actors.lifecycle import RequestEvent
from callboard.actors.server.host import Host
from callboard.actors.server.reply_slot import InFlight, ReplySlot
from callboard.actors.terms import Terms
from callboard.codecs.envelope import RequestId
from callboard.errors import InvalidParams


@attrs.define(eq=False)
class Dispatch:
    """The requests of one session that are in flight: an `Admission`."""

    host: Host
    principal: str
    account: str
    transport: str
    used_at: float = attrs.field(default=0.0, init=False)
    latest: Terms | None = attrs.field(default=None, init=False)
    in_flight: dict[RequestId, InFlight] = attrs.field(factory=dict, init=False)
    """Those that can be cancelled."""
    count: int = attrs.field(default=0, init=False)
    """How many are in flight, those counted whose answers wait to be read."""
    _tokens: dict[RequestId, RequestId] = attrs.field(factory=dict, init=False)  # and whose they are

    def check_token(self, token: RequestId | None) -> None:
        """Raises `InvalidParams` for a progress token that another request has."""
        if token is not None and token in self._tokens:
            raise InvalidParams("the progress token is already in use")

    def check(self, slot: ReplySlot) -> None:
        host = self.host  # as `check_room`, without another call for each request
        host.check_in_flight(self.count)
        host.check_rate(slot.method, self.principal)
        host.in_flight.check(self.account)

    def check_room(self) -> None:
        """Raises `Overloaded` if there is none for another request."""
        self.host.check_in_flight(self.count)
        self.host.in_flight.check(self.account)

    def admit(self, slot: ReplySlot) -> None:
        self.host.in_flight.hold(self.account)
        self.count += 1
        if slot.is_open and slot.terms.progress_token is not None:
            self._tokens[slot.terms.progress_token] = slot.request_id

    def follow(self, exchange: InFlight) -> None:
        if exchange.slot.is_open:
            self.in_flight[exchange.slot.request_id] = exchange

    def closed(self, slot: ReplySlot) -> None:
        self.in_flight.pop(slot.request_id, None)
        token = slot.terms.progress_token
        if token is not None and self._tokens.get(token) == slot.request_id:
            del self._tokens[token]

    def release(self, slot: ReplySlot) -> None:
        self.host.in_flight.give_back(self.account)
        self.count -= 1

    def cancel_all(self, event: RequestEvent) -> None:
        for going_on in list(self.in_flight.values()):
            going_on.cancel(event)
