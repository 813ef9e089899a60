"""Nodes without workers, in one process: what they hear of each other through a real Redis, and what of its faults."""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from callboard import tree
from callboard.cluster import directory
from callboard.cluster.directory import NodeWorker
from callboard.cluster.news import ALL
from callboard.cluster.node import ClusterNode, TryLater, join_cluster
from callboard.cluster.redis import RedisStore
from callboard.codecs.home import new_worker_name
from callboard.codecs.seal import KeyRing
from callboard.supervisor import open_tree
from callboard.workers.book import Book, Found
from callboard.workers.messages import Told
from tests.cluster.stage import Redis, redis_at, until
from tests.served import free_port

RING = KeyRing.generate()
TTL = 60.0


@attrs.define(eq=False)
class Parent:
    """The parent, as a node needs it."""

    told: list[Told] = attrs.field(factory=list)
    changes: int = 0

    def nodes_changed(self) -> None:
        self.changes += 1

    def node_told(self, told: Told) -> None:
        self.told.append(told)


@attrs.define(eq=False)
class Member:
    """A node with one worker, which listens at a port or does not."""

    node: ClusterNode
    parent: Parent
    book: Book
    worker: bytes
    scope: trio.CancelScope

    def keep(self, key: str, record: bytes = b"record") -> None:
        self.book.keep(key, record, self.worker)
        self.node.records.changed(key)

    def knows(self, other: "Member") -> bool:
        return other.node.name in {entry.name for entry in self.node.nodes()}

    @property
    def is_written(self) -> bool:
        return self.node.records.is_written and not self.node.records.unwritten

    async def take(self, key: str) -> Found | TryLater | None:
        """As the parent does it."""
        send, receive = trio.open_memory_channel[Found | TryLater | None](1)
        self.node.take_soon(key, self.worker, send.send_nowait)
        return await receive.receive()


@asynccontextmanager
async def member(redis: Redis, port: int | None = None, ring: KeyRing = RING) -> AsyncIterator[Member]:
    book, parent, worker = Book(TTL), Parent(), new_worker_name()
    store = RedisStore(redis.url, "test", TTL)
    node = ClusterNode(store, store, "127.0.0.1", book, TTL, lambda: ring, parent)
    node.announce([NodeWorker(worker, 1, 1, free_port() if port is None else port)], is_leaving=False)
    with trio.CancelScope() as scope:
        async with open_tree(tree.node()) as root:
            await join_cluster(root, node)
            yield Member(node, parent, book, worker, scope)


@asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[tuple[Redis, Member, Member]]:
    with redis_at(folder) as redis, trio.fail_after(25):
        await redis.up()
        (listening,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listening.socket.getsockname()[1]
        async with listening, member(redis, port) as one, member(redis, port) as other:
            await until(lambda: one.knows(other) and other.knows(one) and one.is_written and other.is_written)
            yield redis, one, other


async def test_nodes_know_each_other_within_a_second_and_hear_of_the_end_at_once(tmp_path: Path) -> None:
    async with pair(tmp_path) as (redis, one, other):
        assert [peer.name for peer in one.node.peers()] == [other.worker]
        newer = NodeWorker(new_worker_name(), 2, 2, 4000, hangs=True, is_leaving=True)
        other.node.announce([newer], is_leaving=True)
        await until(
            lambda: [peer.name for peer in one.node.peers()] == [newer.name], 2.5
        )  # sooner than it is read anyway
        (peer,) = one.node.peers()
        assert (peer.hangs, peer.is_leaving, peer.address) == (True, True, ("127.0.0.1", 4000))
        await other.node.leave()
        await until(lambda: not one.knows(other), 2.5)
        assert len(await redis.ask("KEYS", "*node:*")) == 1


async def test_news_reach_other_nodes_once_and_never_oneself(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_, one, other):
        for _ in range(3):
            one.node.tell(Told(["tools"], ["a://b"]))
        await until(lambda: other.parent.told, 5)
        assert other.parent.told == [Told(["tools"], ["a://b"])]
        assert one.parent.told == []


async def test_a_redis_that_is_killed_costs_no_node_and_what_was_missed_is_told_as_everything(tmp_path: Path) -> None:
    async with pair(tmp_path) as (redis, one, other):
        one.keep("k")
        await until(lambda: one.is_written)
        redis.kill()
        await until(lambda: not one.node.store.is_there and other.node.is_deaf)
        assert one.knows(other)
        began = trio.current_time()
        await redis.up()
        await until(lambda: one.is_written and ALL in other.parent.told, 5)
        assert trio.current_time() - began < 3
        assert one.knows(other)
        assert other.knows(one)
        # Its memory was empty: what this node's workers have is written again.
        assert await redis.ask("EXISTS", "callboard:{test}:session:k") == 1


async def test_silence_while_redis_is_away_makes_no_node_dead_and_silence_afterwards_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "DEAD_AFTER", 1.0)
    monkeypatch.setattr("callboard.cluster.node.HEARTBEAT", 0.2)
    async with pair(tmp_path) as (redis, one, other):
        redis.kill()
        await trio.sleep(1.5)
        assert one.knows(other)
        await redis.up()
        await until(lambda: one.is_written and other.is_written)
        changes = one.parent.changes
        await trio.sleep(1.2)
        assert one.knows(other)
        assert other.knows(one)
        assert one.parent.changes == changes
        other.scope.cancel()  # without a word
        await until(lambda: not one.knows(other), 3)


