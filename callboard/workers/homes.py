"""Sessions, parked calls and tasks that other workers have: requests for them go there, at most one hop."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final

import attrs
import trio

from callboard.actors.frames import error_frame
from callboard.actors.server.exchange import Exchange, Handler
from callboard.actors.server.host import Host
from callboard.actors.server.session_record import read_record
from callboard.actors.server.task_store import UNKNOWN_TASK
from callboard.codecs.bridge.tasks import tasks_in
from callboard.codecs.caller import Caller
from callboard.codecs.envelope import Request
from callboard.codecs.home import HomeNames, chosen_home
from callboard.codecs.http.head import Head
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.status import RETRY_AFTER
from callboard.codecs.revisions import LATEST
from callboard.codecs.routing import Route
from callboard.errors import (
    Draining,
    HomeGone,
    InvalidParams,
    InvalidState,
    Overloaded,
    PeerError,
    RequestFailed,
    SupervisorClosed,
)
from callboard.transports.client.pool import Origin
from callboard.transports.server.http.homes import Elsewhere, LocalEndpoint, not_found
from callboard.transports.server.http.modern import answer_unread, asked_id
from callboard.transports.server.http.response import Response
from callboard.transports.server.http.upgraded import Upgraded
from callboard.transports.server.http.write_batch import WriteBatch
from callboard.transports.wire import Wire
from callboard.workers.book import SessionBook, key_of
from callboard.workers.link import HomeLink
from callboard.workers.messages import Keep, PeerWorker
from callboard.workers.node_tls import NodeCertificate, reach_node
from callboard.workers.relay import MISDIRECTED, RelayedRequest, RelayEnd
from callboard.workers.retries import retry_there
from callboard.workers.tunnel import open_tunnel

TRIES: Final = 6
"""Times that a worker is looked for which has a session: it may end, or pass the session on, in that moment."""

PAUSE: Final = 0.02
"""Seconds by which each attempt waits longer."""

UNREACHED: Final = "the worker that has this session does not answer"

MAX_NAMED: Final = 64
"""Tasks of one subscription whose homes are looked at: to open a forged name takes 5 us."""

MOST_MOVED: Final = 10_000
"""Sessions that are remembered to be elsewhere than their names say; then it begins anew."""


def socket_path(folder: str, name: bytes) -> str:
    """Where the worker of that name listens for the others."""
    return f"{folder}/{name.hex()}"


@attrs.define(eq=False)
class WorkerHomes:
    """The homes of one worker's sessions, and the links to the other workers."""

    names: HomeNames
    folder: str
    host: Host = attrs.field(init=False)
    certificate: NodeCertificate | None = attrs.field(default=None, init=False)
    """For workers of other nodes."""
    book: SessionBook | None = attrs.field(default=None, init=False)
    links: dict[bytes, HomeLink] = attrs.field(factory=dict, init=False)
    forwarded: int = attrs.field(default=0, init=False)
    opened_again: int = attrs.field(default=0, init=False)
    _records: dict[str, Callable[[], bytes]] = attrs.field(factory=dict, init=False)  # of the sessions in the book
    _moved: dict[str, bytes] = attrs.field(factory=dict, init=False)  # sessions that are not where their names say
    _released: set[str] = attrs.field(factory=set, init=False)  # that were here, and are for another worker to open
    _batch: WriteBatch | None = attrs.field(default=None, init=False)
    _opening: dict[str, trio.Event] = attrs.field(factory=dict, init=False)

    # What the endpoint asks.

    @property
    def incarnation(self) -> str:
        return f"{self.names.here.hex()[:12]}."

    def new_id(self, caller: Caller) -> str:
        return self.names.new(caller.key)

    def keep(self, name: str, record: Callable[[], bytes]) -> None:
        if self.book is not None:
            self._records[name] = record
            self.book.keep(key_of(name), record())

    def kept(self) -> Iterator[Keep]:
        """All sessions of this worker that are in the book, as they are."""
        for name in list(self._records):
            if (record := self._records.get(name)) is not None:
                yield Keep(key_of(name), record())

    def drop(self, name: str) -> None:
        self._records.pop(name, None)
        if self.book is not None and name not in self._released:
            self.book.drop(key_of(name))

    def release(self, name: str) -> None:
        """Let another worker open a session: it ends here, and goes on there."""
        self._released.add(name)
        self._records.pop(name, None)
        if self.book is not None:
            self.book.release(key_of(name))

    def missing(self, name: str, caller: Caller) -> HttpRefusal | Elsewhere:
        home = self.names.home_of(name, caller.key)
        is_ended = home == self.names.here and name not in self._released and name not in self._opening
        return not_found() if home is None or is_ended else Elsewhere(name, home, caller)

    def check_home(self, request: Request, route: Route, caller: Caller) -> None:
        if route.request_state is not None:
            if (home := self._home_of_state(request, route.request_state, caller.key)) is not None:
                raise Elsewhere("", home, caller)
        elif (home := self._home_of_tasks(tasks_in(request), caller.key)) is not None:
            raise Elsewhere("", home, caller, InvalidParams(UNKNOWN_TASK))

    def _home_of_tasks(self, named: Iterable[str], principal: str) -> bytes | None:
        """The other worker that has a task; None if that is this one. Of several tasks, the first that is to be found
        decides."""
        homes = (self.host.task_names.home_of(name, principal) for name in islice(named, MAX_NAMED))
        home = next((home for home in homes if home == self.names.here or home in self.links), None)
        return None if home == self.names.here else home

    def _home_of_state(self, request: Request, state: str, principal: str) -> bytes | None:
        """The other worker that a retry belongs to; None if that is this one."""
        found = self.host.parking.home_of(request, state, principal)
        if found is None:
            return None
        home, serial = found
        here = self.names.here
        home = home or chosen_home(serial, (here, *self.links))
        # Of one that has ended, no other knows more than this one.
        return home if home != here and home in self.links else None

    def elsewhere(self, exchange: Exchange) -> Handler | None:
        """What serves a retry, or a request about a task, that came on a WebSocket, if it belongs to another worker."""
        request, principal, state = exchange.request, exchange.terms.principal, exchange.route.request_state
        gone: PeerError = InvalidState()
        if not exchange.terms.revision.dialect.terms_per_request:
            return None  # the other worker does not know the session
        if state is not None:
            home = self._home_of_state(request, state, principal)
        else:
            home, gone = self._home_of_tasks(tasks_in(request), principal), InvalidParams(UNKNOWN_TASK)
        if home is None:
            return None
        host = next((one for one in self.host.narrow if one is exchange.engine), self.host)
        return lambda exchange: retry_there(host, exchange, partial(self._is_answered, home), gone)

    async def tunnel(self, found: Elsewhere, head: Head, rest: bytes, wire: Wire, peer: str) -> Upgraded:
        link = self.links.get(found.home)
        if link is None:
            raise not_found()
        if link.hangs:  # its session is not over
            raise HttpRefusal(503, UNREACHED, headers=RETRY_AFTER)
        self.forwarded += 1
        return await open_tunnel(link, head, rest, wire, found.caller, peer)

    async def serve_elsewhere(
        self, endpoint: LocalEndpoint, found: Elsewhere, head: Head, body: bytes, caller: Caller, response: Response
    ) -> None:
        relayed = RelayedRequest(self.host, head, body, caller, response)
        try:
            relayed.begin()
        except SupervisorClosed:
            if response.is_forwarded:
                await response.answer(MISDIRECTED, ())
            else:
                self.host.count_refusal(Draining())
                await answer_unread(response, Draining(), asked_id(head, body))
            return
        if not response.is_forwarded:
            link = self.links.get(self._moved.get(found.name, found.home))
            if link is not None and link.try_ask(relayed):  # mostly: and that is all that is done here
                self.forwarded += 1
                relayed.on_end = partial(self._ended, endpoint, found, relayed)
                return
        self._look(endpoint, found, relayed, None if response.is_forwarded else found.home)

    def _look(self, endpoint: LocalEndpoint, found: Elsewhere, relayed: RelayedRequest, home: bytes | None) -> None:
        """Have a task look for the worker that answers a request."""
        self._start(relayed, partial(self._run, endpoint, found, relayed, home))

    def _start(self, relayed: RelayedRequest, run: Callable[[], Awaitable[None]]) -> None:
        try:
            relayed.own(self.host.requests.carry(run, name=relayed.name))
        except SupervisorClosed:  # this worker ends
            relayed.cancel()

    def _ended(self, endpoint: LocalEndpoint, found: Elsewhere, relayed: RelayedRequest, how: RelayEnd) -> None:
        """What became of a request that was sent without waiting."""
        if how is RelayEnd.NOT_THERE:
            self._look(endpoint, found, relayed, None)
        elif how is RelayEnd.HOME_LOST:
            self._start(relayed, partial(self._answer_lost, relayed))

    async def _run(
        self, endpoint: LocalEndpoint, found: Elsewhere, relayed: RelayedRequest, home: bytes | None
    ) -> None:
        response = relayed.response
        try:
            await self._serve(endpoint, found, relayed, home)
        except HttpRefusal as refusal:
            await endpoint.refuse(refusal, response)
        except (PeerError, RequestFailed) as error:
            self.host.count_refusal(error)
            await answer_unread(response, error, asked_id(relayed.head, relayed.body))
        finally:
            relayed.leave()

    async def _serve(
        self, endpoint: LocalEndpoint, found: Elsewhere, relayed: RelayedRequest, home: bytes | None
    ) -> None:
        name, response, here = found.name, relayed.response, self.names.here
        for attempt in range(TRIES):
            if home is None or home == here or home not in self.links:
                try:
                    if not name:  # not a session, and its home is gone
                        raise found.gone
                    home = await self._find(endpoint, name, response.peer)
                except HttpRefusal:
                    link = self.links.get(found.home)
                    if link is None or link.is_open:
                        raise
                    # The worker that has it lives, and cannot be asked: that the book does not know it means nothing.
                    raise HttpRefusal(503, UNREACHED, headers=RETRY_AFTER) from None
                except Overloaded:
                    if not response.is_forwarded:
                        raise
                    await response.answer(MISDIRECTED, ())  # this worker ends: the other one shall ask itself
                    return
            if home == here:
                response.carrier = None  # its task has others to read
                await endpoint.serve(relayed.head, relayed.body, response, relayed.caller)
                return
            if response.is_forwarded:  # it was forwarded once, and is not again
                await response.answer(MISDIRECTED, ())
                return
            if await self._is_answered(home, relayed):
                return
            await trio.sleep(attempt * PAUSE)  # its end may not have been heard of by the parent yet
            home = None
        raise HttpRefusal(503, "the session is moving to another worker", headers=RETRY_AFTER)

    async def _is_answered(self, home: bytes, relayed: RelayedRequest) -> bool:
        """Have *home* answer. False if it has not begun with the request: it is gone, or has no such session."""
        link = self.links.get(home)
        if link is None or not await link.wait_open():
            return False
        if link.hangs:
            raise HttpRefusal(503, UNREACHED, headers=RETRY_AFTER)
        if not link.has_room(relayed):
            raise HttpRefusal(503, "too many requests to another worker", headers=RETRY_AFTER)
        over, ends = trio.Event(), list[RelayEnd]()

        def on_end(how: RelayEnd) -> None:
            ends.append(how)
            over.set()

        relayed.on_end = on_end
        self.forwarded += 1
        try:
            await link.ask(relayed)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return False  # not all of it was sent
        await over.wait()
        if ends[0] is RelayEnd.HOME_LOST:
            await self._answer_lost(relayed)
        return ends[0] is not RelayEnd.NOT_THERE

    async def _find(self, endpoint: LocalEndpoint, name: str, peer: str) -> bytes:
        """Where the session *name* is, which is not where it was: here, if it was opened again here. Raises
        `HttpRefusal` (404)."""
        if self.book is None:
            raise not_found()
        while name in self._opening:
            await self._opening[name].wait()
        if endpoint.has_session(name):
            return self.names.here
        done = self._opening[name] = trio.Event()
        try:
            found = await self.book.take(key_of(name))
            if found is None:
                raise not_found()
            if found.record is None:
                self._remember(name, found.home)
                return found.home
            await endpoint.open_again(name, read_record(found.record), peer)
            self.opened_again += 1
            return self.names.here
        finally:
            del self._opening[name]
            done.set()

    def _remember(self, name: str, home: bytes) -> None:
        if len(self._moved) >= MOST_MOVED:
            self._moved.clear()
        self._moved[name] = home

    async def _answer_lost(self, relayed: RelayedRequest) -> None:
        """The home ended meanwhile. A request that it may have begun is never answered 404: some clients would send it
        again, and it would run twice."""
        response = relayed.response
        try:
            if response.is_over:
                return
            request_id = asked_id(relayed.head, relayed.body)
            if relayed.is_begun:
                response.cut()  # a stream ends with its home: a client that comes back hears what is known
            elif request_id is not None:
                await response.answer_json(error_frame(request_id, LATEST, HomeGone()))
            else:
                frame = error_frame(None, LATEST, HomeGone())
                await response.answer(503, ((b"content-type", b"application/json"), *RETRY_AFTER), frame)
        finally:
            relayed.leave()

    # What the parent tells.

    def know(self, workers: list[PeerWorker]) -> None:
        """These workers can be reached now."""
        living = {peer.name for peer in workers} - {self.names.here}
        for name in self.links.keys() - living:
            self.links.pop(name).address.kill()
        for peer in workers:
            if peer.name in living - self.links.keys():
                self.links[peer.name] = self._link(peer)
            if peer.name in self.links:
                self.links[peer.name].hangs = peer.hangs

    def _link(self, peer: PeerWorker) -> HomeLink:
        root = self.host.root
        if self._batch is None:
            self._batch = WriteBatch()
            root.spawn(self._batch, name="link-batch", shutdown=0)
        name = f"link-{peer.name.hex()}"
        carry = partial(self.host.requests.carry, name=f"{name}-writer")
        if peer.address is None or self.certificate is None:
            origin = Origin("http", "worker", 0, socket_path(self.folder, peer.name))
            link = HomeLink(peer.name, origin, self._batch, carry)
        else:
            origin = Origin("https", *peer.address)
            link = HomeLink(peer.name, origin, self._batch, carry, self.certificate.client, reach_node)
        root.spawn(link, name=name, shutdown=0)
        return link

    def close(self) -> None:
        self.know([])
