"""What coredis does on Trio that would harm us, and that our use of it does not let it: against a real Redis."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from callboard.cluster.redis import RedisStore
from callboard.cluster.store import NotListed, Owned, StoreAway, View
from tests.certificate import Authority
from tests.cluster.stage import Redis, redis_at
from tests.served import free_port

ONE, TWO, THREE = (bytes([number]) * 8 for number in (1, 2, 3))
TTL = 60.0


def view(*others: bytes, own: bytes = ONE, gone: frozenset[bytes] = frozenset()) -> View:
    return View(frozenset({own}), frozenset(others), gone)


def store_of(redis: Redis) -> RedisStore:
    return RedisStore(redis.url, "test", TTL)


def away() -> "pytest.RaisesExc[StoreAway]":
    """For a block in which Redis does not answer."""
    return pytest.raises(StoreAway)


async def test_one_of_two_takers_gets_a_session_and_a_living_owner_keeps_it(tmp_path: Path) -> None:
    with redis_at(tmp_path) as redis:
        await redis.up()
        store = store_of(redis)
        async with store.connected():
            await store.write({"k": (TWO, "record")}, ())
            assert await store.take("none", ONE, view(), is_sure=True) is None
            assert await store.take("k", ONE, view(TWO), is_sure=True) == Owned(TWO)
            assert await store.take("k", ONE, view(), is_sure=False) == NotListed(TWO)
            assert await store.take("k", ONE, view(gone=frozenset({TWO})), is_sure=False) == Owned(ONE, "record")
            # Another node does not know yet that the first one was faster: it is told.
            assert await store.take("k", THREE, view(ONE, own=THREE), is_sure=True) == Owned(ONE)
            assert await store.take("k", ONE, view(), is_sure=False) == Owned(ONE, "record")
            # One that is released is free for all.
            await store.write({"k": (None, "newer")}, ())
            assert await store.take("k", THREE, view(ONE, own=THREE), is_sure=False) == Owned(THREE, "newer")
            # What a living worker of another node has is not overwritten, and not removed.
            await store.write({"k": (ONE, "late")}, [THREE])
            await store.write({"k": None}, [THREE])
            assert await store.take("k", ONE, view(THREE), is_sure=True) == Owned(THREE)
            assert await store.touch({"k": THREE, "none": ONE}) == ["none"]
            await store.write({"k": None}, ())
            assert await store.take("k", ONE, view(), is_sure=True) is None


async def test_records_and_nodes_do_not_stay_for_ever(tmp_path: Path) -> None:
    with redis_at(tmp_path) as redis:
        await redis.up()
        store = store_of(redis)
        async with store.connected():
            await store.write({"k": (ONE, "record")}, ())
            assert await store.announce("a", "entry a", "hello") == [b"entry a"]
            assert set(await store.announce("b", "entry b", "hello")) == {b"entry a", b"entry b"}
            for key in await redis.ask("KEYS", "*"):
                if not key.endswith(b":nodes"):
                    assert 0 < await redis.ask("PTTL", key.decode()) <= TTL * 1000
            await redis.ask("DEL", "callboard:{test}:node:a")  # as if it had been silent
            assert await store.announce("b", "entry b", "hello") == [b"entry b"]
            assert await redis.ask("SMEMBERS", "callboard:{test}:nodes") == [b"b"]
            await store.leave("b", "gone")
            assert await redis.ask("KEYS", "*node*") == []


async def test_a_password_is_sent_and_a_wrong_one_is_no_connection(tmp_path: Path) -> None:
    with redis_at(tmp_path) as redis:
        await redis.up()
        await redis.ask("CONFIG", "SET", "requirepass", "s3cret")
        async with RedisStore(redis.url, "test", TTL, "s3cret").connected():
            pass
        for password in (None, "wrong"):
            store = RedisStore(redis.url, "test", TTL, password)
            with away() as refused:
                async with store.connected():
                    pytest.fail("it was let in")
            assert "wrong" not in f"{refused.value} {store}".replace("WRONGPASS", "")


async def test_tls_is_for_a_server_of_that_name_and_may_show_a_certificate_of_the_node(tmp_path: Path) -> None:
    authority, other = Authority.create(tmp_path), Authority.create(tmp_path, "other")
    certificate, key = authority.sign(tmp_path, "127.0.0.1")
    port = free_port()
    files = ("--tls-cert-file", str(certificate), "--tls-key-file", str(key), "--tls-ca-cert-file", str(authority.file))
    with redis_at(tmp_path, "--tls-port", str(port), *files) as redis:  # which asks clients for certificates, too
        await redis.up()
        own = f"ssl_certfile={certificate}&ssl_keyfile={key}"
        for scheme in ("rediss", "valkeys"):
            url = f"{scheme}://127.0.0.1:{port}?ssl_ca_certs={authority.file}&{own}"
            store = RedisStore(url, "test", TTL)
            async with store.subscribed() as receive, store.connected():
                await store.publish("hello")
                assert await receive() == b"hello"
        for wrong in (
            f"rediss://127.0.0.1:{port}?ssl_ca_certs={other.file}&{own}",  # not the server's CA
            f"rediss://localhost:{port}?ssl_ca_certs={authority.file}&{own}",  # not the name in its certificate
            f"rediss://127.0.0.1:{port}?ssl_ca_certs={authority.file}",  # no certificate of its own
            f"rediss://127.0.0.1:{redis.port}?ssl_ca_certs={authority.file}&{own}",  # a port without TLS
        ):
            with away(), trio.fail_after(5):
                async with RedisStore(wrong, "test", TTL).connected():
                    pytest.fail("it was let in")


# Fault 1: a subscriber that was cut off would stay deaf for ever.


async def test_a_subscriber_ends_when_redis_does_and_another_one_hears(tmp_path: Path) -> None:
    with redis_at(tmp_path) as redis:
        await redis.up()
        store, ended, ready = store_of(redis), trio.Event(), trio.Event()

        async def listen() -> None:
            with away():
                async with store.subscribed() as receive:
                    ready.set()
                    while True:
                        await receive()
            ended.set()

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(listen)
                await ready.wait()
                redis.kill()
                await ended.wait()
            with away():
                async with store.subscribed():
                    pytest.fail("there is no Redis")
            await redis.up()
            async with store.subscribed() as receive, store.connected():
                await store.publish("hello")
                assert await receive() == b"hello"


# Fault 2: a connection that is lost or cancelled in the middle of a command is not given back.


async def test_no_command_hangs_and_no_connection_leaks_when_redis_is_killed_often(tmp_path: Path) -> None:
    """Ten times here, 100 times in tests/soak."""
    await killed_often(tmp_path, 10)


async def killed_often(folder: Path, times: int) -> float:
    with redis_at(folder) as redis:
        await redis.up()
        store = store_of(redis)
        slowest = 0.0

        async def work() -> None:
            nonlocal slowest
            while True:
                began = trio.current_time()
                try:
                    await store.announce("a", "entry", "hello")
                except StoreAway:
                    await trio.sleep(0.001)
                slowest = max(slowest, trio.current_time() - began)

        async def cancel_often() -> None:
            while True:
                with trio.move_on_after(0.003):
                    await work()

        async def connect() -> None:
            while True:
                try:
                    async with store.connected():
                        await trio.sleep_forever()
                except StoreAway:
                    await trio.sleep(0.02)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(connect)
            for job in (work, work, cancel_often):
                nursery.start_soon(job)
            for _ in range(times):
                await trio.sleep(0.1)
                redis.kill()
                await redis.up()
            await trio.sleep(0.3)
            nursery.cancel_scope.cancel()
        assert slowest < 2.0
        async with store.connected():
            with trio.fail_after(2):
                for _ in range(20):
                    await store.announce("a", "entry", "hello")
        await trio.sleep(0.1)
        clients = (await redis.ask("CLIENT", "LIST")).decode()
        assert clients.count("\n") <= 2, clients  # the one that asks
        return slowest


# Fault 3: a command that timed out would be sent again.


async def test_a_command_that_timed_out_is_not_sent_again(tmp_path: Path) -> None:
    with redis_at(tmp_path) as redis:
        await redis.up()
        store = store_of(redis)
        with away():
            async with store.connected():
                await store.announce("a", "entry", "hello")
                redis.signal(signal.SIGSTOP)
                began = trio.current_time()
                with pytest.raises(StoreAway):
                    await store.announce("a", "entry", "hello")
                assert trio.current_time() - began < 2.5  # one time limit, and not three
        redis.signal(signal.SIGCONT)
        with trio.fail_after(5):
            stats = ""
            while "cmdstat_eval:calls=" not in stats:
                stats = (await redis.ask("INFO", "commandstats")).decode()
        assert "cmdstat_eval:calls=2," in stats


# Fault 4: what a subscriber does not read is kept without bound.


async def test_a_flood_of_messages_is_read_and_not_kept(tmp_path: Path) -> None:
    count = 20_000
    with redis_at(tmp_path) as redis:
        await redis.up()
        store = store_of(redis)
        with trio.fail_after(20):
            async with store.subscribed() as receive:
                flood = (
                    f"for i = 1, {count} do redis.call('PUBLISH', 'callboard:{{test}}:news', string.rep('x', 1000)) end"
                )
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(redis.ask, "EVAL", flood, "0")
                    for _ in range(count):
                        assert len(await receive()) == 1000


def test_only_a_parent_in_a_cluster_imports_coredis() -> None:
    told = subprocess.run(
        [sys.executable, "-c", "import sys, callboard.serve.run; print('coredis' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "False\n"
