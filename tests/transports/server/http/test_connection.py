"""Connections: what a slow one, a greedy one, a busy one and a vanished one get."""

from contextlib import suppress
from typing import Any

import pytest
import trio

from callboard.transports.limits import Settings
from tests.transports.server.http.house import open_house
from tests.transports.server.http.stage import Client, request, serving, settle

LOG = {"io.modelcontextprotocol/logLevel": "info"}


def slowly(**times: Any) -> Settings:
    """Little patience, with what is being looked at."""
    return Settings(**{"header_time": 5, "body_idle": 5, "body_time": 5, "keep_alive": 5, "write_time": 1, **times})


async def seconds_until_end(client: Client, drip: bytes = b"", every: float = 0.05) -> tuple[float, bytes]:
    """How long it took the server to hang up, while it was sent one more byte again and again; and its last words."""
    started = trio.current_time()

    async def dribble() -> None:
        for byte in drip:
            await trio.sleep(every)
            try:
                await client.send(bytes((byte,)))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return

    async with trio.open_nursery() as nursery:
        nursery.start_soon(dribble)
        words = await client.ended()
        took = trio.current_time() - started
        nursery.cancel_scope.cancel()
    return took, words


# Slow heads and bodies.


async def test_a_head_that_does_not_come_to_its_end_is_cut_off() -> None:
    async with serving(open_house().server, slowly(header_time=0.3)) as place:
        client = await place.connect()
        await client.send(b"POST /mcp HTTP/1.1\r\n")
        took, words = await seconds_until_end(client, b"X-Slow: " + b"a" * 100)
        assert 0.25 < took < 1.3
        assert words.startswith(b"HTTP/1.1 408 ")
        await settle()
        assert place.connections == 0


async def test_empty_lines_are_a_slow_head_too() -> None:
    async with serving(open_house().server, slowly(header_time=0.3)) as place:
        client = await place.connect()
        took, _ = await seconds_until_end(client, b"\r\n" * 50)
        assert 0.25 < took < 1.5


async def test_a_body_that_stops_coming_is_cut_off() -> None:
    async with serving(open_house().server, slowly(body_idle=0.3)) as place:
        client = await place.connect()
        await client.send(client.modern("server/discover")[:-10])
        took, words = await seconds_until_end(client)
        assert 0.25 < took < 1.3
        assert words.startswith(b"HTTP/1.1 408 ")


async def test_a_body_that_comes_too_slowly_is_cut_off_although_it_comes() -> None:
    async with serving(open_house().server, slowly(body_idle=0.3, body_time=0.6)) as place:
        client = await place.connect()
        data = client.modern("tools/call", name="echo", arguments={"text": "x" * 100})
        await client.send(data[:-100])
        took, words = await seconds_until_end(client, data[-100:])
        assert 0.5 < took < 1.6
        assert words.startswith(b"HTTP/1.1 408 ")


