"""The backends that all workers share, as one worker reaches them: at the keeper, by HTTP on a Unix socket."""

import secrets
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Final, Never
from urllib.parse import quote
from weakref import WeakKeyDictionary, WeakSet

import attrs
import msgspec
import trio

from callboard.actors.broker.leases import Lease
from callboard.actors.broker.policy import Restarts
from callboard.actors.client.hearer import Hearer
from callboard.actors.client.link import Hear, Link, OutgoingRequest
from callboard.actors.server.client_requests import SessionKey
from callboard.actors.server.exchange import Exchange
from callboard.actors.shares import LOCAL, account_of
from callboard.broker.placing import PlaceAnew, Placed
from callboard.client.routes import TransportRoute, TransportRoutes
from callboard.codecs.caller import Caller, caller_of_key, write_caller
from callboard.codecs.envelope import ErrorResponse, ResultResponse
from callboard.codecs.revisions import LATEST
from callboard.config import BackendSpec
from callboard.errors import CallboardError, CannotConnect, CannotServe
from callboard.supervisor import Actor, Backoff, Fact, Intensity, get_logger
from callboard.supervisor.groups import own_nursery
from callboard.transports.client.http import HttpLink
from callboard.transports.client.pool import Origin, Pool
from callboard.workers.relay import CALLER, PEER, write_name

SOCKET: Final = "keeper"
"""Name of the keeper's socket, in the folder of the workers' sockets."""

SESSION: Final = b"callboard-session"
"""Header with a name for the legacy session that a request comes from: the keeper gives each its own connections, where
a backend is asked to."""

LISTED: Final = b"/backends"
"""Path of the list of backends that are kept; with `?after=TOKEN` it is answered when it has changed."""

KEPT_AT: Final = b"/backend/"
"""Path of a backend: this and its name say how it stands; requests go to this, its name, `/` and its incarnation."""

LATER: Final = 2.0
"""Seconds that a worker waits longer than the keeper does: the keeper is to notice that a backend is late."""

RESTARTS: Final = Restarts(intensity=Intensity(20, per=30.0), backoff=Backoff(first=0.1, most=0.5), cool_down=0.5)
"""How often a worker looks for a backend at the keeper. Only the keeper starts it, by what its operator has set."""

MAX_CHANNELS: Final = 4096
"""Connections to the keeper for one backend: so many for requests under way, and so many for followed resources."""

MAX_ANSWER: Final = 1024 * 1024
"""Largest answer of the keeper about its backends, in bytes: some ten thousand of them."""

TOLD_WITHIN: Final = 20.0
"""Seconds after which the keeper answers although nothing has changed."""

SETTLED_WITHIN: Final = 10.0
"""Seconds for which the keeper waits for a backend that is being started, before it says that it is not up."""

PATIENCE: Final = 5.0
"""Seconds for the keeper to answer, beyond those that it waits itself."""

MAX_WORDS: Final = 1024
"""Words for the keeper that may wait to be sent; of more the oldest are forgotten. They are courtesies."""

CANCELLED: Final = "notifications/cancelled"
"""What a worker tells of a request that waits for its client, with the state of that, and a reason."""

PAUSE: Final = 0.2
"""Seconds after which a worker looks again for a keeper that is not there: it is being started anew."""

GONE: Final = "the process that runs it is being restarted"

log = get_logger("callboard.workers")


class KeptList(msgspec.Struct, frozen=True):
    """The backends of the keeper: the incarnation of each, None of one that each worker reaches by itself."""

    token: str = ""
    backends: dict[str, str | None] = {}
    skipped: dict[str, str] = {}
    """Those that are left out, as they cannot be loaded, and why."""


class KeptState(msgspec.Struct, frozen=True):
    """How it stands with a backend: its incarnation; or why it is not up, for clients and for the operator."""

    incarnation: str = ""
    brief: str = ""
    why: str = ""


class Withdrawal(msgspec.Struct, frozen=True):
    """A request that waits for its client, which will not answer."""

    method: str
    state: str
    reason: str = ""


_read_list: Final = msgspec.json.Decoder(KeptList).decode
_read_state: Final = msgspec.json.Decoder(KeptState).decode


def keeper_path(folder: str) -> str:
    """The socket of the keeper."""
    return str(Path(folder, SOCKET))


