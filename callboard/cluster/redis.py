"""Redis or Valkey as the store that nodes share, by coredis.

The rules that coredis needs on Trio: plain commands only, none that blocks, no pipelines; no retries (a command that
timed out may have run); every wait has an end; what failed once is closed and made anew; a subscriber that ends is
started again.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import attrs
import trio

from callboard.cluster.directory import DEAD_AFTER, MAX_NODES
from callboard.cluster.knock import knock
from callboard.cluster.scripts import BEAT, LEAVE, NOBODY, TAKE, TOUCH, WRITE
from callboard.cluster.store import ANSWER_TIME, NotListed, Owned, StoreAway, View
from callboard.cluster.url import StoreUrl
from callboard.errors import CannotServe
from callboard.supervisor import get_logger
from callboard.supervisor.groups import first_leaf

try:
    import anyio
    import coredis
    from coredis.exceptions import RedisError
    from coredis.retry import NoRetryPolicy
except ImportError:  # an extra
    raise CannotServe("--cluster needs coredis: install callboard[cluster]") from None

MAX_CONNECTIONS: Final = 4
"""Connections of one node for commands. The listener has one more of its own."""

MAX_PUBLISHED: Final = 128 * 1024
"""Bytes of a message of another node. A longer one is not ours."""

DEAF_AFTER: Final = 10.0
"""Seconds without any message, not even of one's own, after which a subscription is given up."""

log = get_logger("callboard.cluster")

_FAILURES: Final = (
    *(RedisError, OSError, TimeoutError),
    *(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream),  # which are not Trio's
)


