"""How many connections there is room for, and that health and backends always have some."""

import json
import resource
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
import structlog.testing
import trio

from callboard.transports.descriptors import MOST_DESCRIPTORS, raise_descriptor_limit
from callboard.transports.limits import Settings
from callboard.transports.server.http.crowd import (
    RESERVE,
    ConnectionLimit,
    counted_address,
    descriptor_ceiling,
)
from tests.broker.test_admin import ask
from tests.process import CALLBOARD, started
from tests.shared import APPS
from tests.transports.server.http.house import open_house
from tests.transports.server.http.stage import Client, serving, settle

APP = str(APPS / "noisy.py")


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    """The limits of open files, as they were before and are afterwards."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.finding("security-20", "faults-M4")
def test_the_limit_of_open_files_is_raised_and_a_reserve_is_kept(limits: tuple[int, int]) -> None:
    _, hard = limits
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    assert descriptor_ceiling() == 512 - RESERVE
    raise_descriptor_limit()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == min(hard, MOST_DESCRIPTORS)
    assert descriptor_ceiling() == soft - RESERVE
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    assert descriptor_ceiling() == 48


@pytest.mark.finding("security-20")
def test_one_address_never_takes_all_the_room() -> None:
    crowd = ConnectionLimit(100, ceiling=1 << 20)
    stranger, other = counted_address(("203.0.113.1", 1)), counted_address(("203.0.113.2", 1))
    assert [crowd.enter(stranger, 5) for _ in range(80)].count(None) == 75
    assert crowd.enter(other, 5) is None
    assert crowd.enter(counted_address(("127.0.0.1", 1)), 5) is None
    crowd.leave(stranger)
    assert crowd.enter(stranger, 5) is None
    assert crowd.enter(stranger, 5) == "connections of one address"
    assert (crowd.total, crowd.refused) == (77, 6)
    assert crowd.enter(other, 1 << 20) == "open files"
    while crowd.enter(None, 5) is None:
        pass
    assert crowd.total == 100


def test_it_is_full_when_what_comes_next_would_be_refused() -> None:
    crowd = ConnectionLimit(3, ceiling=20)
    seen = []
    for descriptor in (7, 8, 18, 19, 20):
        full = crowd.enter(None, descriptor)
        seen.append((full, crowd.is_full))
        if descriptor in (8, 18, 19):
            crowd.leave(None)
            seen.append(("left", crowd.is_full))
    assert seen == [
        (None, False),
        *((None, False), ("left", False)),
        *((None, False), ("left", False)),
        *((None, True), ("left", False)),
        ("open files", True),
    ]
    assert [crowd.enter(None, 5) for _ in range(3)] == [None, None, "max-connections"]
    assert (crowd.is_full, crowd.total) == (True, 3)


def test_addresses_that_are_one_client_s_are_counted_as_one() -> None:
    assert counted_address(("2001:db8::1", 1, 0, 0)) == counted_address(("2001:db8::ffff:1", 2, 0, 0))
    assert counted_address(("2001:db8::1", 1, 0, 0)) != counted_address(("2001:db8:0:1::1", 1, 0, 0))
    assert counted_address(("::ffff:203.0.113.1", 1, 0, 0)) == counted_address(("203.0.113.1", 1))
    assert counted_address(("fe80::1%eth0", 1, 0, 2)) is not None
    for here in ("", "/run/x.sock", ("127.0.0.1", 1), ("127.8.8.8", 1), ("::1", 1, 0, 0), ("::ffff:127.0.0.1", 1)):
        assert counted_address(here) is None


@pytest.mark.finding("faults-M4", "security-19")
async def test_that_there_is_no_room_is_said_once_in_a_while() -> None:
    with structlog.testing.capture_logs() as logged:
        async with serving(open_house().server, Settings(write_time=1, max_connections=1)) as place:
            first = await place.connect()
            assert (await first.call("echo", text="x")).result
            for _ in range(50):
                assert await (await place.connect()).ended() == b""
            await first.aclose()
            while place.connections:
                await settle()
            assert (await (await place.connect()).call("echo", text="x")).result
    said = [line for line in logged if line["event"] == "connections_refused"]
    assert [(line["why"], line["refused"]) for line in said] == [("max-connections", 1)]


@pytest.mark.finding("security-20", "faults-M4")
async def test_health_answers_and_newcomers_are_served_soon_after_all_descriptors_were_taken() -> None:
    flags = "--http 0 --admin 0 --json --first-byte-time 1"
    script = f"ulimit -n 96; exec {' '.join(CALLBOARD)} run {APP} {flags}"
    async with started("sh", "-c", script) as process:
        while (line := await process.line()) == b"loading":
            pass
        urls = {one["transport"]: one["url"] for one in json.loads(line or b"")["listening"]}
        port = urlsplit(urls["http"]).port or 0
        silent = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(150)]
        assert await ask(urls["admin"], "/livez") == (200, "ok\n")
        await process.wait_said(b"connections_refused")
        for stream in silent:  # those that got in are cut, too, since they say nothing
            with trio.fail_after(5):
                assert await stream.receive_some() == b""
            await stream.aclose()
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            client = Client(stream, stream.socket, urlsplit(urls["http"]).netloc.encode())
            assert (await client.call("echo", text="x")).result
        assert process.words.count("connections_refused") <= 2
        assert "no_room_for_connections" not in process.words
        process.signal()
        assert await process.wait() == 0
