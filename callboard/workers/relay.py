"""A request that another worker answers: it goes there whole, and the answer comes back piece by piece."""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from functools import lru_cache, partial
from typing import Final, Protocol
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec
import trio

from callboard.actors.server.host import Host
from callboard.codecs.caller import ANONYMOUS, Caller, read_caller, write_caller
from callboard.codecs.http.head import Head
from callboard.codecs.link import ANSWER, BEGIN, CREDIT, END, JSON, LOST, WINDOW, WRITE, read_link_answer
from callboard.errors import Draining, SupervisorClosed
from callboard.supervisor import WHY_DRAIN, WHY_KILLED, Fact, Lifetime, Snapshot, Unfinished
from callboard.transports.server.http.modern import answer_unread, asked_id
from callboard.transports.server.http.response import Response

CALLER: Final = b"callboard-caller"
PEER: Final = b"callboard-peer"
"""What the worker that read a request knows of its client, and the one that answers it does not ask again."""

PROTOCOL: Final = b"callboard-link"
VERSION_HEADER: Final = b"callboard-link"
VERSION: Final = b"2"
"""What is spoken between workers. Those of two releases that speak different versions refuse each other, with a 503 for
clients, until the older ones are gone."""

UPGRADE: Final = b"connection: upgrade\r\nupgrade: %b\r\n%b: %b\r\n" % (PROTOCOL, VERSION_HEADER, VERSION)

MISDIRECTED: Final = 421
"""Status by which a worker says that it has no such session any more: another one may have it."""

_NOT_PASSED: Final = frozenset(
    (
        *(b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"expect", b"te", b"trailer"),
        *(b"upgrade", b"host", b"origin", b"authorization", b"proxy-authorization", b"cookie", CALLER, PEER),
    )
)
"""Headers that are for the worker that read them alone. Who the client is, it says itself."""

_GRANTED: Final = WINDOW // 2  # bytes that were taken, and not said to be: more, and they are


def write_forwarded(head: Head, body: bytes, caller: Caller, peer: str) -> bytes:
    """A request as it goes to another worker."""
    return b"%bcontent-length: %d\r\n\r\n%b" % (_head(head, caller, peer), len(body), body)


def write_upgrade(head: Head, caller: Caller, peer: str) -> bytes:
    """The same for one that turns into a WebSocket."""
    return _head(head, caller, peer) + UPGRADE + b"\r\n"


def _head(head: Head, caller: Caller, peer: str) -> bytes:
    lines = [b"%b %b HTTP/1.1\r\nhost: worker\r\n" % (head.method.encode(), head.target)]
    lines += [b"%b: %b\r\n" % header for header in head.headers if header[0] not in _NOT_PASSED]
    lines.append(b"%b: %b\r\n%b: %b\r\n" % (CALLER, write_caller(caller), PEER, write_name(peer)))
    return b"".join(lines)


@lru_cache(maxsize=1024)
def write_name(name: str) -> bytes:
    """An account as the value of a header."""
    return quote_from_bytes(name.encode("utf-8", "surrogatepass")).encode()


@lru_cache(maxsize=1024)
def read_name(value: bytes) -> str:
    return unquote_to_bytes(value).decode("utf-8", "surrogatepass")


def read_told(value: bytes | None) -> Caller:
    """The caller that another worker has authenticated. Raises ValueError."""
    return ANONYMOUS if value is None else read_caller(value)


class RelayEnd(Enum):
    """How a request at another worker ended."""

    ANSWERED = "answered"
    NOT_THERE = "not there"
    """That worker has no such session any more."""
    HOME_LOST = "home lost"
    """That worker ended, and may have begun with it."""


class RelayLink(Protocol):
    """The link to the worker that answers, as a request needs it."""

    @property
    def home(self) -> bytes: ...

    def say(self, relayed: "RelayedRequest", kind: int, payload: bytes = b"") -> None:
        """Say a small thing of it."""

    def forget(self, relayed: "RelayedRequest") -> None:
        """It is over. Harmless twice."""


