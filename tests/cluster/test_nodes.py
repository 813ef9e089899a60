"""Two nodes and one Redis, as their operator starts them: real processes, real signals, real certificates."""

import base64
import os
import re
import signal
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from callboard.errors import BACKEND_GONE
from tests.certificate import Authority
from tests.cluster.stage import (
    KEY,
    PASSWORD,
    Fleet,
    at,
    fleet_of,
    known,
    listen,
    restored_after_kill,
    together,
    two_nodes,
    under_load,
    until,
)
from tests.figures import BUSY, figure
from tests.transports.server.http.stage import Gone
from tests.workers.crowd import Crowd, CrowdSession, said


async def test_what_a_client_holds_is_good_at_any_node(tmp_path: Path) -> None:
    async with (
        two_nodes(tmp_path, "--access-log", "--debug") as (fleet, one, other),
        fleet.redis.overheard() as published,
    ):
        session = await one.session()
        home = await session.call("where")
        assert home in one.workers()
        assert await at(other, session).call("where") == home
        # A call that was asked for input at one node is answered at the other.
        asked = await one.modern("tools/call", name="ask", arguments={})
        (key,) = asked.result["inputRequests"]
        answer = await other.modern(
            "tools/call",
            name="ask",
            arguments={},
            inputResponses={key: {"action": "accept", "content": {"name": "Ada"}}},
            requestState=asked.result["requestState"],
        )
        assert answer.result["content"][0]["text"] == f"{home} Ada"
        # News of one node reach those who listen at the other.
        stream = await listen(other)
        await one.call("tell")
        assert (await stream.message())["method"] == "notifications/tools/list_changed"
        await stream.client.aclose()
        await _each_sees_both(one, other)
        await _no_secret_is_seen(fleet, (one, other), session, bytes(published))
        # What is deleted at one is gone at both.
        for node, status in ((other, 204), (one, 404), (other, 404)):
            async with node.client() as client:
                await client.send(
                    b"DELETE /mcp HTTP/1.1\r\nhost: %b\r\nmcp-session-id: %b\r\n\r\n"
                    % (client.host, session.id.encode())
                )
                assert (await client.answer()).status == status
        await _refused_without_certificate(fleet, one)


async def _each_sees_both(one: Crowd, other: Crowd) -> None:
    """An operator of either node sees both, and some figures of each."""
    for node in (one, other):
        while True:
            nodes = (await node.look()).json["server"]["nodes"]
            # Figures of the other node are some seconds old: the session may be younger.
            if len(nodes) == 2 and sum(row.get("sessions", 0) for row in nodes) == 1:
                break
            await trio.sleep(0.2)
        assert [row["is_here"] for row in nodes] == [True, False]


async def _no_secret_is_seen(fleet: Fleet, nodes: tuple[Crowd, ...], session: CrowdSession, published: bytes) -> None:
    """Not in the store or what is published there, not by `ps`, not in the log: SCALE's target 27."""
    await fleet.written(1)
    assert b":news " in published
    seen = published + await fleet.redis.dump()
    assert b"session:" in seen
    assert b"node:" in seen
    assert b"clientInfo" not in seen
    for node in nodes:
        seen += node.process.stderr
        for pid in (node.pid, *node.workers()):
            seen += _shown(pid)
        assert b"method=" in node.process.stderr
    secrets = (KEY, KEY.hex().encode(), PASSWORD.encode(), session.id.encode())
    for secret in (*secrets, *map(base64.b64encode, secrets), *map(base64.urlsafe_b64encode, secrets)):
        assert secret not in seen


async def _refused_without_certificate(fleet: Fleet, node: Crowd) -> None:
    """The door between nodes answers no one who has no certificate of the CA."""
    addresses = {address for pid in node.workers() for address in _listening(pid) if address[0] != "127.0.0.1"}
    ((host, port),) = addresses
    bare = ssl.create_default_context(cafile=fleet.authority.file)
    wrong = ssl.create_default_context(cafile=fleet.authority.file)
    wrong.load_cert_chain(*Authority.create(fleet.folder, "other").sign(fleet.folder / "", "127.0.0.9"))
    for context in (bare, wrong):
        assert _answer_at(host, port, context) == b""
    own = ssl.create_default_context(cafile=fleet.authority.file)
    own.load_cert_chain(*fleet.authority.sign(fleet.folder, "127.0.0.9"))
    assert b"only for workers" in _answer_at(host, port, own)


