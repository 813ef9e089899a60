"""`callboard serve` alone: a company to click through, in a process as a newcomer starts it."""

import json
import shlex
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import psutil
import pytest
import trio
import trio.testing

from callboard import Client, connect
from callboard.actors.changes import ResourceUpdated
from callboard.actors.subscribers import Subscribers
from callboard.broker.demo import company
from callboard.broker.demo.stage_clock import CLOCK, Ticker, Watchers
from callboard.cli.serve import DEFAULT_PORT
from callboard.errors import ServerRefused
from tests.fork_server import forked
from tests.process import CALLBOARD, callboard, started
from tests.shared import ROOT

SERVE: Final = ("serve", "--http", "0", "--ws", "0", "--json")


@attrs.frozen
class Served:
    """A company that is there."""

    told: Mapping[str, Any]

    def url(self, transport: str = "http") -> str:
        return next(str(one["url"]) for one in self.told["listening"] if one["transport"] == transport)


@asynccontextmanager
async def served() -> AsyncIterator[Served]:
    async with started(*forked(), *SERVE) as process:
        yield Served(await process.hear())
        process.signal()
        assert await process.wait() == 0
        assert "Traceback" not in process.words


@pytest.fixture(scope="module")
def demo() -> Iterator[Served]:
    """One company for all tests that leave it as it was: to start its processes takes longer than to look at it."""
    with subprocess.Popen([*forked(), *SERVE], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield Served(json.loads(process.stdout.readline()))
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def fill_in(asked: Any) -> dict[str, Any]:
    assert "hamlet" in asked.message
    return {"name": "Ada", "place": "gods"}


async def test_the_first_command_of_a_newcomer_serves_something_and_says_how_to_see_it() -> None:
    async with served() as here:
        told = here.told
        assert {one["name"]: one["state"] for one in told["servers"]} == dict.fromkeys(
            ("box_office", "stage_clock", "wardrobe", "trapdoor"), "up"
        )
        assert told["tools"] == 7
        words = shlex.split(told["try"])
        done = await trio.run_process(words, capture_stdout=True, capture_stderr=True, cwd=ROOT)
        assert b"a black doublet" in done.stdout
        assert b"3/6 sew" in done.stderr


async def test_it_shows_what_there_is_to_see(demo: Served) -> None:
    async with connect(demo.url(), elicitation=fill_in) as client:
        booked = await client.call("box_office__book_seats", play="Hamlet", seats=3)
        assert booked.structured_content == {"play": "hamlet", "name": "Ada", "place": "gods", "seats": 3, "price": 30}
        assert await client.complete("box_office__review", "play", "t") == ["the-tempest", "twelfth-night"]
        assert await client.complete("programme://{play}", "play", "ma") == ["macbeth"]
        prompted = await client.prompt("box_office__review", play="macbeth", mood="acid")
        assert "acid theatre critic" in str(prompted.messages)
        assert "a duke with a library" in str(await client.read("programme://the-tempest"))
        assert "yellow stockings" in str(await client.read("rack://malvolio"))
        assert await reported(client) == ["measure", "cut", "pin", "sew", "hem", "press", "done"]


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-06-18"])
async def test_a_server_of_an_old_revision_asks_clients_of_both_eras(demo: Served, revision: str) -> None:
    def answer(asked: Any) -> dict[str, Any]:
        return {"name": "Ada"} if "who is there" in asked.message else {"mood": "tragic"}

    async with connect(demo.url(), revision=revision, elicitation=answer) as client:
        cast = await client.call("trapdoor__audition", role="Puck")
        assert cast.structured_content == {"role": "Puck", "actor": "Ada", "mood": "tragic", "asked_in": "2025-06-18"}


async def test_a_server_that_dies_in_a_call_is_back_for_the_next_one(demo: Served) -> None:
    async with connect(demo.url()) as client:
        before = await client.call("trapdoor__standing")
        with pytest.raises(ServerRefused, match="exited with 1"):
            await client.call("trapdoor__fall")
        after = await client.call("trapdoor__standing")
        one, other = (str(result.structured_content) for result in (before, after))
        assert one != other


async def reported(client: Client) -> list[str]:
    heard = []
    async with client.call("wardrobe__sew_costume", role="Hamlet", pace=0.05) as call:
        heard += [str(report.message) async for report in call.progress]
    return heard


async def test_the_clock_ticks_for_clients_of_both_eras(demo: Served) -> None:
    for transport, revision in (("http", "2026-07-28"), ("ws", "2025-11-25")):
        async with connect(demo.url(transport), revision=revision) as client:
            assert str(client.revision) == revision
            async with client.listen(resources=[CLOCK]) as changes:
                for _ in range(2):
                    assert await anext(changes) == ResourceUpdated(CLOCK)


async def test_a_clock_at_which_nobody_looks_stands_still(autojump_clock: trio.testing.MockClock) -> None:
    watchers = Watchers(Subscribers())
    ticker = Ticker(watchers)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ticker.run)
        await trio.sleep(3600)
        assert ticker.ticks == 0
        following = await watchers.follow([CLOCK], "anybody", lambda _: None)
        with trio.move_on_after(10):
            await trio.sleep_forever()
        assert ticker.ticks > 5
        watchers.unfollow(following, lambda _: None)
        await trio.sleep(1)  # the tick that was under way
        seen = ticker.ticks
        await trio.sleep(3600)
        assert ticker.ticks == seen
        nursery.cancel_scope.cancel()


def test_a_taken_port_is_one_line_that_says_what_to_do() -> None:
    port = int(DEFAULT_PORT)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", port))
            taken.listen()
        except OSError:
            pass  # by somebody else: so much the better
        done = callboard("serve")
    assert done.returncode == 2
    assert (
        done.stderr == f"callboard: 127.0.0.1:{port}: address already in use; choose another address with --http PORT\n"
    )


async def test_it_ends_with_all_of_its_processes_and_leaves_no_file(tmp_path: Path) -> None:
    async with started(*CALLBOARD, *SERVE, cwd=tmp_path) as process:
        await process.hear()
        children = psutil.Process(process.process.pid).children(recursive=True)
        assert len(children) == 2
        process.signal()
        assert await process.wait() == 0
        assert not any(child.is_running() for child in children)
    assert files_of(tmp_path) == []


def files_of(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def test_the_company_is_two_servers_here_and_two_elsewhere() -> None:
    assert [spec.transport for spec in company()] == ["in process", "in process", "stdio", "stdio"]