class RelayedRequest:
    """One request that another worker answers: as the tree shows it, and as the link to that worker needs it.

    It has no task. The task that reads the link writes the answer, if the client takes it at once; else a task does
    that is started for it.
    """

    __slots__ = (
        *("_is_begun", "_lifetime", "_number", "_over", "_queue", "_taken", "body", "head", "host", "link"),
        *("caller", "listens", "on_end", "response", "started_at", "stream"),
    )

    begin_stop = None

    def __init__(self, host: Host, head: Head, body: bytes, caller: Caller, response: Response) -> None:
        self.host = host
        self.head = head
        self.body = body
        self.caller = caller
        self.response = response
        self.link: RelayLink | None = None
        self.stream = 0
        self.listens = head.method == "GET"  # it is a stream that waits for what its session says
        self.on_end: Callable[[RelayEnd], None] = lambda _: None
        self.started_at = trio.current_time()
        self._number = next(host.numbers)
        self._lifetime: Lifetime | None = None
        self._over: trio.Event | None = None
        self._queue: deque[Callable[[], Awaitable[None]]] | None = None  # what a task writes, while there is one
        self._is_begun = False
        self._taken = 0  # bytes of a stream that the client has taken, and the home was not told of

    def begin(self) -> None:
        """Take the place in the tree. Raises `SupervisorClosed`."""
        self.host.requests.take_in(self)
        self.response.on_lost = self.lost

    def leave(self) -> None:
        """It is over. Harmless twice."""
        self.host.requests.let_go(self)
        self.on_end = lambda _: None
        if self.link is not None:
            self.link.forget(self)
        if self._over is not None:
            self._over.set()

    # What the link hears.

    def hear(self, kind: int, payload: bytes) -> None:
        """One frame of the worker that answers. Never raises."""
        response = self.response
        if kind == JSON:
            if self._queue is not None or not response.try_json(payload):
                self._later(partial(response.answer_json, payload))
            self._end(RelayEnd.ANSWERED)
        elif kind == WRITE:
            if self._queue is None and response.try_write(payload):
                self._took(len(payload))
            else:
                self._later(partial(self._write, payload))
        elif kind == BEGIN:
            self._is_begun = True
            headers = read_link_answer(payload).headers
            if self._queue is not None or not response.try_begin(headers, b""):
                self._later(partial(response.begin, headers))
        elif kind == END:
            if self._queue is not None or not response.try_end(payload):
                self._later(partial(response.end, payload))
            self._end(RelayEnd.ANSWERED)
        elif kind == ANSWER:
            self._answer(payload)
        else:
            response.cut()
            self._end(RelayEnd.ANSWERED)

    def _answer(self, payload: bytes) -> None:
        try:
            answer = read_link_answer(payload)
        except msgspec.MsgspecError:
            self._end(RelayEnd.HOME_LOST)
            return
        if answer.status == MISDIRECTED:
            self._end(RelayEnd.NOT_THERE)
            return
        self._later(partial(self.response.answer, answer.status, answer.headers, answer.body))
        self._end(RelayEnd.ANSWERED)

    def not_begun(self) -> None:
        """The worker ends, and has not read it."""
        self._end(RelayEnd.NOT_THERE)

    def home_lost(self) -> None:
        """The link ended."""
        self._end(RelayEnd.HOME_LOST)

    def _end(self, how: RelayEnd) -> None:
        on_end, self.on_end = self.on_end, lambda _: None
        if self.link is not None:
            self.link.forget(self)
            self.link = None
        if how is RelayEnd.ANSWERED and self._queue is None:
            self.leave()
        on_end(how)

    def _took(self, size: int) -> None:
        """The client has taken *size* bytes of a stream: the home may send more."""
        self._taken += size
        if self._taken >= _GRANTED and self.link is not None:
            self.link.say(self, CREDIT, b"%d" % self._taken)
            self._taken = 0

    # What must wait.

    def _later(self, write: Callable[[], Awaitable[None]]) -> None:
        if self._queue is not None:
            self._queue.append(write)
            return
        self._queue = deque([write])
        try:
            self._lifetime = self.host.requests.carry(self._write_all, name=self.name)
        except SupervisorClosed:
            self.leave()

    async def _write_all(self) -> None:
        try:
            while self._queue:
                await self._queue.popleft()()
        finally:
            self._queue = None
            if self.link is None or self.response.is_over:
                self.leave()

    async def _write(self, payload: bytes) -> None:
        await self.response.write(payload)
        self._took(len(payload))

    # How it ends early.

    def lost(self) -> None:
        """The client has left: so the home hears it."""
        if self.link is not None:
            self.link.say(self, LOST)
        on_end = self.on_end
        self.leave()
        on_end(RelayEnd.ANSWERED)  # a task may wait for that

    def own(self, lifetime: Lifetime) -> None:
        """A task looks for the worker that answers it."""
        self._lifetime = lifetime

    def cancel(self, why: str = WHY_KILLED) -> None:
        self.response.cut()
        self.lost()
        if self._lifetime is not None:
            self._lifetime.cut(why)

    def drain(self, until: float) -> None:
        """Its server ends: those that could finish have had their time."""
        self.cancel(WHY_DRAIN)

    # How it is drained.

    def unfinished(self) -> Iterable[Unfinished]:
        return () if self.response.is_over else (self,)

    async def wait_over(self) -> None:
        if not self.response.is_over:
            self._over = self._over or trio.Event()
            await self._over.wait()

    def cut_short(self) -> bool:
        return not self.response.is_over

    async def part(self) -> None:
        """Its client is told that this worker ends. What the other one does with it is not known."""
        try:
            if not self.response.is_over:
                await answer_unread(self.response, Draining(), asked_id(self.head, self.body))
        finally:
            self.cancel(WHY_DRAIN)

    # What the tree shows.

    @property
    def is_begun(self) -> bool:
        """Whether a part of the answer was written."""
        return self._is_begun

    @property
    def name(self) -> str:
        return f"r-{self._number}"

    @property
    def path(self) -> str:
        return f"{self.host.requests.path}/{self.name}"

    def snapshot(self, now: float) -> Snapshot:
        where = "being looked for" if self.link is None else self.link.home.hex()
        facts: dict[str, Fact] = {"method": f"HTTP {self.head.method}", "worker": where}
        age = now - self.started_at
        return Snapshot(name=self.name, path=self.path, kind="RelayedRequest", state="running", age=age, facts=facts)