def _answer_at(host: str, port: int, context: ssl.SSLContext) -> bytes:
    """The answer to a request; nothing, if the connection was refused or ended instead."""
    with (
        suppress(OSError),
        socket.create_connection((host, port)) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        secured.sendall(b"GET / HTTP/1.1\r\nhost: worker\r\n\r\n")
        return secured.recv(1000)
    return b""


def _shown(pid: int) -> bytes:
    """What `ps` can show of a process."""
    return Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()


def _listening(pid: int) -> list[tuple[str, int]]:
    """TCP addresses at which a process listens."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        found = re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink()))
        inodes |= {found[1]} if found else set()
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [
        (socket.inet_ntoa(bytes.fromhex(host)[::-1]), int(port, 16))
        for line in lines
        if line[3] == "0A" and line[9] in inodes
        for host, _, port in [line[1].partition(":")]
    ]


async def test_sessions_go_on_when_their_node_is_killed_and_redis_away_costs_no_call(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (fleet, one, other):
        sessions = [await one.session() for _ in range(5)]
        homes = [await session.call("where") for session in sessions]
        stream = await listen(other)
        async with under_load(one, other) as load:
            await trio.sleep(0.3)
            fleet.redis.kill()
            await trio.sleep(2)
            await fleet.redis.up()
            await until(lambda: other.process.stderr.count(b"cluster_store_back"), 5)
            await trio.sleep(0.3)
        assert load.failed == []
        assert load.calls > 100
        assert not other.process.stderr.count(b"node_lost")
        # What was told meanwhile is not known: so all who listen are told that everything may have changed, once.
        with trio.fail_after(5):
            assert (await stream.message())["method"] == "notifications/tools/list_changed"
        with trio.move_on_after(0.3):
            pytest.fail(f"and then {await stream.message()}")
        await stream.client.aclose()
        await fleet.written(9)
        taken = await restored_after_kill(one, other, sessions)
        for session, home in zip(sessions, homes, strict=True):
            assert await at(other, session).call("where") in set(other.workers()) - {home}
        figure("target 15", f"sessions of a killed node go on after {max(taken):.2f} s", "1 s")
        assert max(taken) < 1 * BUSY


async def test_a_node_that_ends_hands_its_sessions_over_and_says_so_before(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, "--lame-duck", "1") as (_, one, other):
        sessions = [await one.session() for _ in range(5)]
        states: list[bool] = []
        busy, homes = await one.session(), one.workers()
        assert await one.ready()
        async with under_load(other) as load, trio.open_nursery() as nursery:

            async def finish() -> None:
                """What was begun before is answered by the one that ends."""
                assert await at(other, busy).call("wait", seconds=2) in homes

            async def call_all() -> None:
                for session in sessions * 8:
                    answer = await at(other, session).answer_to("where")
                    states.append(answer.status == 200)
                    await trio.sleep(0.01)

            nursery.start_soon(finish)
            await trio.sleep(0.2)
            one.process.signal(signal.SIGTERM)
            nursery.start_soon(call_all)
            await one.process.wait_said(b"leaving")
            assert not await one.ready()
            await one.call("where")  # its doors are open still
            await _refuses(one)  # before it ends: what waited for that would be reset
            assert one.process.process.returncode is None
            assert await one.process.wait() == 0
        assert load.failed == []
        assert states.count(False) == 0
        assert {await at(other, session).call("where") for session in sessions} == set(other.workers())
        assert b"node_left" in other.process.stderr


async def _refuses(node: Crowd) -> None:
    """Wait until it does. A connection that nobody accepts any more would be left without an answer."""
    with trio.fail_after(10), suppress(ConnectionRefusedError, ConnectionResetError, Gone):
        while True:
            await node.call("where")


async def test_connections_that_wait_when_a_node_ends_are_answered(tmp_path: Path) -> None:
    async with fleet_of(tmp_path) as fleet, fleet.node() as node:
        (worker,) = node.workers()
        os.kill(worker, signal.SIGSTOP)
        clients = [await node.connect() for _ in range(20)]
        for client in clients:
            await client.send(client.modern("tools/call", name="where", arguments={}))
        node.process.signal(signal.SIGTERM)
        await _refuses_health(node)
        os.kill(worker, signal.SIGCONT)
        for client in clients:
            assert said(await client.answer()) == worker
            await client.aclose()
        assert await node.process.wait() == 0


async def _refuses_health(node: Crowd) -> None:
    """Wait until it is not ready: then its workers have been told, too."""
    with trio.fail_after(10):
        while await node.ready():  # noqa: ASYNC110
            await trio.sleep(0.02)


async def test_a_node_that_the_others_do_not_believe_serves_alone(tmp_path: Path) -> None:
    async with fleet_of(tmp_path) as fleet:
        other = Authority.create(tmp_path, "other")
        async with together(fleet.node(), fleet.node(authority=other)) as (one, stranger):
            await known(stranger, 1)
            assert await stranger.call("where") in stranger.workers()
            session = await one.session()
            answer = await at(stranger, session).answer_to("where")
            assert answer.status == 503 or answer.code == BACKEND_GONE
            assert await session.call("where") in one.workers()
