"""WebSocket upgrade: the handshake, and the resumable sessions."""

from itertools import count
from typing import Final

import attrs
import trio

from callboard import tree
from callboard.actors.server.host import Host
from callboard.actors.server.session_tree import add_session
from callboard.actors.shares import account_of
from callboard.codecs.caller import ANONYMOUS, Caller
from callboard.codecs.http.head import Head
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.status import RETRY_AFTER, Leaving, refusal_of
from callboard.codecs.websocket.frames import Close, Code
from callboard.codecs.websocket.handshake import GRACE, RECEIVED, SESSION, Handshake, read_handshake, write_accept
from callboard.errors import Overloaded, SupervisorClosed
from callboard.transports.limits import DEFAULTS, Settings
from callboard.transports.server.http.guard import Guard, guard_of
from callboard.transports.server.http.homes import Alone, Homes
from callboard.transports.server.http.places import PATH, place_of
from callboard.transports.server.http.upgraded import Reading
from callboard.transports.server.websocket.pings import Pings
from callboard.transports.server.websocket.resumable import ResumableSession
from callboard.transports.server.websocket.socket import WebSocketConnection, part
from callboard.transports.wire import Wire

EXPIRED: Final = Close(Code.POLICY, "the token has expired")

START_TIME: Final = 5.0
"""Seconds for a session to begin. It waits for nothing but its turn."""


