"""What a server allows so often is counted over HTTP too, also where the connection itself runs the tool."""

from callboard import Rate, Server
from tests.transports.server.http.stage import serving
from tests.transports.server.http.test_carried import call, shake_hands


def company() -> Server:
    server = Server("rates", rates={"tools/call": Rate(2, per=1000)})

    @server.tool
    async def quick() -> str:
        return "ok"

    return server


async def test_a_modern_client_is_told_to_wait() -> None:
    async with serving(company()) as place:
        client = await place.connect()
        answers = [await client.call("quick") for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 429]
        assert answers[-1].headers["retry-after"] == "1"
        assert answers[-1].code == -31003


async def test_a_legacy_session_is_told_to_wait() -> None:
    async with serving(company()) as place:
        client = await place.connect()
        session = await shake_hands(client)
        bodies = []
        for number in range(3):
            await client.send(client.post(call("quick", number), **session))
            bodies.append((await client.answer()).json)
        assert ["result" in body for body in bodies] == [True, True, False]
        assert bodies[-1]["error"]["code"] == -31003
