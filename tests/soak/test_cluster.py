"""Targets of clusters, in their long forms: with what was found, in a table at the end."""

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median

import pytest
import trio

from benchmarks.peers import environment
from tests.cluster.stage import (
    PATIENCE,
    Load,
    Redis,
    at,
    fleet_of,
    known,
    restored_after_kill,
    two_nodes,
    under_load,
    until,
)
from tests.cluster.test_balancers import haproxy, in_front, nginx, use
from tests.cluster.test_store import killed_often
from tests.conformance import suite
from tests.conformance.suite import ROOT
from tests.figures import LONG, figure
from tests.node import NPM
from tests.process import Process, started
from tests.served import free_port
from tests.workers.crowd import Crowd, CrowdSession

IDLE = 100
"""Legacy sessions of official clients."""

pytestmark = pytest.mark.skipif(not LONG, reason="the long form: make soak")


async def test_redis_killed_100_times(tmp_path: Path) -> None:
    slowest = await killed_often(tmp_path, 100)
    figure("target 13", f"slowest command {slowest:.2f} s, no connection left", "2 s, flat")


async def test_redis_down_for_5_s_and_stopped_for_30_s(tmp_path: Path) -> None:
    """Each fault between stretches without one: how far those differ is what the machine does."""
    async with two_nodes(tmp_path) as (fleet, one, other), under_load(one, other) as load:
        await trio.sleep(3)
        parents, back = (one.pid, other.pid), list[float]()
        for fault, seconds, rounds in ((kill_redis, 5, 5), (stop_redis, 30, 1)):
            quiet, faulty = await p99s_of(load, seconds), list[float]()
            used = 0.0
            for _ in range(rounds):
                async with fault(fleet.redis, other, back):
                    before = sum(map(cpu_of, parents))
                    faulty += await p99s_of(load, seconds)
                    used += sum(map(cpu_of, parents)) - before
                quiet += await p99s_of(load, seconds)
            usual, found = median(quiet), median(faulty)
            share = used / (seconds * rounds * len(parents))
            figure(
                f"target 12, {fault.__name__} for {seconds} s",
                f"{len(load.failed)} of {load.calls} calls failed; p99 {found:.1f} ms, {found / usual - 1:+.0%} of"
                f" {usual:.1f} without ({min(quiet):.1f} to {max(quiet):.1f} in stretches of 5 s); each parent uses"
                f" {share:.1%} of a core meanwhile",
                "0 failed, + 5 %",
            )
            assert found <= max(1.05 * usual, max(quiet))
            assert share < 0.02  # which is all that takes anything from workers
        figure("target 12, heard again", f"{max(back):.2f} s after Redis is up", "1 s")
        assert load.failed == []
        assert max(back) < 1
        assert b"node_lost" not in one.process.stderr + other.process.stderr


