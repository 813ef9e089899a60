"""A modern request over HTTP: it stands alone, and so does its answer."""

from collections.abc import Callable
from functools import partial

import attrs

from callboard.actors.frames import answer_frame, error_frame, hold_unread, text_frame
from callboard.actors.lifecycle import RequestEvent
from callboard.actors.outlet import Adopt, InlinePolicy, Outbound
from callboard.actors.server.exchange import Exchange
from callboard.actors.server.host import Errand, Host, is_retry
from callboard.actors.server.reply_slot import ReplySlot
from callboard.actors.shares import account_of
from callboard.actors.terms import Terms, is_modern, modern_terms
from callboard.codecs.envelope import Request, RequestId
from callboard.codecs.http.head import Head
from callboard.codecs.http.status import RETRY_AFTER, status_of, status_of_unread
from callboard.codecs.http.writer import JSON, STREAM
from callboard.codecs.mcp_headers.mirror import (
    MIRRORED_NAME,
    check_method,
    check_params,
    check_version,
    mirrored_arguments,
)
from callboard.codecs.revisions import LATEST, Method, meta
from callboard.codecs.routing import Route
from callboard.codecs.sse import encode_event
from callboard.errors import InvalidParams, PeerError, RequestFailed
from callboard.transports.limits import Settings
from callboard.transports.server.http.keepalive import KeepAlive
from callboard.transports.server.http.response import Response


@attrs.define(eq=False)
class ResponseWay:
    """The way back of one modern request: JSON if the answer is all there is to say, else a stream that it ends."""

    response: Response
    pulse: KeepAlive
    _is_stream: bool = attrs.field(default=False, init=False)

    @property
    def adopt(self) -> Adopt | None:
        return self.response.adopt

    async def send(self, message: Outbound) -> None:
        response = self.response
        if message.ends and not self._is_stream:
            await answer(response, message.frame, message.error)
            return
        if not self._is_stream:
            self._is_stream = True
            self.pulse.add(response)
            await response.begin(STREAM)
        await response.write(encode_event(message.frame))
        if message.ends:
            self.pulse.discard(response)
            await response.end()

    def send_nowait(self, message: Outbound) -> None:
        if self._is_stream:
            self.response.write_nowait(encode_event(message.frame))
        if message.ends:
            self.pulse.discard(self.response)
            self.response.cut()

    async def give_up(self) -> None:
        await self.response.end()

    async def close_stream(self, retry: float) -> None:
        """A modern stream cannot be resumed."""


async def answer(response: Response, frame: bytes, error: Exception | None) -> None:
    """Answer with one frame, and the status that says what it says."""
    status = 200 if error is None else status_of(error)
    if status == 200:
        await response.answer_json(frame)
    else:
        await response.answer(status, (*JSON, *(RETRY_AFTER if status in (429, 503) else ())), frame)


async def answer_unread(response: Response, error: PeerError | RequestFailed, request_id: RequestId | None) -> None:
    """Refuse what was not begun."""
    status = status_of_unread(error)
    headers = (*JSON, *(RETRY_AFTER if status in (429, 503) else ()))
    await response.answer(status, headers, error_frame(request_id, LATEST, error))


def _nobody_else(_: Callable[[], None]) -> None:
    """A modern inline call is cancelled by a disconnect of its client, and in no other way."""


@attrs.define(eq=False)
class Modern:
    """Takes modern requests in: checks what they say of themselves, and starts them."""

    host: Host
    settings: Settings
    pulse: KeepAlive

    async def serve(self, head: Head, request: Request, route: Route, principal: str, response: Response) -> None:
        """Start a request, or answer it at once."""
        try:
            terms, method = self._check(head, request, route, principal)
            self.host.check_rate(request.method, principal)
            account = account_of(principal, response.peer)
            self.host.in_flight.take(account)
        except (PeerError, RequestFailed) as error:
            await answer_unread(response, error, request.id)
            return
        adopt = response.adopt
        errand = None if adopt is None else self.host.offer.errand(request, route, terms, None, account)
        if adopt is not None and errand is not None:
            await self._run(errand, request, terms, account, adopt, response)
            return
        way = ResponseWay(response, self.pulse)
        info, over = self.host.server_info(terms.revision), partial(self.host.in_flight.give_back, account)
        slot = ReplySlot(request.id, request.method, terms, way, info, over, account=account, unread=self.host.unread)
        try:
            await self._begin(request, route, slot, method, response)
        except (PeerError, RequestFailed) as error:
            await slot.fail(error)
        except BaseException:
            slot.close()  # the connection ends here, and its share with it
            raise

    async def _run(
        self, errand: Errand, request: Request, terms: Terms, account: str, adopt: Adopt, response: Response
    ) -> None:
        """Have an inline call run by the connection that read it."""
        host, revision = self.host, terms.revision
        error: Exception | None
        try:
            failed = partial(error_frame, request.id, revision)
            outcome = await adopt(errand, InlinePolicy(host.cap, failed, ends_with_client=True, on_wait=_nobody_else))
        except (PeerError, RequestFailed) as failure:
            frame, error = error_frame(request.id, revision, failure), failure
        else:
            info = host.server_info(revision)
            if isinstance(outcome, str):
                frame, error = text_frame(request.id, outcome, info)
            else:
                frame, error = answer_frame(request.id, revision, request.method, outcome, info)
        finally:
            host.in_flight.give_back(account)
        frame, error, hold = hold_unread(host.unread, account, request.id, revision, frame, error)
        await answer(response, frame, error)
        del hold  # it was kept until the answer was written

    def _check(self, head: Head, request: Request, route: Route, principal: str) -> tuple[Terms, Method]:
        header_map = self.host.offer.header_map(request.method, route)
        received = head.mirrored(header_map)
        check_version(received, route.protocol_version)
        if not is_modern(route):
            raise InvalidParams(f"params._meta: {meta.PROTOCOL_VERSION} is required")
        terms = modern_terms(route, self.host.offer.revisions, principal)
        method = self.host.method_for(request, terms)
        mirrored = MIRRORED_NAME.get(request.method)
        name = route.name if mirrored == "name" else route.uri if mirrored == "uri" else None
        check_method(received, request.method, name)
        if header_map.paths:
            check_params(received, mirrored_arguments(request.params, header_map), header_map)
        return terms, method

    async def _begin(self, request: Request, route: Route, slot: ReplySlot, method: Method, response: Response) -> None:
        host = self.host
        if is_retry(method, route, slot.terms):
            going_on = await host.resume(request, route, slot)
        else:
            going_on = host.exchange(request, route, slot)
            if await host.answers_at_once(going_on):
                return
            host.start(going_on)

        def lost() -> None:
            self.pulse.discard(response)
            self._left(going_on, slot)

        if response.is_lost:
            lost()
        else:
            response.on_lost = lost

    def _left(self, exchange: Exchange, slot: ReplySlot) -> None:
        """The client closed the stream: that is the cancellation, as long as it waited for the answer."""
        if slot.is_open:
            exchange.cancel(RequestEvent.DISCONNECTED)