async def test_a_session_of_a_node_that_was_killed_is_taken_at_once(tmp_path: Path) -> None:
    with redis_at(tmp_path) as redis, trio.fail_after(25):
        await redis.up()
        async with member(redis) as other, member(redis) as one:  # at ports where no one listens
            await until(lambda: one.knows(other) and other.knows(one))
            for key in ("k", "l"):
                one.keep(key)
            await until(lambda: one.is_written and other.is_written)
            one.scope.cancel()  # without a word
            with trio.CancelScope(shield=True):
                began = trio.current_time()
                found: dict[str, object] = {}

                async def take(key: str) -> None:
                    found[key] = await other.take(key)

                async with trio.open_nursery() as nursery:
                    for key in ("k", "l"):
                        nursery.start_soon(take, key)
                assert found == dict.fromkeys(("k", "l"), Found(other.worker, b"record"))
                assert trio.current_time() - began < 1
                assert other.node.peers() == []
                assert other.parent.changes


async def test_a_session_of_a_worker_that_is_announced_again_is_not_taken_though_connections_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with redis_at(tmp_path) as redis, trio.fail_after(25):
        await redis.up()
        async with member(redis) as one, member(redis) as other:  # at ports where no one listens
            await until(lambda: one.knows(other) and other.knows(one))
            one.keep("k")
            await until(lambda: one.is_written and other.is_written)
            assert await other.take("k") == Found(one.worker)
            assert [(peer.name, peer.hangs) for peer in other.node.peers()] == [(one.worker, True)]
            # One that was too late to say so is believed again when it does.
            monkeypatch.setattr(ClusterNode, "_is_announced_again", _never)
            other.node._answers.clear()
            assert await other.take("k") == Found(other.worker, b"record")
            assert other.node.peers() == []
            await other.node.refresh()
            await one.node.refresh()
            await other.node.refresh()
            assert [(peer.name, peer.hangs) for peer in other.node.peers()] == [(one.worker, False)]


async def _never(self: ClusterNode, name: bytes, beat: int) -> bool:
    return False


async def test_a_session_of_a_living_worker_is_not_taken(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_, one, other):
        one.keep("k")
        assert await one.take("none") is None
        await until(lambda: one.is_written)
        assert await other.take("k") == Found(one.worker)
        # A worker that others have not heard of yet is announced before it gets a session.
        late = new_worker_name()
        one.node.worker_ended(one.worker, [])
        one.node.announce([NodeWorker(late, 2, 1, one.node._workers[0].port)], is_leaving=False)
        one.worker = late
        assert await one.take("k") == Found(late, b"record")
        assert await other.take("k") == Found(late)
        other.node.roll.remove(one.node.name)  # as if it had not heard
        assert await other.take("k") == Found(late)


async def test_while_redis_is_away_only_what_was_lost_meanwhile_is_opened_again(tmp_path: Path) -> None:
    async with pair(tmp_path) as (redis, one, other):
        one.keep("before")
        one.keep("meanwhile")
        await until(lambda: one.is_written)
        one.book.release("before", one.worker, trio.current_time())
        redis.kill()
        await until(lambda: one.node.away_since is not None)  # the store says so a moment before
        one.book.release("meanwhile", one.worker, trio.current_time())
        assert isinstance(await one.take("before"), TryLater)  # another node may have it
        assert isinstance(await one.take("none"), TryLater)
        assert isinstance(await other.take("meanwhile"), TryLater)
        assert await one.take("meanwhile") == Found(one.worker, b"record")
        await redis.up()
        await until(lambda: one.is_written and other.is_written)
        assert await other.take("meanwhile") == Found(one.worker)


async def test_a_redis_that_hangs_is_waited_for_no_longer_than_a_second(tmp_path: Path) -> None:
    async with pair(tmp_path) as (redis, one, other):
        redis.signal(signal.SIGSTOP)
        one.node.announce([], is_leaving=False)
        began = trio.current_time()
        assert isinstance(await one.take("k"), TryLater)
        assert trio.current_time() - began < 2
        await until(lambda: not one.node.store.is_there, 5)
        redis.signal(signal.SIGCONT)
        await until(lambda: one.node.store.is_there and other.knows(one), 5)


async def test_nodes_with_other_keys_are_not_believed(tmp_path: Path) -> None:
    with redis_at(tmp_path) as redis, trio.fail_after(25):
        await redis.up()
        async with member(redis) as one, member(redis, ring=KeyRing.generate()) as foreign:
            one.keep("k")
            await until(lambda: one.is_written and foreign.is_written)
            foreign.node.tell(Told(["tools"]))
            await redis.ask("SADD", "callboard:{test}:nodes", "x")
            await redis.ask("SET", "callboard:{test}:node:x", '{"name":"x","host":"127.0.0.1","beat":9}')
            await redis.ask("PUBLISH", "callboard:{test}:news", '{"node":"x","kind":"told","everything":true}')
            await foreign.node.refresh()
            await one.node.refresh()
            assert one.node.nodes() == foreign.node.nodes() == []
            assert one.parent.told == []
            one.book.release("k", one.worker, trio.current_time())
            one.node.records.changed("k")
            await until(lambda: one.is_written)
            assert await foreign.take("k") is None


@pytest.mark.parametrize("forged", ["", "x", "0" * 16, "0" * 16 + "x", "zz" * 20, "0" * 16 + "\u20ac"])
async def test_a_record_that_no_node_has_written_is_no_session(forged: str, tmp_path: Path) -> None:
    with redis_at(tmp_path) as redis, trio.fail_after(25):
        await redis.up()
        async with member(redis) as one:
            await until(lambda: one.is_written)
            await redis.ask("SET", "callboard:{test}:session:k", forged)
            assert await one.take("k") is None
