"""A backend that sends what nobody asked for in a loop: its neighbours are served as before."""

import sys
import time
from statistics import median

import pytest
import trio
from trio.testing import MockClock

from callboard.actors.client.pace import FREE, ReadPace
from callboard.actors.server.parking import Parking
from callboard.broker import Broker
from callboard.server import Server
from callboard.testing import Peer
from callboard.transports.client.process import Command, kill
from tests.broker.front import backend, peer

NOISY = """
import json, sys
lists = {"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources",
         "resources/templates/list": "resourceTemplates"}
def say(**message): sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n"); sys.stdout.flush()
agreed = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "n", "version": "1"}}
for line in sys.stdin:
    request = json.loads(line)
    method = request["method"]
    if method == "initialize":
        say(id=request["id"], result=agreed)
    elif method in lists:
        say(id=request["id"], result={lists[method]: []})
        if sys.stdin.readline():
            break
    elif "id" in request:
        say(id=request["id"], error={"code": -32601, "message": "no"})
block = (sys.argv[1] + "\\n") * 500
while True:
    sys.stdout.write(block)
"""
"""A server that floods as soon as it is said anything after its list was read."""

FLOODS = {
    "pings": '{"jsonrpc":"2.0","id":"p","method":"ping"}',
    "unknown requests": '{"jsonrpc":"2.0","id":"u","method":"no/such"}',
    "questions": '{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}',
    "log messages": '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}',
    "answers to nobody": '{"jsonrpc":"2.0","id":999999,"result":{}}',
    "garbage": "not JSON",
}


async def timed(client: Peer, count: int) -> list[float]:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        await client.call("hello")
        times.append(time.perf_counter() - began)
        await trio.sleep(0.002)
    return times


@pytest.mark.finding("security-23")
@pytest.mark.parametrize("flood", FLOODS)
async def test_neighbours_of_a_backend_that_floods_do_not_notice(flood: str) -> None:
    """In real time and with a real process, for it is about shares of the loop."""
    quiet = Server("quiet")

    @quiet.tool
    async def hello() -> str:
        return "hello"

    noisy = Command.of([sys.executable, "-S", "-c", NOISY, FLOODS[flood]])
    broker = Broker([backend(noisy, "noisy"), backend(quiet, "quiet")])
    with trio.fail_after(30):
        async with broker.host(parking=Parking("broker")) as host, peer(host) as client:
            alone = median(await timed(client, 40))
            [connection] = broker.backends["noisy"].pool
            await connection.conversation.notify("notifications/initialized")
            await trio.sleep(0.05)
            beside = median(await timed(client, 40))
            assert connection.conversation.link.process is not None
            kill(connection.conversation.link.process)  # it would take two seconds
    assert beside < 2 * alone + 0.001


async def test_a_server_that_says_no_more_than_it_may_is_heard_at_once(autojump_clock: MockClock) -> None:
    pace = ReadPace()
    for _ in range(FREE.count):
        await pace.keep()
    assert trio.current_time() == 0


@pytest.mark.finding("security-24")
async def test_clients_are_not_told_the_paths_of_a_server_that_cannot_be_started() -> None:
    broker = Broker([backend(Command.of(["/opt/secret/bin/python"]))])
    with trio.fail_after(20):
        async with broker.host(parking=Parking("broker")):
            told = str(broker.backends["back"].gone())
            assert "No such file or directory" in told
            assert "/opt" not in told
            assert "/opt/secret/bin/python: No such file" in broker.behind().servers[0].why
