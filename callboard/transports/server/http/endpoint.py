"""The MCP endpoint: answers a request, or passes it to an actor. Both HTTP engines use it."""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeAlias

import attrs

from callboard.actors.frames import error_frame
from callboard.actors.server.host import Host
from callboard.actors.server.session_record import SessionRecord
from callboard.actors.shares import account_of
from callboard.actors.terms import is_meant_modern, is_modern
from callboard.codecs.caller import ANONYMOUS, Caller
from callboard.codecs.envelope import (
    Envelope,
    ErrorResponse,
    Notification,
    Request,
    ResultResponse,
    decode,
    is_batch,
)
from callboard.codecs.http.access import Access
from callboard.codecs.http.head import Head, covers, media_type_of
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.request_parser import HeadMemory
from callboard.codecs.http.writer import JSON
from callboard.codecs.revisions import LATEST, LEGACY, Revision
from callboard.codecs.revisions.dialect import Dialect
from callboard.codecs.routing import Route, read_route
from callboard.errors import InvalidRequest, PeerError, RequestFailed
from callboard.transports.held import HeldBytes
from callboard.transports.limits import DEFAULTS, Settings
from callboard.transports.server.http.guard import Guard, Unauthorized, guard_of
from callboard.transports.server.http.homes import Alone, Elsewhere, Homes, not_found
from callboard.transports.server.http.keepalive import KeepAlive
from callboard.transports.server.http.legacy import SESSION, Legacy
from callboard.transports.server.http.modern import Modern, answer_unread, asked_id
from callboard.transports.server.http.places import METHODS, PATH, SSE_PATH, place_of
from callboard.transports.server.http.response import Response, cut
from callboard.transports.server.http.sse_pair import Pairs
from callboard.transports.server.http.upgraded import Reading, Upgraded
from callboard.transports.wire import Wire

Upgrade: TypeAlias = Callable[[Head, bytes, Wire, Reading, Caller | None], Awaitable[Upgraded]]
"""Begins to serve a connection that turns into a WebSocket: its head, what was read beyond it, its wire, its task; and
its caller if that is known."""

_CROSS_ORIGIN: Final = ((b"vary", b"origin"), (b"access-control-expose-headers", b"mcp-session-id"))
_PREFLIGHT: Final = (
    (b"access-control-allow-methods", b"POST, GET, DELETE"),
    (b"access-control-allow-headers", b"*, authorization"),
    (b"access-control-max-age", b"600"),
)
_PUBLIC: Final = ((b"access-control-allow-origin", b"*"), (b"cache-control", b"max-age=300"))
_PLAIN: Final = ((b"accept-encoding", b"identity"),)
_JSON: Final = b"application/json"
_EVENTS: Final = b"text/event-stream"
_DIALECTS: Final = {revision.value.encode(): revision.dialect for revision in Revision}


class Pages(Protocol):
    """Pages for browsers, at paths that are none of the endpoint's. They need no token."""

    def has(self, path: bytes) -> bool: ...

    def check(self, head: Head) -> None:
        """Raises `HttpRefusal` for what needs no body to be refused."""

    async def serve(self, head: Head, response: Response) -> None: ...