@attrs.define(eq=False)
class KeptBackends:
    """Places the backends of one worker: at the keeper, but for those that are its own, or modern servers elsewhere.
    One that the keeper has said nothing of yet counts as kept: it will be, or the keeper will say that it is not."""

    folder: str
    _known: KeptList = attrs.field(factory=KeptList, init=False)
    _ways: dict[str, TransportRoutes] = attrs.field(factory=dict, init=False)
    _links: "WeakSet[KeptLink]" = attrs.field(factory=WeakSet, init=False)
    _words: deque[tuple[str, bytes, bytes]] = attrs.field(factory=lambda: deque(maxlen=MAX_WORDS), init=False)
    _said: trio.Event = attrs.field(factory=trio.Event, init=False)
    _sessions: "WeakKeyDictionary[SessionKey, bytes]" = attrs.field(factory=WeakKeyDictionary, init=False)

    @property
    def origin(self) -> Origin:
        return Origin("http", "localhost", 0, keeper_path(self.folder))

    @property
    def token(self) -> str:
        """Of the list that is known."""
        return self._known.token

    @property
    def kept(self) -> int:
        return sum(incarnation is not None for incarnation in self._known.backends.values())

    async def learn(self) -> None:
        with trio.move_on_after(PATIENCE):
            try:
                await self.ask_list("")
            except CallboardError as error:
                log.warning("keeper_not_found", reason=str(error))

    async def ask_list(self, token: str) -> bool:
        """Ask the keeper for its list, and wait until that has another token. Returns whether backends are to be placed
        anew. Raises `CallboardError`."""
        pool = Pool(self.origin)
        try:
            status, body = await _get(pool, LISTED + (b"?after=" + token.encode() if token else b""))
        finally:
            pool.close()
        if status != 200:
            raise CannotConnect(f"the keeper of the backends answered with HTTP {status}")
        before = self._elsewhere, self._known.skipped
        try:
            self._known = _read_list(body)
        except msgspec.MsgspecError:
            raise CannotConnect("the keeper of the backends answered with something else") from None
        for link in list(self._links):
            if self._known.backends.get(link.name) != link.incarnation:
                link.drop("the server was started anew")
        return (self._elsewhere, self._known.skipped) != before

    def lose(self) -> None:
        """The keeper is gone."""
        for link in list(self._links):
            link.drop(GONE)

    @property
    def _elsewhere(self) -> set[str]:
        """The backends that workers reach by themselves."""
        return {name for name, incarnation in self._known.backends.items() if incarnation is None}

    def place(self, spec: BackendSpec) -> Placed:
        if (why := self._known.skipped.get(spec.name)) is not None:
            raise CannotServe(why)
        if spec.settings.local or self._known.backends.get(spec.name, "") is None:
            return Placed(spec.settings, spec.target, spec.auth)
        ways = self._ways.get(spec.name)
        if ways is None:
            way = TransportRoute("keeper", partial(self._open, spec.name))
            ways = self._ways[spec.name] = TransportRoutes(None, (way,))
        settings = attrs.evolve(
            spec.settings,
            timeout=spec.settings.timeout + LATER,
            cap=spec.settings.cap + LATER,
            restarts=RESTARTS,
            start="eager",
            idle_stop=None,
            revision=LATEST,
        )
        return Placed(settings, ways, withdraw=partial(self._withdraw, spec.name))

    def watcher(self, place_anew: PlaceAnew) -> "KeeperWatch":
        return KeeperWatch(self, place_anew)

    @asynccontextmanager
    async def _open(self, name: str) -> AsyncIterator[Link]:
        pool, target = Pool(self.origin, most=MAX_CHANNELS), KEPT_AT + quote(name, safe="").encode()
        try:
            incarnation = await _find_up(pool, target)
            link = KeptLink(
                pool, target + b"/" + incarnation.encode(), clients=self, name=name, incarnation=incarnation
            )
            self._links.add(link)
            yield link
        finally:
            pool.close()

    def lines_for(self, hearer: Hearer) -> bytes:
        """Header lines that say whose request it is; none of the broker's own."""
        if not isinstance(hearer, Lease):
            return b""
        exchange = hearer.exchange
        if exchange is None:
            return _lines(caller_of_key(hearer.principal), account_of(hearer.principal, LOCAL))
        lines = _lines(exchange.terms.caller, exchange.slot.account)
        if exchange.session is not None:
            lines += b"%b: %b\r\n" % (SESSION, self._name_of(exchange.session))
        return lines

    def _name_of(self, session: SessionKey) -> bytes:
        name = self._sessions.get(session)
        if name is None:
            name = self._sessions[session] = (session.name or secrets.token_hex(16)).encode()
        return name

    # What is told to the keeper, and no request.

    def _withdraw(self, backend: str, method: str, state: str, exchange: Exchange) -> None:
        params = Withdrawal(method, state, exchange.why_cancelled())
        frame = msgspec.json.encode({"jsonrpc": "2.0", "method": CANCELLED, "params": params})
        self._words.append((backend, _lines(exchange.terms.caller, exchange.slot.account), frame))
        self._said.set()

    async def send_words(self) -> None:
        """Send what is told, for as long as this runs. What cannot be told to a keeper that is gone is forgotten."""
        while True:
            await self._said.wait()
            self._said = trio.Event()
            while self._words:
                backend, lines, frame = self._words.popleft()
                link = next((one for one in self._links if one.name == backend and not one.lost), None)
                if link is not None:
                    with suppress(CallboardError):
                        await _post(link.pool, link.target, lines, frame)


