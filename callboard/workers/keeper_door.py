"""The door of the keeper: workers ask here which backends it has, and whatever they would ask a backend."""

from typing import Final
from urllib.parse import unquote

import attrs
import msgspec

from callboard.actors.shares import LOCAL, account_of
from callboard.codecs.caller import Caller
from callboard.codecs.envelope import Notification, Request, decode
from callboard.codecs.http.head import Head
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.request_parser import HeadMemory
from callboard.codecs.http.writer import JSON
from callboard.codecs.routing import read_route
from callboard.errors import InvalidRequest, PeerError, RequestFailed
from callboard.transports.held import HeldBytes
from callboard.transports.server.http.modern import answer_unread
from callboard.transports.server.http.response import Response
from callboard.transports.server.http.upgraded import Reading, Upgraded
from callboard.transports.wire import Wire
from callboard.workers.keeper import BackendKeeper, KeptBackend
from callboard.workers.kept import KEPT_AT, LISTED, SETTLED_WITHIN, TOLD_WITHIN
from callboard.workers.relay import CALLER, PEER, read_name, read_told

_PLAIN: Final = ((b"content-type", b"text/plain; charset=utf-8"),)
_AFTER: Final = b"after="


@attrs.define(eq=False)
class KeeperDoor:
    """Serves the backends of the keeper. Only workers can reach its socket: it lies in a folder that no other user may
    enter. They have authenticated the client of each request, and say who it is."""

    keeper: BackendKeeper
    heads: HeadMemory = attrs.field(factory=HeadMemory, init=False)
    is_leaving: bool = attrs.field(default=False, init=False)
    upgrade_to: bytes = attrs.field(default=b"websocket", init=False)

    def admit(self, head: Head) -> None:
        allowed = ("GET",) if head.path == LISTED else ("GET", "POST") if head.path.startswith(KEPT_AT) else ()
        if not allowed:
            raise HttpRefusal(404, "not found", closes=True)
        if head.method not in allowed:
            raise HttpRefusal(405, "method not allowed", closes=True)

    def expect_head(self, peer: str) -> HeldBytes | None:
        return None  # the worker that read it has counted it

    async def expect_body(self, head: Head, peer: str) -> tuple[Caller, HeldBytes | None]:
        caller, kept = _caller(head), self._find(head)
        if kept is None or kept.endpoint is None:
            return caller, None
        return caller, HeldBytes(kept.endpoint.host.bodies, account_of(caller.key, _account(head)))

    async def serve(self, head: Head, body: bytes, response: Response, caller: Caller | None = None) -> None:
        if head.path == LISTED:
            after = head.query.removeprefix(_AFTER).decode("latin-1")
            found = await self.keeper.wait_other(after, TOLD_WITHIN)
            await response.answer(200, JSON, msgspec.json.encode(found))
            return
        kept = self._find(head)
        if kept is None:
            await response.answer(404, _PLAIN, b"no such backend is kept here\n")
        elif head.method == "GET":
            state = await kept.state(SETTLED_WITHIN)
            await response.answer(200 if state.incarnation else 503, JSON, msgspec.json.encode(state))
        else:
            await self._ask(kept, head, body, response)

    async def _ask(self, kept: KeptBackend, head: Head, body: bytes, response: Response) -> None:
        endpoint, backend = kept.endpoint, kept.backend
        response.peer = _account(head)
        try:
            message = decode(body)
            if isinstance(message, Notification):
                kept.hear(_caller(head).key, message)
                await response.answer(202, ())
                return
            if not isinstance(message, Request):
                raise InvalidRequest("only requests are answered here")
            # Workers ask this to see whether the backend is there, and not whether the keeper is.
            is_there = backend is not None and (backend.is_up or message.method != "server/discover")
            if endpoint is None or not is_there:
                await response.answer(503, _PLAIN, b"not up\n")
                return
            await endpoint.modern.serve(head, message, read_route(message), _caller(head), response)
        except PeerError as error:
            await answer_unread(response, error, error.request_id)
        except RequestFailed as error:
            await answer_unread(response, error, None)

    async def refuse(self, refusal: HttpRefusal, response: Response) -> None:
        body = b"" if refusal.is_bodiless else str(refusal).encode()
        await response.answer(refusal.status, (*_PLAIN, *refusal.headers), body)

    async def upgrade(self, head: Head, rest: bytes, wire: Wire, reading: Reading) -> Upgraded:
        raise HttpRefusal(501, "no WebSocket at this address", closes=True)

    def _find(self, head: Head) -> KeptBackend | None:
        name, _, incarnation = head.path.removeprefix(KEPT_AT).partition(b"/")
        return self.keeper.find(unquote(name.decode("latin-1")), incarnation.decode("latin-1"))


def _caller(head: Head) -> Caller:
    return read_told(head.get(CALLER))


def _account(head: Head) -> str:
    """The account that its worker counts a request to."""
    said = head.get(PEER)
    return LOCAL if said is None else read_name(said)
