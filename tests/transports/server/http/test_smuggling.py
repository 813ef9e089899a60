"""Every form of request smuggling against the real listener: refused, closed, and nothing behind it is run."""

from callboard.codecs.http.access import Access
from tests.codecs.http.test_smuggling import REFUSED
from tests.transports.server.http.house import open_house
from tests.transports.server.http.stage import serving, settle

ANY_NAME = Access.of("127.0.0.1", 1, hosts=["*"])
FIRST = b"POST /mcp HTTP/1.1\r\n"
ROWS = {
    name: (data.replace(FIRST, FIRST + b"Content-Type: application/json\r\n"), status)
    for name, (data, status) in REFUSED.items()
}
"""With a head that is admitted, so that the body is read."""


async def test_what_could_be_read_in_two_ways_is_answered_and_ends_the_connection() -> None:
    house = open_house()
    async with serving(house.server, access=ANY_NAME) as place:
        for name, (data, status) in ROWS.items():
            client = await place.connect()
            smuggled = client.modern("tools/call", name="errand", arguments={"name": name})
            await client.send(data + smuggled)
            answer = await client.answer()
            assert (answer.status, answer.headers["connection"]) == (status, "close"), name
            assert "id" not in answer.json, name
            assert await client.ended() == b"", name
            await client.aclose()
        await settle()
        assert house.started == []
        assert place.connections == 0


async def test_what_was_asked_before_is_answered_before() -> None:
    house = open_house()
    async with serving(house.server, access=ANY_NAME) as place:
        for name, (data, status) in ROWS.items():
            client = await place.connect()
            before = client.modern("tools/call", name="chat", arguments={"words": []}, id=name)
            smuggled = client.modern("tools/call", name="errand", arguments={"name": name})
            await client.send(before + data + smuggled)
            assert (await client.answer()).json["id"] == name
            assert (await client.answer()).status == status, name
            await client.aclose()
        await settle()
        assert house.started == []