@attrs.define(eq=False)
class KeptLink(HttpLink):
    """A link to the keeper: each request says whose it is."""

    clients: KeptBackends = attrs.field(kw_only=True)
    name: str = attrs.field(kw_only=True)
    incarnation: str = attrs.field(kw_only=True)
    _dropped: trio.Event = attrs.field(factory=trio.Event, init=False)

    def drop(self, why: str) -> None:
        """Nothing can be asked any more, for this reason."""
        self.lost = self.lost or why
        self.pool.close()
        self._dropped.set()

    async def listen(self, hear: Hear) -> None:
        await self._dropped.wait()  # nothing is said here: when this returns, the connection is known to be lost

    async def ask(self, outgoing: OutgoingRequest, hear: Hear) -> ResultResponse | ErrorResponse | None:
        outgoing.headers += self.clients.lines_for(outgoing.hearer)
        try:
            return await HttpLink.ask(self, outgoing, hear)
        except CannotConnect as error:
            error.brief = GONE  # the path of the socket is no business of clients
            raise


@attrs.define(eq=False)
class KeeperWatch(Actor[Never]):
    """Hears from the keeper which backends it keeps, and has them placed anew when that changes."""

    mailbox = None

    kept: KeptBackends
    place_anew: PlaceAnew
    is_there: bool = attrs.field(default=True, init=False)

    async def run(self) -> None:
        async with own_nursery() as nursery:
            nursery.start_soon(self.kept.send_words)
            await self._watch()

    async def _watch(self) -> None:
        is_placed = True
        while True:
            try:
                is_placed = not await self.kept.ask_list(self.kept.token if is_placed else "") and is_placed
                self.is_there = True
            except CallboardError as error:
                if self.is_there:
                    log.info("keeper_lost", reason=str(error)[:200])
                    self.kept.lose()
                self.is_there = False
                await trio.sleep(PAUSE)
                continue
            if not is_placed:
                is_placed = await self._place()

    async def _place(self) -> bool:
        try:
            await self.place_anew()
        except CallboardError as error:
            log.warning("backends_not_placed", reason=str(error)[:200])
            await trio.sleep(PAUSE)
            return False
        return True

    def facts(self) -> dict[str, Fact]:
        return {"kept": self.kept.kept, "state": "listens" if self.is_there else "looks for the keeper"}


async def _find_up(pool: Pool, target: bytes) -> str:
    """The incarnation of a backend that is up. Raises `CannotConnect` with the reason if it is not."""
    try:
        _, body = await _get(pool, target)
        said = _read_state(body)
    except CallboardError as error:
        failure = CannotConnect(str(error))
        failure.brief = GONE
        raise failure from None
    except msgspec.MsgspecError:
        raise CannotConnect("it is not started yet") from None
    if not said.incarnation:
        failure = CannotConnect(said.brief)
        failure.brief, failure.for_operator = said.brief, said.why
        raise failure
    return said.incarnation


async def _get(pool: Pool, target: bytes) -> tuple[int, bytes]:
    """Ask the keeper. Raises `CallboardError`."""
    return await _exchange(pool, b"GET %b HTTP/1.1\r\nhost: keeper\r\n\r\n" % target)


async def _post(pool: Pool, target: bytes, lines: bytes, body: bytes) -> tuple[int, bytes]:
    """Tell the keeper. Raises `CallboardError`."""
    head = b"POST %b HTTP/1.1\r\nhost: keeper\r\n%bcontent-length: %d\r\n\r\n" % (target, lines, len(body))
    return await _exchange(pool, head + body)


async def _exchange(pool: Pool, request: bytes) -> tuple[int, bytes]:
    with trio.move_on_after(TOLD_WITHIN + PATIENCE):
        channel, is_done = await pool.take("word"), False
        try:
            await channel.send(request)
            head = await channel.head()
            body = await channel.whole(MAX_ANSWER)
            is_done = True
            return head.status, body
        finally:
            pool.give_back(channel, is_done=is_done)
    raise CannotConnect("the keeper of the backends does not answer")


@lru_cache(maxsize=256)
def _lines(caller: Caller, account: str) -> bytes:
    return b"%b: %b\r\n%b: %b\r\n" % (CALLER, write_caller(caller), PEER, write_name(account))