@attrs.define(eq=False, repr=False)  # printing it must not show an id
class WebSocketUpgrade:
    """Serves the connections that turn into WebSockets: `Endpoint(..., on_upgrade=upgrade.serve)`."""

    host: Host
    settings: Settings = DEFAULTS
    guard: Guard | None = attrs.field(default=None, converter=guard_of)
    homes: Homes = attrs.field(factory=Alone)
    outer: "WebSocketUpgrade | None" = attrs.field(default=None, kw_only=True)
    """That of all paths, if this is the one of a single path: both share pings, and names in the tree."""
    heart: Pings = attrs.field(init=False)
    names: "count[int]" = attrs.field(init=False)
    _beats: bool = attrs.field(default=False, init=False)
    _conversations: dict[str, ResumableSession] = attrs.field(factory=dict, init=False)
    _inner: "dict[str, WebSocketUpgrade]" = attrs.field(factory=dict, init=False)
    """Those of other paths, by their names."""

    def __attrs_post_init__(self) -> None:
        outer = self.outer
        self.heart = Pings(self.settings.ping_every) if outer is None else outer.heart
        self.names = count(1) if outer is None else outer.names
        if outer is None:
            self.settings.apply(self.host)

    async def serve(
        self, head: Head, rest: bytes, wire: Wire, reading: Reading, caller: Caller | None = None
    ) -> WebSocketConnection:
        """Begin to serve one connection. Raises `HttpRefusal` while it can still be answered by HTTP, and `Elsewhere`
        if another worker has its session."""
        handshake = read_handshake(head)
        if caller is None:
            caller = await self._caller(head, handshake)
        upgrade = self._at(head, caller)
        if upgrade is not self:
            return await upgrade.serve(head, rest, wire, reading, caller)
        if handshake.session is not None:
            conversation = self._returned(handshake.session, caller, handshake.received)
            conversation.renew(caller)
        elif not self._has_room(account_of(caller.key, reading.peer)):
            await self._turn_away(handshake, wire)
            raise trio.ClosedResourceError("it was turned away")
        else:
            conversation = self._begun(caller, reading.peer, counts_all=handshake.is_resumable)
        link = WebSocketConnection(wire, conversation, self.settings, reading, on_end=self.heart.discard)
        conversation.claim(link)
        if handshake.session is None:
            await self._start(conversation)
        wire.stop_probing()
        self.heart.add(link)
        self.host.expiry.add(link, lambda: caller, _close_expired)
        link.begin_with(_opening(handshake, conversation), handshake.received, rest)
        return link

    def _at(self, head: Head, caller: Caller) -> "WebSocketUpgrade":
        """What serves the path of a handshake. Raises `HttpRefusal` (404) if there is none such, or none that *caller*
        may know of."""
        name = (place_of(head.path) or (PATH, ""))[1]
        if self.host.paths is None or name == self.host.path:
            return self
        host = self.host.paths.find(name, caller)
        if host is None:
            raise HttpRefusal(404, "not found; the endpoint is /mcp", closes=True)
        inner = self._inner.get(name)
        if inner is None:
            inner = self._inner[name] = WebSocketUpgrade(*(host, self.settings, self.guard, self.homes), outer=self)
        return inner

    def _has_room(self, account: str) -> bool:
        try:
            self.host.sessions.check(account)
        except Overloaded:
            return False
        return True

    async def _caller(self, head: Head, handshake: Handshake) -> Caller:
        """Raises `HttpRefusal` as `Guard.admit` does."""
        if self.guard is None:
            return ANONYMOUS
        return self.guard.known(head) or await self.guard.admit(head, handshake.token)

    def _returned(self, session_id: str, caller: Caller, received: int) -> ResumableSession:
        """The session to go on with. Raises `HttpRefusal` (404), whyever that is not possible: one answer for all
        causes; and `Elsewhere`."""
        conversation = self._conversations.get(session_id)
        if conversation is None:
            raise self.homes.missing(session_id, caller)
        if not conversation.can_resume(caller, received):
            raise HttpRefusal(404, "session not found", closes=True)
        return conversation

    def _begun(self, caller: Caller, peer: str, *, counts_all: bool) -> ResumableSession:
        """A new session. Raises `HttpRefusal` (503) if the server is shutting down."""
        if self.host.is_draining:
            raise Leaving
        return ResumableSession(
            *(self.homes.new_id(caller), self.host, self.settings, caller, self._conversations_pop, peer, counts_all)
        )

    async def _start(self, conversation: ResumableSession) -> None:
        """Put it into the tree. Raises `HttpRefusal`."""
        try:
            with trio.move_on_after(START_TIME, shield=True) as started:  # half begun, nothing would end it
                await self.start_beating()
                await add_session(self.host, conversation.session, f"w-{next(self.names)}")
        except SupervisorClosed:
            raise Leaving from None
        except Overloaded as error:
            raise refusal_of(error) from None
        if started.cancelled_caught:
            raise HttpRefusal(503, "the server is overloaded", headers=RETRY_AFTER, closes=True)
        self._conversations[conversation.id] = conversation

    async def start_beating(self) -> None:
        """Begin to send pings, when there is the first WebSocket."""
        if self.outer is not None:
            await self.outer.start_beating()
        elif not self._beats:
            self._beats = True
            root = self.host.root
            name = next(name for number in count(1) if root.node(name := f"pings-{number}") is None)
            await root.add(tree.keep_alive(lambda: self.heart, name))

    async def _turn_away(self, handshake: Handshake, wire: Wire) -> None:
        """A browser is told nothing of an HTTP answer, but what a WebSocket was closed for."""
        try:
            await wire.send(write_accept(handshake))
            await part(wire, Close(Code.OVERLOADED, "too many sessions"))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # it did not wait for that
        finally:
            wire.close()

    def _conversations_pop(self, session_id: str) -> None:
        self._conversations.pop(session_id, None)

    def __len__(self) -> int:
        return len(self._conversations)


def _close_expired(link: WebSocketConnection) -> None:
    link.begin_close(EXPIRED)


def _opening(handshake: Handshake, conversation: ResumableSession) -> bytes:
    if handshake.session is not None:
        told = (RECEIVED, b"%d" % conversation.received)
        return write_accept(handshake, (told,)) + conversation.first_word(handshake.received)
    if not conversation.counts_all:
        return write_accept(handshake)
    ticket = ((SESSION, conversation.id.encode()), (GRACE, b"%g" % conversation.settings.grace))
    return write_accept(handshake, ticket) + conversation.first_word(None)
