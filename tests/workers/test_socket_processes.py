"""WebSockets of a server in several processes: each connection may reach any of them."""

import os
import signal
from collections import Counter
from contextlib import suppress

import pytest
import trio

from callboard.testing import Peer
from tests.server.test_one_handler_every_revision import text
from tests.transports.server.websocket.stage import Gone, Refused, socket_of
from tests.workers.crowd import Crowd, crowd, wait_until
from tests.workers.sockets import Returning, come_back, local_port, socket_peer

CALLS = 60


@pytest.mark.parametrize("is_modern", [False, True])
async def test_a_session_whose_socket_drops_again_and_again_loses_nothing_and_hears_nothing_twice(
    is_modern: bool,
) -> None:
    begun = 0 if is_modern else 1  # answers before the first call
    async with crowd() as many:
        client, edges = Returning(many.ws, is_modern), Counter[int]()
        await client.connect()
        called, drops = 0, 0
        while sum("result" in one for one in client.heard) < CALLS + begun:
            edges[many.edge_of(local_port(client.socket))] += 1
            for _ in range(min(5, CALLS - called)):
                called += 1
                await client.call(called, name="tick", arguments={"number": called})
            for _ in range(9 if called < CALLS else 3 * CALLS):
                if sum("result" in one for one in client.heard) == CALLS + begun:
                    break
                await client.hear()
            client.socket.close()
            drops += 1
            await client.connect()
        client.socket.close()
        answers = [one for one in client.heard if "result" in one][begun:]
        assert Counter(one["id"] for one in answers) == dict.fromkeys(range(1, CALLS + 1), 1)
        logs = Counter(tuple(one["params"]["data"]) for one in client.heard if "params" in one)
        assert logs == {(number, step): 1 for number in range(1, CALLS + 1) for step in range(2)}
        runs: list[list[int]] = [one["result"]["structuredContent"]["result"] for one in answers]
        longest = max(runs, key=lambda run: len(run))
        assert sorted(longest) == list(range(1, CALLS + 1))  # each was run once, all of them by one worker
        assert drops >= 10
        assert set(edges) == set(many.workers())  # so one of the two was not its home


async def _tunnelled(many: Crowd, client: Peer) -> int:
    """Come back until it is by way of another worker than the home. Returns the home."""
    home = int(text(await client.call("where")))
    while many.edge_of(local_port(socket_of(client))) == home:
        await come_back(client, many.ws, 2)
    return home


async def test_with_its_home_a_session_ends_and_the_client_begins_a_new_one() -> None:
    async with crowd() as many, socket_peer(many.ws) as client:
        home = await _tunnelled(many, client)
        waiting = await client.begin("tools/call", name="wait", arguments={"seconds": 30})
        os.kill(home, signal.SIGKILL)
        with trio.fail_after(2), pytest.raises(Gone):
            await client.finish(waiting)
        statuses = []
        for _ in range(10):  # at once, and when others serve in its place
            with pytest.raises(Refused) as refused:
                await come_back(client, many.ws, 2)
            statuses.append(refused.value.status)
            await trio.sleep(0.1)
        assert set(statuses) <= {503, 404}  # the end may come while it is being reached
        assert statuses[-1] == 404
        async with socket_peer(many.ws) as anew:
            assert int(text(await anew.call("where"))) != home


async def test_a_session_of_the_older_generation_is_sent_away_though_another_worker_carries_it() -> None:
    async with crowd("--linger", "60") as many, socket_peer(many.ws) as client:
        home = await _tunnelled(many, client)
        before = many.workers()
        os.kill(many.pid, signal.SIGHUP)
        # Its socket drops when the worker leaves that carries it; if the home lives, it goes on; then it is closed.
        closed = None
        with trio.fail_after(25):
            while closed is None or closed.code is None:
                closed = await socket_of(client).wait_gone()
                with suppress(Refused):
                    if closed.code is None:
                        await come_back(client, many.ws, 2)
        assert closed.code == 1001
        await wait_until(lambda: not set(before) & set(many.workers()))
        assert home not in many.workers()