async def test_a_slow_body_in_the_smallest_chunks_is_cut_off_too() -> None:
    async with serving(open_house().server, slowly(body_idle=0.3, body_time=0.6)) as place:
        client = await place.connect()
        data = client.modern("server/discover", "Transfer-Encoding: chunked", headers={"content_length": None})
        await client.send(data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
        took, words = await seconds_until_end(client, b"1\r\n{\r\n" * 20)
        assert 0.5 < took < 1.6
        assert words.startswith(b"HTTP/1.1 408 ")


async def test_a_connection_on_which_nothing_happens_ends_without_a_word() -> None:
    async with serving(open_house().server, slowly(keep_alive=0.4)) as place:
        client = await place.connect()
        took, words = await seconds_until_end(client)
        assert 0.15 < took < 1.4
        assert words == b""


async def test_a_connection_that_is_used_does_not_end() -> None:
    async with serving(open_house().server, slowly(keep_alive=0.8)) as place:
        client = await place.connect()
        for _ in range(12):
            assert (await client.call("echo", text="x")).result
            await trio.sleep(0.12)


async def test_each_request_has_time_of_its_own_even_if_the_pieces_never_end_with_one() -> None:
    async with serving(open_house().server, slowly(header_time=0.7, body_idle=0.7, body_time=0.7)) as place:
        client = await place.connect()
        one = client.modern("tools/call", name="echo", arguments={"text": "x"})
        for cut in (20, len(one) - 5):  # in the head, and in the body
            await client.send(one[:cut])
            for _ in range(7):
                await trio.sleep(0.12)
                await client.send(one[cut:] + one[:cut])
                assert (await client.answer()).result
            await client.send(one[cut:])
            assert (await client.answer()).result


async def test_slow_peers_do_not_get_more_time_because_an_answer_is_on_its_way() -> None:
    house = open_house()
    async with serving(house.server, slowly(header_time=0.4, keep_alive=10)) as place:
        client = await place.connect()
        await client.send(client.modern("tools/call", name="work", arguments={"name": "gate"}) + b"POST /mcp HT")
        await house.wait_started("gate")
        house.gates["gate"].set()
        assert (await client.answer()).result
        took, words = await seconds_until_end(client)
        assert took < 1.5
        assert words.startswith(b"HTTP/1.1 408 ")


async def test_a_thousand_slow_peers_leave_room_for_others_and_are_all_sent_away() -> None:
    async with serving(open_house().server, slowly(header_time=0.5)) as place:
        slow = [await place.connect() for _ in range(200)]
        for client in slow:
            await client.send(b"POST /mcp HTTP/1.1\r\nHo")
        await settle()
        assert place.connections == 200
        good = await place.connect()
        started = trio.current_time()
        assert (await good.call("echo", text="x")).result
        assert trio.current_time() - started < 0.5
        for client in slow:
            assert (await client.ended()).startswith(b"HTTP/1.1 408 ")
        await settle()
        assert place.connections == 1


async def test_one_connection_too_many_is_closed_at_once() -> None:
    async with serving(open_house().server, Settings(max_connections=2, write_time=1)) as place:
        first, second = [await place.connect() for _ in range(2)]
        assert (await first.call("echo", text="x")).result
        assert (await second.call("echo", text="x")).result
        third = await place.connect()
        assert await third.ended() == b""
        await first.aclose()
        await settle()
        fourth = await place.connect()
        assert (await fourth.call("echo", text="x")).result


async def test_a_connection_that_works_for_its_client_counts_once() -> None:
    house = open_house()
    async with serving(house.server, Settings(max_connections=4, write_time=1)) as place:
        busy = [await place.connect() for _ in range(3)]
        for number, client in enumerate(busy):
            await client.send(client.modern("tools/call", name="errand", arguments={"name": str(number)}))
        await house.wait_started("0", "1", "2")
        client = await place.connect()
        assert (await client.call("echo", text="x")).result


# Too much.


async def test_a_body_that_is_too_large_is_refused_before_it_is_read() -> None:
    async with serving(open_house().server, Settings(max_frame=1000, write_time=1)) as place:
        client = await place.connect()
        head = client.modern("server/discover", headers={"content_length": "1001"}).partition(b"\r\n\r\n")[0]
        await client.send(head + b"\r\n\r\n")
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"], answer.code) == (413, "close", -32600)
        assert await client.ended() == b""


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_client_that_sends_too_much_all_the_same_still_reads_why_it_was_refused(is_chunked: bool) -> None:
    """An answer is lost if a connection is closed while something comes in: the reset overtakes it."""
    async with serving(open_house().server, Settings(max_frame=100_000, write_time=2)) as place:
        client = await place.connect()
        body = b"x" * 3_000_000
        if is_chunked:
            data = client.post(body, "Transfer-Encoding: chunked", content_length=None)
            head = data.removesuffix(body) + b"%x\r\n" % len(body)
        else:
            head = client.post(body).removesuffix(body)
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                try:
                    await client.send(head + body)
                except trio.BrokenResourceError:
                    return

            nursery.start_soon(send)
            await trio.sleep(0.2)  # it reads late, as a client does that sends first
            assert (await client.answer()).status == 413
            nursery.cancel_scope.cancel()


async def test_a_client_that_sends_for_ever_after_it_was_refused_is_cut_off() -> None:
    async with serving(open_house().server, Settings(max_frame=1000, write_time=1)) as place:
        client = await place.connect()
        await client.send(client.post(b"", content_length="5000").replace(b"\r\n\r\n", b"\r\nX: y\r\n\r\n"))
        started = trio.current_time()
        with suppress(trio.BrokenResourceError):
            while True:
                await client.send(b"x" * 1000)
                await trio.sleep(0.01)
        assert trio.current_time() - started < 4
        await settle()
        assert place.connections == 0


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /mcp HTTP/1.1\r\nX: " + b"a" * 40_000, 431),
        (b"GET /mcp HTTP/1.1\r\n" + b"X: y\r\n" * 101 + b"\r\n", 431),
        (b"GET /" + b"a" * 40_000, 431),
        (b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + bytes(100), 501),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"GET /mcp\r\n\r\n", 505),
        (b"GET /mcp HTTP/1.1\r\n\r\n", 400),
        (b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"GET /mcp HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", 400),
    ],
)
async def test_what_is_no_request_is_answered_and_ends_the_connection(data: bytes, status: int) -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        await client.send(data)
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert "id" not in answer.json
        assert await client.ended() == b""