@attrs.define(eq=False)
class RedisStore:
    """One node's way to Redis. Commands fail at once while it is away."""

    url: str
    cluster: str
    ttl: float
    """Seconds that a session is good for which no worker touches."""
    password: str | None = attrs.field(repr=False, default=None)
    _client: Any = attrs.field(default=None, init=False)
    _failed: trio.Event = attrs.field(factory=trio.Event, init=False)
    _reason: str = attrs.field(default="", init=False)

    _place: StoreUrl = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._place = StoreUrl.parse(self.url)
        quiet = logging.getLogger("coredis")  # what failed is said here, once
        quiet.propagate, quiet.handlers = False, [logging.NullHandler()]

    def _new_client(self, connections: int) -> Any:
        secured: dict[str, Any] = {} if self._place.tls is None else {"ssl_context": self._place.tls}
        return coredis.Redis.from_url(
            self._place.url,
            password=self.password,
            retry_policy=NoRetryPolicy(),
            stream_timeout=ANSWER_TIME,
            connect_timeout=ANSWER_TIME,
            pool_timeout=ANSWER_TIME,
            max_connections=connections,
            verify_version=False,
            **secured,
        )

    async def _knock(self) -> None:
        """See that there is a server, before coredis does: that takes ten times the CPU to find out that there is none,
        which every node would do twice a second. Raises `StoreAway`."""
        if self._place.address is not None:
            answer = await knock(*self._place.address)
            if answer != "there":
                host, port = self._place.address
                raise StoreAway(f"connection to {host}:{port} refused" if answer == "refused" else "no answer")

    @property
    def is_there(self) -> bool:
        return self._client is not None

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Commands can be given in the block. When one fails, it is cancelled, and this raises `StoreAway`: what is
        left of the connections is closed with it, and nothing of it used again."""
        failed = self._failed = trio.Event()
        await self._knock()
        try:
            async with self._new_client(MAX_CONNECTIONS) as client, trio.open_nursery() as nursery:
                await client.ping()
                self._client = client

                async def stop() -> None:
                    await failed.wait()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(stop)
                try:
                    yield
                finally:
                    self._client = None
                nursery.cancel_scope.cancel()
        except _FAILURES as error:
            raise StoreAway(_why(error)) from None
        except BaseExceptionGroup as group:
            raise _away(group) from None
        finally:
            self._client = None
        if failed.is_set():
            raise StoreAway(self._reason)

    # Nodes.

    def _key(self, rest: str) -> str:
        return f"callboard:{{{self.cluster}}}:{rest}"

    @property
    def _channel(self) -> str:
        return self._key("news")

    async def announce(self, name: str, entry: str, message: str) -> Sequence[bytes]:
        keys = [self._key("nodes"), self._key(f"node:{name}")]
        arguments = [name, entry, int(DEAD_AFTER), self._channel, message, self._key("node:"), MAX_NODES]
        answer: list[bytes] = await self._do("eval", BEAT, keys, arguments)
        return answer

    async def leave(self, name: str, message: str) -> None:
        keys = [self._key("nodes"), self._key(f"node:{name}")]
        await self._do("eval", LEAVE, keys, [name, self._channel, message])

    async def publish(self, message: str) -> None:
        await self._do("publish", self._channel, message)

    # Sessions.

    @property
    def _milliseconds(self) -> int:
        return max(int(self.ttl * 1000), 1000)

    def _session(self, key: str) -> str:
        return self._key(f"session:{key}")

    async def write(self, values: Mapping[str, tuple[bytes | None, str] | None], others: Iterable[bytes]) -> None:
        named = [name.hex() for name in others]
        texts = ["" if value is None else _owner(value[0]) + value[1] for value in values.values()]
        arguments = [self._milliseconds, len(named), *named, *texts]
        await self._do("eval", WRITE, list(map(self._session, values)), arguments)

    async def touch(self, owners: Mapping[str, bytes]) -> list[str]:
        keys = list(owners)
        arguments = [self._milliseconds, *map(_owner, owners.values())]
        missing = await self._do("eval", TOUCH, list(map(self._session, keys)), arguments)
        return [keys[int(index) - 1] for index in missing]

    async def take(self, key: str, taker: bytes, view: View, *, is_sure: bool) -> Owned | NotListed | None:
        living = [name.hex() for name in view.own | view.others]
        dead = [NOBODY, *(name.hex() for name in view.gone)]
        arguments = [taker.hex(), self._milliseconds, int(is_sure), len(living), *living, *dead]
        answer = await self._do("eval", TAKE, [self._session(key)], arguments)
        if not answer:
            return None
        try:
            home = bytes.fromhex(answer[0].decode())
            record = answer[1].decode() if len(answer) > 1 else None
        except ValueError:
            return None  # which no node has written
        return NotListed(home) if record == "" else Owned(home, record)

    async def _do(self, name: str, *arguments: object) -> Any:
        client, failed = self._client, self._failed
        if client is None:
            raise StoreAway("not connected")
        try:
            return await getattr(client, name)(*arguments)
        except _FAILURES as error:
            self._reason = _why(error)
            failed.set()
            raise StoreAway(self._reason) from None
        except RuntimeError:
            if self._client is client:
                raise
            raise StoreAway("closed meanwhile") from None  # which coredis says so

    @asynccontextmanager
    async def subscribed(self) -> AsyncIterator[Callable[[], Awaitable[bytes]]]:
        """For the block, what is published: the next message each time. It must be read at once, for coredis does not
        bound what waits. Raises `StoreAway` when it ends."""
        await self._knock()
        try:
            async with (
                self._new_client(1) as client,
                client.pubsub(
                    channels=[self._channel], retry_policy=NoRetryPolicy(), subscription_timeout=ANSWER_TIME
                ) as subscription,
            ):
                yield partial(_receive, subscription)
        except (*_FAILURES, StoreAway) as error:
            raise StoreAway(_why(error)) from None
        except BaseExceptionGroup as group:
            raise _away(group) from None


def _owner(home: bytes | None) -> str:
    return NOBODY if home is None else home.hex()


async def _receive(subscription: Any) -> bytes:
    while True:
        with trio.fail_after(DEAF_AFTER):
            message = await subscription.get_message()
        data = None if message is None or message["type"] != "message" else message["data"]
        if isinstance(data, bytes) and len(data) <= MAX_PUBLISHED:
            return data


def _away(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The failure in a group of them; or what else is in it, such as a cancellation: coredis fails when it is
    cancelled, too."""
    _, others = group.split((*_FAILURES, StoreAway))
    return others if others is not None else StoreAway(_why(first_leaf(group)))


def _why(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:200]
