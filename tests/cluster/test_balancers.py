"""Two nodes behind nginx, and behind haproxy, with the files of deploy/: no affinity, and no call fails."""

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from tests.cluster.stage import listen, program, two_nodes
from tests.served import free_port
from tests.workers.crowd import Crowd, CrowdSession

DEPLOY = Path(__file__).parents[2] / "deploy"
SESSIONS = 6
CALLS = 20
ROUNDS = 10
PARKED = 50
"""At once: all of these clients have one address, which may have 64 at each worker."""


def nginx(folder: Path, port: int, one: Crowd, other: Crowd) -> list[str]:
    text = (DEPLOY / "nginx.conf").read_text().replace("listen 8080;", f"listen 127.0.0.1:{port};")
    text = text.replace("worker_processes auto;", "worker_processes 1;")
    text = text.replace("http {", "http {\n    access_log off;" + "".join(_places(folder)), 1)
    (folder / "nginx.conf").write_text(_named(text, one, other))
    about = f"daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;"
    return [program("nginx"), "-p", str(folder), "-c", "nginx.conf", "-g", about]


def _places(folder: Path) -> list[str]:
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    return [f"\n    {kind}_temp_path {folder}/{kind};" for kind in kinds]


def haproxy(folder: Path, port: int, one: Crowd, other: Crowd) -> list[str]:
    text = (DEPLOY / "haproxy.cfg").read_text().replace("bind :8080", f"bind 127.0.0.1:{port}")
    text = text.replace("maxconn 50000", "maxconn 200").replace(" port 8001", "")
    for number, node in ((1, one), (2, other)):
        text = text.replace(f"node{number}.example:8000", f"node{number}.example:8000 port {node.admin}")
    (folder / "haproxy.cfg").write_text(_named(text, one, other))
    return [program("haproxy"), "-db", "-q", "-f", str(folder / "haproxy.cfg")]


def _named(text: str, one: Crowd, other: Crowd) -> str:
    for number, node in ((1, one), (2, other)):
        assert f"node{number}.example:8000" in text
        text = text.replace(f"node{number}.example:8000", f"127.0.0.1:{node.port}")
    return text


@asynccontextmanager
async def in_front(command: list[str], port: int, node: Crowd) -> AsyncIterator[Crowd]:
    """A balancer, for the block."""
    balancer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # noqa: ASYNC220  # it forks at once
    try:
        with trio.fail_after(10):
            while True:
                assert balancer.poll() is None, balancer.stderr and balancer.stderr.read()
                try:
                    stream = await trio.open_tcp_stream("127.0.0.1", port)
                except OSError:
                    await trio.sleep(0.05)
                else:
                    await stream.aclose()
                    break
        yield Crowd(node.process, port, node.admin, 0)
    finally:
        balancer.kill()
        balancer.communicate()


async def test_any_request_may_reach_any_node(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, "--allow-host", "*") as (_, one, other):
        for make in (nginx, haproxy):
            port = free_port()
            async with in_front(make(tmp_path, port, one, other), port, one) as balancer:
                await use(balancer, {*one.workers(), *other.workers()})


async def use(
    balancer: Crowd, workers: set[int], calls: int = CALLS, streams: int = ROUNDS, rounds: int = ROUNDS
) -> None:
    """Calls of each session, and rounds that are answered elsewhere, while so many streams are open. Raises
    `AssertionError` if one fails."""
    sessions = []
    for _ in range(SESSIONS):
        sessions.append(await balancer.session())
        await balancer.call("where")  # so that not every session begins at the same node, in turn
    homes = {session.id: await session.call("where") for session in sessions}
    assert set(homes.values()) == workers
    opened = [await listen(balancer) for _ in range(streams)]
    async with trio.open_nursery() as nursery:
        for session in sessions:
            nursery.start_soon(_call, session, homes[session.id], calls)
        nursery.start_soon(_answer_rounds, balancer, workers, rounds)
    await balancer.call("tell")
    for stream in opened:
        assert (await stream.message())["method"] == "notifications/tools/list_changed"
        await stream.client.aclose()


async def _call(session: CrowdSession, home: int, calls: int) -> None:
    for _ in range(calls):
        assert await session.call("where") == home


async def _answer_rounds(balancer: Crowd, workers: set[int], rounds: int) -> None:
    """Have calls ask, and answer each after others were asked: its answer may come by any node."""
    asked_at, answered = set(), 0
    while answered < rounds:
        parked = [
            await balancer.modern("tools/call", name="ask", arguments={}) for _ in range(min(PARKED, rounds - answered))
        ]
        for asked in parked:
            pid, name = await balancer.answer_ask(asked)
            assert name == "Ada"
            asked_at.add(pid)
        answered += len(parked)
    assert asked_at == workers