@attrs.define(eq=False)
class Endpoint:
    """Handles requests of both engines: method, path, headers, body and principal in; a response, or a stream, out."""

    host: Host
    access: Access
    settings: Settings = DEFAULTS
    guard: Guard | None = attrs.field(default=None, kw_only=True, converter=guard_of)
    """None lets all clients in."""
    is_http: bool = attrs.field(default=True, kw_only=True)
    legacy_sse: bool = attrs.field(default=False, kw_only=True)  # HTTP+SSE, which is old, is off unless asked for
    on_upgrade: Upgrade | None = attrs.field(default=None, kw_only=True)
    homes: Homes = attrs.field(factory=Alone, kw_only=True)
    on_unauthorized: Callable[[str, str | None], None] | None = attrs.field(default=None, kw_only=True)
    """Told of the address of each client that is refused for its token, and whether there was none."""
    pages: Pages | None = attrs.field(default=None, kw_only=True)
    is_leaving: bool = attrs.field(default=False, init=False)
    upgrade_to: bytes = attrs.field(default=b"websocket", init=False)
    heads: HeadMemory = attrs.field(factory=HeadMemory, init=False)
    outer: "Endpoint | None" = attrs.field(default=None, kw_only=True)
    """That of all paths, if this is the one of a single path: both share timers, and names in the tree."""
    pulse: KeepAlive = attrs.field(init=False)
    modern: Modern = attrs.field(init=False)
    legacy: Legacy = attrs.field(init=False)
    pairs: Pairs = attrs.field(init=False)
    _inner: "dict[str, Endpoint]" = attrs.field(factory=dict, init=False)
    """The endpoints of other paths, by their names."""

    def __attrs_post_init__(self) -> None:
        outer = self.outer
        if outer is None:
            self.settings.apply(self.host)
        self.pulse = KeepAlive(self.settings.comment_every) if outer is None else outer.pulse
        shared = self.host, self.settings, self.pulse, self.homes
        self.modern = Modern(*shared)
        self.legacy = Legacy(*shared) if outer is None else Legacy(*shared, outer.legacy.names)
        self.pairs = Pairs(*shared) if outer is None else Pairs(*shared, outer.pairs.names)

    # Before the body.

    def admit(self, head: Head) -> None:
        """Raises `HttpRefusal` for what needs no body to be refused."""
        is_public = self.guard is not None and self.guard.is_metadata(head.path)  # which any page may read
        is_page = head.path != PATH and self.pages is not None and self.pages.has(head.path)
        self.access.check(head.get(b"host"), None if is_public or is_page else head.get(b"origin"))
        if not head.target.startswith(b"/") and (authority := head.take_authority()) is not None:
            self.access.check(authority, None)
        place, name = place_of(head.path) or (b"", "")
        if place:
            head.path = head.path.removesuffix(b"/")
        # Whether there is such a name is told to clients that have identified themselves.
        is_named = not name or self.host.paths is not None
        if not is_named or (place != PATH and not (self.legacy_sse and place in METHODS)):
            if is_public:
                _check_metadata(head)
                return
            if self.pages is not None and is_page:
                self.pages.check(head)
                return
            raise HttpRefusal(404, "not found; the endpoint is /mcp", closes=True)
        is_upgrade = head.method == "GET" and head.get(b"upgrade") is not None
        if not (self.is_http or (is_upgrade and self.on_upgrade is not None)):
            raise HttpRefusal(
                426, "only WebSocket is served at this address", headers=((b"upgrade", b"websocket"),), closes=True
            )
        if head.method not in METHODS[place]:
            raise HttpRefusal(405, f"method {head.method} is not allowed", headers=(_allow(place),), closes=True)
        if head.method == "POST":
            self._check_post(head, place)

    def _check_post(self, head: Head, place: bytes) -> None:
        if media_type_of(head.get(b"content-type")) != _JSON:
            raise HttpRefusal(415, "Content-Type must be application/json", closes=True)
        if (head.get(b"content-encoding") or b"identity").lower() != b"identity":
            raise HttpRefusal(415, "Content-Encoding is not supported", headers=_PLAIN, closes=True)
        accepted = head.all(b"accept")
        if place == PATH and not (covers(accepted, _JSON) and covers(accepted, _EVENTS)):
            raise HttpRefusal(406, "Accept must include application/json and text/event-stream", closes=True)

    def expect_head(self, peer: str) -> HeldBytes:
        """The account for bytes of an incomplete head: the same as for bodies."""
        return HeldBytes(self.host.bodies, peer)

    async def expect_body(self, head: Head, peer: str) -> tuple[Caller, HeldBytes]:
        """The caller of a request before its body arrives, and the account for the body's bytes.

        Raises `HttpRefusal` (401): the body of an unauthorized request is not read.
        """
        caller = ANONYMOUS if self.guard is None else await self._caller(head, self.guard)
        return caller, HeldBytes(self.host.bodies, account_of(caller.key, peer))

    # Sessions of other workers.

    def has_session(self, name: str) -> bool:
        return self.legacy.has(name)

    async def open_again(self, name: str, record: SessionRecord, peer: str) -> None:
        """Open the session that another worker had. Raises `Draining`, and `Overloaded` for one too many."""
        await self.legacy.open_again(name, record, peer)

    # With the body.

    async def serve(self, head: Head, body: bytes, response: Response, caller: Caller | None = None) -> None:
        """Answer a request, or start what will. Never raises what a peer could cause. *caller* if it is known."""
        origin = head.get(b"origin")
        if origin is not None and origin.isascii() and place_of(head.path) is not None:
            response.extra = ((b"access-control-allow-origin", origin), *_CROSS_ORIGIN)
        try:
            if caller is not None and not response.is_forwarded and self.guard is not None:
                if self.guard.has_changed(head):  # while the body was on its way
                    caller = await self._caller(head, self.guard)
            elif caller is None:
                caller = ANONYMOUS if self.guard is None else await self._caller(head, self.guard)
            if self.guard is not None:
                response.scope_headers = self.guard.scope_headers
            if head.path != PATH:
                await self._other(head, body, caller, response)
            elif head.method == "POST":
                await self._post(head, body, caller, response)
            else:
                await self._without_body(head, caller, response)
        except HttpRefusal as refusal:
            await self.refuse(refusal, response)
        except Elsewhere as found:
            who, name = caller or ANONYMOUS, (place_of(head.path) or (PATH, ""))[1]
            await self.homes.serve_elsewhere(self._at(name, who), found, head, body, who, response)
        except PeerError as error:
            self.host.count_refusal(error)
            known = error.request_id if error.request_id is not None else asked_id(head, body)
            await answer_unread(response, error, None if error.is_answer else known)
        except RequestFailed as error:  # before anything was begun, too
            self.host.count_refusal(error)
            await answer_unread(response, error, asked_id(head, body))

    async def refuse(self, refusal: HttpRefusal, response: Response) -> None:
        """Answer what HTTP alone says no to, with the reason as text."""
        self.host.count_refusal(refusal)
        if isinstance(refusal, Unauthorized) and self.on_unauthorized is not None:
            self.on_unauthorized(response.peer, refusal.reason)
        frame = error_frame(refusal.request_id, LATEST, refusal)
        await response.answer(refusal.status, (*JSON, *refusal.headers), b"" if refusal.is_bodiless else frame)

    async def upgrade(
        self, head: Head, rest: bytes, wire: Wire, reading: Reading, caller: Caller | None = None
    ) -> Upgraded:
        """Begin to serve a connection that turns into another protocol. *caller* if it is known: then another worker
        has read the request. Raises `HttpRefusal`."""
        if self.on_upgrade is None:
            raise HttpRefusal(501, "WebSocket is not served at this address", closes=True)
        try:
            return await self.on_upgrade(head, rest, wire, reading, caller)
        except Elsewhere as found:
            if caller is not None:  # it was forwarded once, and is not again
                raise not_found() from None
            return await self.homes.tunnel(found, head, rest, wire, reading.peer)

    async def _caller(self, head: Head, guard: Guard) -> Caller:
        """Raises `HttpRefusal` as `Guard.admit` does."""
        known = guard.known(head)
        if known is not None:
            return known
        if head.method == "OPTIONS" or place_of(head.path) is None:  # a preflight request, or one for the metadata
            return ANONYMOUS
        return await guard.admit(head)

    # These only choose the answering method. They are no coroutines: each would cost every request of theirs.

    def _post(self, head: Head, body: bytes, caller: Caller, response: Response) -> Awaitable[None]:
        if (name := head.get(SESSION)) is not None and not self.legacy.has(name.decode("latin-1")):
            found = self.homes.missing(name.decode("latin-1"), caller)
            if isinstance(found, Elsewhere):  # that worker looks what it is: once is enough
                raise found
        if is_batch(body):
            session = self.legacy.find(head, caller)
            if not session.session.takes_batches:
                raise InvalidRequest("batches are only supported in sessions of 2025-03-26")
            session.received += len(body)
            return session.post(body, response)
        message = decode(body)
        route = read_route(message) if isinstance(message, (Request, Notification)) else Route()
        if self._is_modern(head, message, route):
            return self._modern(head, message, route, caller, response)
        if isinstance(message, Request) and message.method == "initialize":
            return self.legacy.initialize(message, caller, response)
        try:
            session = self.legacy.find(head, caller)
        except HttpRefusal as refusal:
            refusal.request_id = message.id if isinstance(message, Request) else None
            raise
        session.received += len(body)
        return session.post(message, response, route=route, head=head)

    def _is_modern(self, head: Head, message: Envelope, route: Route) -> bool:
        """What a request says of itself counts most; then the header; a session is for what says neither."""
        if is_modern(route):
            return True
        dialect = _dialect(head)
        if dialect is not None and not dialect.has_sessions:
            return True
        if not LEGACY & self.host.offer.revisions:  # then there are no sessions; such a header is ignored
            return not (isinstance(message, Request) and message.method == "initialize")
        if dialect is not None or head.get(b"mcp-session-id") is not None:
            return False
        return is_meant_modern(route)

    def _modern(
        self, head: Head, message: Envelope, route: Route, caller: Caller, response: Response
    ) -> Awaitable[None]:
        match message:
            case Request():
                return self.modern.serve(head, message, route, caller, response)
            case Notification():
                self.modern.hear(message, caller)
                return response.answer(202, ())
            case ResultResponse() | ErrorResponse():
                raise InvalidRequest("a response without a session: there is no request for it")

    def _other(self, head: Head, body: bytes, caller: Caller, response: Response) -> Awaitable[None]:
        if self.pages is not None and self.pages.has(head.path):
            return self.pages.serve(head, response)
        found = place_of(head.path)
        if found is None and self.guard is not None:
            if head.method == "OPTIONS":
                return response.answer(204, (*_PUBLIC, *_PREFLIGHT))
            return response.answer(200, (*JSON, *_PUBLIC), self.guard.metadata())
        place, name = found or (PATH, "")
        if head.method == "OPTIONS":
            return response.answer(204, (_allow(place), *_PREFLIGHT))
        return self._at(name, caller).answer(place, head, body, caller, response)

    # Other paths.

    def _at(self, name: str, caller: Caller) -> "Endpoint":
        """The endpoint of a path. Raises `HttpRefusal` (404) if there is none, or none that *caller* may know of."""
        if name == self.host.path:
            return self
        host = None if self.host.paths is None else self.host.paths.find(name, caller)
        if host is None:
            raise HttpRefusal(404, "not found; the endpoint is /mcp")
        inner = self._inner.get(name)
        if inner is None:
            inner = self._inner[name] = Endpoint(
                *(host, self.access, self.settings),
                guard=self.guard,
                legacy_sse=self.legacy_sse,
                homes=self.homes,
                outer=self,
            )
        return inner

    def answer(self, place: bytes, head: Head, body: bytes, caller: Caller, response: Response) -> Awaitable[None]:
        """Answer a request at a *place* of this endpoint, whatever the name behind it is. Raises as `serve` never
        does."""
        if place != PATH:
            opens = place == SSE_PATH
            return self.pairs.open(caller, response) if opens else self.pairs.post(head, body, caller, response)
        if head.method == "POST":
            return self._post(head, body, caller, response)
        return self._without_body(head, caller, response)

    def hand_over(self, release: Callable[[str], None]) -> None:
        """End the sessions here that wait for nothing: see `Legacy.hand_over`."""
        for endpoint in (self, *self._inner.values()):
            endpoint.legacy.hand_over(release)

    async def _without_body(self, head: Head, caller: Caller, response: Response) -> None:
        if head.method == "OPTIONS":
            await response.answer(204, (_allow(PATH), *_PREFLIGHT))
            return
        dialect = _dialect(head)
        if not LEGACY & self.host.offer.revisions or (dialect is not None and not dialect.has_sessions):
            raise HttpRefusal(405, "only POST is allowed", headers=((b"allow", b"POST"),))
        session = self.legacy.find(head, caller)
        if head.method == "DELETE":
            await self.legacy.end(session)
            await response.answer(204, ())
            return
        if not covers(head.all(b"accept"), _EVENTS):
            raise HttpRefusal(406, "Accept must include text/event-stream")
        self.host.expiry.add(response, lambda: session.session.caller, cut)
        await session.get(head.get(b"last-event-id"), response)


def _dialect(head: Head) -> Dialect | None:
    """How the revision is spoken that a request names in its header; None if it names none that is known here."""
    return _DIALECTS.get(head.get(b"mcp-protocol-version") or b"")


def _check_metadata(head: Head) -> None:
    if head.method not in ("GET", "OPTIONS"):
        raise HttpRefusal(405, "only GET is allowed", headers=((b"allow", b"GET, OPTIONS"),), closes=True)


def _allow(path: bytes) -> tuple[bytes, bytes]:
    return b"allow", ", ".join(METHODS[path]).encode()