async def p99s_of(load: Load, seconds: int) -> list[float]:
    """Of the calls of each 5 s in so many, in milliseconds."""
    found = []
    for _ in range(seconds // 5):
        load.times.clear()
        await trio.sleep(5)
        found.append(1000 * load.percentile(0.99))
    return found


def cpu_of(pid: int) -> float:
    """Seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def kill_redis(redis: Redis, node: Crowd, back: list[float]) -> AsyncIterator[None]:
    heard = node.process.stderr.count(b"cluster_store_back")
    redis.kill()
    yield
    await redis.up()
    began = trio.current_time()
    await until(lambda: node.process.stderr.count(b"cluster_store_back") > heard)
    back.append(trio.current_time() - began)
    await trio.sleep(1)  # the nodes write all of their records again


@asynccontextmanager
async def stop_redis(redis: Redis, node: Crowd, back: list[float]) -> AsyncIterator[None]:
    heard = node.process.stderr.count(b"cluster_store_back")
    redis.signal(signal.SIGSTOP)
    yield
    redis.signal(signal.SIGCONT)
    began = trio.current_time()
    await until(lambda: node.process.stderr.count(b"cluster_store_back") > heard)
    back.append(trio.current_time() - began)
    await trio.sleep(1)


async def test_both_nodes_are_replaced_one_after_the_other(tmp_path: Path) -> None:
    """Each client goes on at any node that is there: as behind a balancer."""
    async with fleet_of(tmp_path) as fleet, fleet.node("--lame-duck", "1") as third:
        sessions: list[CrowdSession] = []
        for _ in range(2):
            async with fleet.node("--lame-duck", "1") as leaving:
                await known(third, 1)
                sessions = [await leaving.session() for _ in range(100)]
                async with under_load(third) as load:
                    leaving.process.signal(signal.SIGTERM)
                    answers = [(await at(third, session).answer_to("where")).status for session in sessions]
                    assert await leaving.process.wait() == 0
                    after = [(await at(third, session).answer_to("where")).status for session in sessions]
                assert load.failed == []
                figure(
                    "target 16", f"{after.count(200)} of 100 sessions go on, {answers.count(200)} while it ends", "99 %"
                )
                assert after.count(200) >= 99
                assert answers.count(200) >= 99


@pytest.mark.parametrize("make", [nginx, haproxy])
async def test_official_clients_while_both_nodes_are_replaced(
    make: Callable[[Path, int, Crowd, Crowd], list[str]], tmp_path: Path
) -> None:
    """Each node ends by SIGTERM, and another one begins at its address. The clients are not told."""
    flags = ("--allow-host", "*", "--lame-duck", "5", "--drain-time", "30")
    async with two_nodes(tmp_path, *flags) as (fleet, one, other):
        port = free_port()
        async with (
            in_front(make(tmp_path, port, one, other), port, one),
            official_clients(f"http://127.0.0.1:{port}/mcp", legacy=IDLE, modern=4) as clients,
            AsyncExitStack() as newer,  # nodes that end with the block
        ):
            said = [await clients.hear()]
            for number, leaving in enumerate((one, other), start=1):
                began = trio.current_time()
                leaving.process.signal(signal.SIGTERM)
                assert await leaving.process.wait() == 0
                figure(f"target 16, node {number} ended", f"after {trio.current_time() - began:.0f} s", "35 s")
                same = ("--http", f"127.0.0.1:{leaving.port}", "--admin", f"127.0.0.1:{leaving.admin}")
                await newer.enter_async_context(fleet.node(*flags, *same))
                await trio.sleep(5)  # until haproxy believes that it is there
                await clients.write(b"\n")
                said.append(await clients.hear())
        calls = sum(one["calls"] for one in said)
        failed = [error for one in said for error in one["failed"]]
        goes_on = min(one["idle"] for one in said)
        figure(
            f"target 16, {make.__name__}",
            f"official client: {len(failed)} of {calls} modern calls failed, {goes_on} of {IDLE} idle sessions go on",
            "0 failed, 99 %",
        )
        assert failed == []
        assert goes_on >= 0.99 * IDLE, said
        assert calls > 1000


@asynccontextmanager
async def official_clients(url: str, *, legacy: int, modern: int) -> AsyncIterator[Process]:
    program = await trio.to_thread.run_sync(environment, "mcp==2.3.0")
    command = (str(program), "-m", "tests.cluster.official_clients", url, str(legacy), str(modern))
    async with started(*command, patience=PATIENCE, cwd=ROOT) as process:
        yield process
        await process.hang_up()


async def test_10_000_calls_behind_each_balancer(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, "--allow-host", "*") as (_, one, other):
        for make in (nginx, haproxy):
            port = free_port()
            async with in_front(make(tmp_path, port, one, other), port, one) as balancer:
                await use(balancer, {*one.workers(), *other.workers()}, calls=1700, streams=100, rounds=1000)
    figure("target 14", "10,200 calls, 100 streams and 1,000 parked rounds behind each, 0 failed", "0 failed")


async def test_a_node_is_killed_5_times(tmp_path: Path) -> None:
    """Under load at the other one, which must not notice it."""
    last: list[float] = []
    async with fleet_of(tmp_path) as fleet, fleet.node() as other:
        for _ in range(5):
            async with fleet.node() as killed:
                await known(other, 1)
                sessions = [await killed.session() for _ in range(100)]
                for session in sessions[:10]:  # so that the link between the two is in use
                    assert await at(other, session).call("where") in killed.workers()
                await fleet.written(100)
                async with under_load(other) as load:
                    last.append(max(await restored_after_kill(killed, other, sessions)))
                assert load.failed == []
                for session in sessions:
                    await end_session(at(other, session))
    figure(
        "target 15, killed",
        f"100 of 100 sessions restored after {median(last):.2f} s ({min(last):.2f} to {max(last):.2f});"
        f" median of {len(last)} kills",
        "1 s",
    )
    assert median(last) < 1


async def end_session(session: CrowdSession) -> None:
    async with session.crowd.client() as client:
        head = b"DELETE /mcp HTTP/1.1\r\nhost: %b\r\nmcp-session-id: %b\r\n\r\n"
        await client.send(head % (client.host, session.id.encode()))
        assert (await client.answer()).status == 204


@pytest.mark.skipif(NPM is None, reason="npm is not installed")
@pytest.mark.parametrize("make", [nginx, haproxy])
async def test_the_official_suite_behind_a_balancer(
    make: Callable[[Path, int, Crowd, Crowd], list[str]], tmp_path: Path
) -> None:
    """The Host header must be the balancer's own: what the suite says of others is refused by the nodes."""
    port = free_port()
    names = (f"127.0.0.1:{port}", f"localhost:{port}", "localhost:8001")  # the last is what haproxy checks health by
    flags = [part for name in names for part in ("--allow-host", name)]
    app = ROOT / "examples" / "everything.py"
    async with (
        two_nodes(tmp_path, *flags, app=app) as (_, one, other),
        in_front(make(tmp_path, port, one, other), port, one),
    ):
        for revision in ("2025-11-25", "2026-07-28"):
            report = await trio.to_thread.run_sync(
                suite.run, f"http://127.0.0.1:{port}/mcp", (suite.SELECTIONS[revision],)
            )
            failed = [scenario.name for scenario in report.of("failed")]
            passed = len(report.of("passed"))
            figure(f"target 14, {make.__name__}, {revision}", f"{passed} scenarios passed, failed: {failed}", "none")
            assert report.good, failed