# Busy connections.


async def test_two_errands_in_a_row_wait_one_after_the_other() -> None:
    house = open_house()
    async with serving(house.server) as place:
        client = await place.connect()
        calls = [client.modern("tools/call", name="errand", arguments={"name": name}) for name in "abc"]
        await client.send(b"".join(calls))
        for name in "abc":
            await house.wait_started(name)
            await settle()
            assert house.started[-1] == name
            house.gates[name].set()
        assert [(await client.answer()).status for _ in calls] == [200] * 3
        assert (await client.call("echo", text="x")).result


@pytest.mark.parametrize("tool", ["work", "errand"])
@pytest.mark.parametrize("is_lump", [False, True])
async def test_a_client_that_leaves_is_noticed_although_it_had_asked_for_more(tool: str, is_lump: bool) -> None:
    house = open_house()
    async with serving(house.server) as place:
        client = await place.connect()
        first = client.modern("tools/call", name=tool, arguments={"name": "gate"})
        more = client.modern("tools/call", name="errand", arguments={"name": "never"}) * 3
        await client.send(first + more if is_lump else first)
        await house.wait_started("gate")
        if not is_lump:
            await client.send(more)
            await settle()
            await client.send(more)
            await settle()
        await client.aclose()
        left = trio.current_time()
        assert await house.wait_cut("gate") - left < 0.5
        await settle()
        assert house.started == ["gate"]
        assert place.connections == 0


async def test_what_a_client_says_ahead_of_time_is_not_kept_without_bound() -> None:
    house = open_house()
    async with serving(house.server) as place:
        client = await place.connect()
        await client.send(client.modern("tools/call", name="work", arguments={"name": "gate"}))
        await house.wait_started("gate")
        one = client.modern("tools/call", name="echo", arguments={"text": "x" * 10_000})
        sent = 0
        with trio.move_on_after(0.5):
            while True:
                await client.send(one)
                sent += 1
        assert sent < 2000  # the pipe is full: nobody reads on


async def test_a_connection_ends_when_the_server_does_and_says_so_with_its_last_answer() -> None:
    house = open_house()
    async with serving(house.server) as place:
        idle, busy = await place.connect(), await place.connect()
        assert (await idle.call("echo", text="x")).result
        await busy.send(busy.modern("tools/call", name="work", arguments={"name": "gate"}))
        await house.wait_started("gate")
        place.edge.address.begin_stop()
        assert await idle.ended() == b""
        house.gates["gate"].set()
        answer = await busy.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        await place.edge.address.wait_ended()


async def test_nothing_is_begun_for_a_client_when_the_end_has_begun() -> None:
    house = open_house()
    async with serving(house.server) as place:
        client = await place.connect()
        calls = [client.modern("tools/call", name="errand", arguments={"name": name}) for name in "abc"]
        await client.send(b"".join(calls))
        await house.wait_started("a")
        place.edge.address.begin_stop()
        await settle()
        house.gates["a"].set()
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await client.ended() == b""
        await place.edge.address.wait_ended()
        assert house.started == ["a"]


async def test_who_is_still_being_recognized_when_the_end_begins_harms_nobody() -> None:
    house, asked, known = open_house(), trio.Event(), trio.Event()

    async def authenticate(token: str) -> str:
        asked.set()
        await known.wait()
        return token

    async with serving(house.server, authenticate=authenticate) as place:
        client = await place.connect()
        call = client.modern("tools/call", "Authorization: Bearer x", name="errand", arguments={"name": "a"})
        await client.send(call)
        await asked.wait()
        place.edge.address.begin_stop()
        await settle()
        known.set()
        await house.wait_started("a")  # it had come in time
        house.gates["a"].set()
        assert (await client.answer()).result
        await place.edge.address.wait_ended()


async def test_a_refused_client_does_not_hold_its_connection() -> None:
    async with serving(open_house().server, Settings(write_time=1)) as place:
        for _ in range(5):
            client = await place.connect()
            await client.send(request("PUT", "/mcp", host=f"127.0.0.1:{place.port}"))
            assert (await client.answer()).status == 405
            await client.aclose()
        await settle()
        assert place.connections == 0
