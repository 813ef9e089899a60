"""Whole answers wait for the end of the turn: nobody may miss one, or get one out of its order."""

import socket

import pytest
import trio

from callboard import Context, Server
from callboard.transports.wire import MAX_HELD as LARGEST
from tests.transports.server.http.stage import Place, serving, settle

HALF: int = LARGEST // 2


def company() -> Server:
    server = Server("outbox")

    @server.tool
    async def quick(text: str = "ok") -> str:
        return text

    @server.tool
    async def large(size: int) -> str:
        return "x" * size

    @server.tool
    async def streamed(*, ctx: Context) -> str:
        await ctx.report(1)
        return "streamed"

    return server


def writers(place: Place) -> list[str]:
    """Who writes what a socket could not take at once."""
    return [child.name for child in place.edge.tree().children if child.name.startswith("rest-")]


async def test_answers_of_either_kind_keep_the_order_of_their_requests() -> None:
    async with serving(company()) as place:
        client = await place.connect()
        asked = []
        for number in range(10):
            tool = "streamed" if number % 3 == 1 else "quick"
            asked.append(client.modern("tools/call", name=tool, id=number, meta={"progressToken": f"p{number}"}))
        await client.send(b"".join(asked))
        for number in range(10):
            answer = await client.answer()
            assert f'"id":{number}'.encode() in answer.body


async def test_many_connections_of_one_turn_are_all_answered() -> None:
    async with serving(company()) as place:
        clients = [await place.connect() for _ in range(50)]
        for turn in range(3):
            for client in clients:
                await client.send(client.modern("tools/call", name="quick", arguments={"text": f"turn {turn}"}))
            for client in clients:
                assert (await client.answer()).result["content"][0]["text"] == f"turn {turn}"


async def test_who_asks_and_says_no_more_is_answered() -> None:
    async with serving(company()) as place:
        for _ in range(20):  # whoever runs first in a turn is drawn by lot
            client = await place.connect()
            await client.send(client.modern("tools/call", name="quick"))
            client.socket.shutdown(socket.SHUT_WR)
            assert (await client.answer()).result["content"][0]["text"] == "ok"


@pytest.mark.parametrize("size", [HALF, LARGEST - 500, LARGEST, 4 * LARGEST])
async def test_what_a_socket_cannot_take_at_once_is_written_all_the_same(size: int) -> None:
    async with serving(company()) as place:
        client = await place.connect(receive_buffer=4096)
        for number in range(60):
            await client.send(client.modern("tools/call", name="large", arguments={"size": size}, id=number))
        await settle()
        for number in range(60):
            answer = await client.answer()
            assert answer.json["id"] == number
            assert len(answer.result["content"][0]["text"]) == size
        await settle()
        assert writers(place) == []


async def test_who_never_reads_is_cut_off_and_leaves_no_writer_behind() -> None:
    async with serving(company()) as place:
        client = await place.connect(receive_buffer=4096)
        with trio.move_on_after(5):
            for number in range(200):
                await client.send(client.modern("tools/call", name="large", arguments={"size": HALF}, id=number))
        with trio.fail_after(10):
            while place.connections or writers(place):
                await settle()
