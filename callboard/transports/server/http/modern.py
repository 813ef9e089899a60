"""A modern request over HTTP: it stands alone, and so does its answer."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import attrs

from callboard.actors.frames import error_frame
from callboard.actors.lifecycle import RequestEvent
from callboard.actors.outlet import Outbound
from callboard.actors.server.client_requests import SessionKey
from callboard.actors.server.exchange import Exchange
from callboard.actors.server.host import Host
from callboard.actors.server.reply_slot import InFlight, ReplySlot
from callboard.actors.shares import account_of
from callboard.actors.tape import Track
from callboard.actors.terms import Terms, is_modern, modern_terms
from callboard.codecs.bridge.tasks import ABOUT_TASKS
from callboard.codecs.caller import Caller
from callboard.codecs.envelope import Notification, Request, RequestId, decode, encode
from callboard.codecs.http.head import Head
from callboard.codecs.http.passed import passed_of
from callboard.codecs.http.status import retry_after, status_of, status_of_unread
from callboard.codecs.http.writer import JSON, STREAM
from callboard.codecs.mcp_headers.mirror import (
    MIRRORED_NAME,
    check_method,
    check_params,
    check_version,
    mirrored_arguments,
)
from callboard.codecs.revisions import LATEST, METHODS, Method, meta
from callboard.codecs.routing import Route, text_member
from callboard.codecs.sse import encode_event
from callboard.errors import InsufficientScope, InvalidParams, PeerError, RequestFailed
from callboard.transports.limits import Settings
from callboard.transports.server.http.homes import Homes
from callboard.transports.server.http.keepalive import COMMENT, KeepAlive
from callboard.transports.server.http.places import PATH, place_of
from callboard.transports.server.http.response import Response, cut

"""Path of the endpoint, on every listener."""

_HAVE_HOMES: Final = ABOUT_TASKS | {"subscriptions/listen"}
"""Methods that may name a task: they belong where that is."""


@attrs.define(eq=False)
class ResponseWay:
    """The way back of one modern request: JSON if the answer is all there is to say, else a stream that it ends."""

    response: Response
    pulse: KeepAlive
    _is_stream: bool = attrs.field(default=False, init=False)

    async def answer(self, frame: bytes, error: Exception | None = None, hold: object = None) -> None:
        if self._is_stream:
            self.pulse.discard(self.response)
            await self.response.end(encode_event(frame))
        else:
            await answer(self.response, frame, error)

    def try_answer(self, frame: bytes) -> bool:
        if not self._is_stream:
            return self.response.try_json(frame)
        if not self.response.try_end(encode_event(frame)):
            return False
        self.pulse.discard(self.response)
        return True

    async def send(self, message: Outbound) -> None:
        event = encode_event(message.frame)
        if self._is_stream:
            await self.response.write(event)
        else:
            self._is_stream = True
            self.pulse.add(self.response)
            await self.response.begin(STREAM, event)

    def send_nowait(self, message: Outbound) -> None:
        if self._is_stream:
            self.response.try_write(encode_event(message.frame))

    def try_send(self, message: Outbound) -> bool:
        response, event = self.response, encode_event(message.frame)
        if self._is_stream:
            return response.try_write(event)
        self._is_stream = response.try_begin(STREAM, event)
        if self._is_stream:
            self.pulse.add(response)
        return self._is_stream

    def hold_open(self) -> None:
        """Begin the stream before there is anything to say, so that it is kept alive."""
        if not self._is_stream and self.response.try_begin(STREAM, COMMENT):
            self._is_stream = True
            self.pulse.add(self.response)

    async def give_up(self) -> None:
        if self._is_stream:
            self.pulse.discard(self.response)
            await self.response.end()
        else:
            self.response.cut()

    async def close_stream(self, retry: float) -> None:
        """A modern stream cannot be resumed."""


@attrs.define(eq=False)
class RecordedWay(ResponseWay):
    """The same, of a server whose messages are recorded."""

    track: Track = attrs.field(kw_only=False)

    async def answer(self, frame: bytes, error: Exception | None = None, hold: object = None) -> None:
        self.track.from_server(frame)
        await super().answer(frame, error, hold)

    def try_answer(self, frame: bytes) -> bool:
        is_sent = super().try_answer(frame)
        if is_sent:
            self.track.from_server(frame)
        return is_sent

    async def send(self, message: Outbound) -> None:
        self.track.from_server(message.frame)
        await super().send(message)

    def send_nowait(self, message: Outbound) -> None:
        self.track.from_server(message.frame)
        super().send_nowait(message)

    def try_send(self, message: Outbound) -> bool:
        is_sent = super().try_send(message)
        if is_sent:
            self.track.from_server(message.frame)
        return is_sent


async def answer(response: Response, frame: bytes, error: Exception | None) -> None:
    """Answer with one frame, and the status that says what it says."""
    status = 200 if error is None else status_of(error)
    if status == 200:
        await response.answer_json(frame)
    else:
        await response.answer(status, (*JSON, *headers_of(response, status, error)), frame)


def headers_of(response: Response, status: int, error: Exception | None) -> Iterable[tuple[bytes, bytes]]:
    """The headers that say more of an error: what is missing, or when to come again."""
    if isinstance(error, InsufficientScope):
        return () if response.scope_headers is None else response.scope_headers(error)
    return retry_after(error) if status in (429, 503) else ()


async def answer_unread(response: Response, error: PeerError | RequestFailed, request_id: RequestId | None) -> None:
    """Refuse what was not begun."""
    status = status_of_unread(error)
    headers = (*JSON, *headers_of(response, status, error))
    await response.answer(status, headers, error_frame(request_id, LATEST, error))


def asked_id(head: Head, body: bytes) -> RequestId | None:
    """The id of a request that was refused unread: its sender waits for that."""
    if head.method != "POST" or (place_of(head.path) or (b"",))[0] != PATH:
        return None
    try:
        message = decode(body)
    except PeerError:  # it says so itself, with the id if there is one
        return None
    return message.id if isinstance(message, Request) else None


@attrs.define(eq=False)
class Modern:
    """Takes modern requests in: checks what they say of themselves, and starts them. Counts those in flight."""

    host: Host
    settings: Settings
    pulse: KeepAlive
    homes: Homes
    transport: str = attrs.field(default="http", init=False)
    used_at: float = attrs.field(default=0.0, init=False)
    session_of: Callable[[Head], SessionKey | None] | None = attrs.field(default=None, init=False)
    """The session that a request belongs to, where another process has it and says so."""

    async def serve(self, head: Head, request: Request, route: Route, caller: Caller, response: Response) -> None:
        """Answer a request, or start what will. Raises `Elsewhere` for a retry that belongs to another worker."""
        host = self.host
        try:
            terms, method = self._check(head, request, route, caller)
            if host.search is not None:
                request, route = host.search.reword(request, route)
            if (route.request_state is not None or request.method in _HAVE_HOMES) and not response.is_forwarded:
                self.homes.check_home(request, route, caller)
            host.check_rate(request.method, caller.key)  # once: where it is served
        except (PeerError, RequestFailed) as error:
            host.count_refusal(error)
            await answer_unread(response, error, request.id)
            return
        way = ResponseWay(response, self.pulse)
        if host.tape is not None:
            track = Track(host.tape, host.offer.info.name, f"m-{next(host.numbers)}")
            track.to_server(encode(request))
            way = RecordedWay(response, self.pulse, track)
        if caller.expires is not None and request.method == "subscriptions/listen":
            host.expiry.add(response, lambda: caller, cut)
        info = host.server_info(terms.revision)
        account = account_of(caller.key, response.peer)
        slot = ReplySlot(request.id, request.method, terms, way, info, self, account, host.unread)
        if host.observer is not None:
            host.observe(slot, request, route, head)
            if response.carrier is not None:
                response.carrier.terms = terms
        exchange = Exchange(host, request, route, slot, host.requests)
        exchange.carrier = response.carrier
        if host.passes:
            exchange.passed = passed_of(head, host.passes)
        if self.session_of is not None:
            exchange.session = self.session_of(head)
        try:
            await host.serve(exchange, method)
        except (PeerError, RequestFailed) as error:
            await slot.fail(error)
        except BaseException:
            slot.close()  # the connection ends here, and its share with it
            raise

    def hear(self, notification: Notification, caller: Caller) -> None:
        """A notification. The specification has none that a modern client could send by HTTP; an extension may. One
        that cannot be read is dropped, as any other."""
        if notification.method not in METHODS:
            self.host.take_notification(notification, None, caller, SessionKey())

    # What is in flight.

    def check(self, slot: ReplySlot) -> None:
        self.host.in_flight.check(slot.account)

    def admit(self, slot: ReplySlot) -> None:
        self.host.in_flight.hold(slot.account)

    def follow(self, exchange: InFlight) -> None:
        """The client that closes the stream cancels its request, as long as it waits for the answer."""
        slot, way = exchange.slot, exchange.slot.outlet
        if not isinstance(way, ResponseWay):
            return
        response, pulse = way.response, self.pulse

        def lost() -> None:
            pulse.discard(response)
            if slot.is_open:
                exchange.cancel(RequestEvent.DISCONNECTED)

        if response.is_lost:
            lost()
        else:
            response.on_lost = lost

    def closed(self, slot: ReplySlot) -> None:
        pass  # an id is known to its own connection only

    def release(self, slot: ReplySlot) -> None:
        self.host.in_flight.give_back(slot.account)

    def _check(self, head: Head, request: Request, route: Route, caller: Caller) -> tuple[Terms, Method]:
        host = self.host
        of = host.offer.header_map if host.rules is None else partial(host.header_map, caller)
        header_map = of(request.method, route)
        mirrored = MIRRORED_NAME.get(request.method)
        name = route.name if mirrored == "name" else route.uri if mirrored == "uri" else None
        if mirrored == "taskId":
            name = text_member(request.members, mirrored)
        said = route.protocol_version, request.method, name
        received = None
        if header_map.paths or head.agreed != said:
            received = head.mirrored(header_map)
            check_version(received, route.protocol_version)
        if not is_modern(route):
            raise InvalidParams(f"params._meta: {meta.PROTOCOL_VERSION} is required")
        terms = modern_terms(route, host.offer.revisions, caller)
        method = host.method_for(request, terms)
        if received is not None:
            check_method(received, request.method, name)
            check_params(received, mirrored_arguments(request.params, header_map), header_map)
            head.agreed = said
        return terms, method
