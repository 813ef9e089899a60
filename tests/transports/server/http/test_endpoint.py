"""The endpoint on the wire: methods, paths, media types, connections, and what each is answered."""

import json

import pytest

from tests.transports.server.http.house import open_house
from tests.transports.server.http.stage import Json, Place, request, serving, settle

JSON = "application/json"


def get(place: Place, target: str = "/mcp", *lines: str, method: str = "GET", **headers: str | None) -> bytes:
    return request(method, target, *lines, **{"host": f"127.0.0.1:{place.port}", **headers})


@pytest.mark.requirement("M087", "M099")
async def test_a_request_is_answered_with_json_when_the_answer_is_all_there_is_to_say() -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        answer = await client.call("echo", text="hello")
        assert answer.status == 200
        assert answer.headers == {"content-type": JSON, "content-length": str(len(answer.body))}
        assert answer.result["content"] == [{"type": "text", "text": "hello"}]


async def test_one_connection_carries_many_requests() -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        for number in range(20):
            assert (await client.call("echo", text=str(number))).result["content"][0]["text"] == str(number)
        assert place.connections == 1


@pytest.mark.parametrize("tool", ["echo", "chat"])
async def test_a_client_that_asks_for_it_gets_the_last_answer_and_the_end(tool: str) -> None:
    arguments: Json = {"text": "x"} if tool == "echo" else {"words": []}
    async with serving(open_house().server) as place:
        client = await place.connect()
        await client.send(client.modern("tools/call", "Connection: close", name=tool, arguments=arguments))
        answer = await client.answer()
        assert answer.headers["connection"] == "close"
        assert answer.result
        assert await client.ended() == b""
        await settle()
        assert place.connections == 0


async def test_http_1_0_is_answered_and_the_connection_ends() -> None:
    async with serving(open_house().server) as place:
        for lines in ((), ("Connection: keep-alive",)):
            client = await place.connect()
            data = client.modern("tools/call", *lines, name="echo", arguments={"text": "x"})
            await client.send(data.replace(b"HTTP/1.1", b"HTTP/1.0"))
            answer = await client.answer()
            assert answer.headers["connection"] == "close"
            assert answer.result
            assert await client.ended() == b""


async def test_a_stream_to_http_1_0_ends_with_the_connection() -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        data = client.modern("tools/call", name="chat", arguments={"words": ["a"]}, meta=LOG)
        await client.send(data.replace(b"HTTP/1.1", b"HTTP/1.0"))
        answer = await client.answer()
        assert "transfer-encoding" not in answer.headers
        assert [json.loads(event.data).get("method") for event in answer.events] == ["notifications/message", None]


LOG = {"io.modelcontextprotocol/logLevel": "info"}


async def test_pipelined_requests_are_answered_in_order() -> None:
    house = open_house()
    async with serving(house.server) as place:
        client = await place.connect()
        calls = [
            client.modern("tools/call", name="work", arguments={"name": "slow"}, id="first"),
            client.modern("tools/call", name="echo", arguments={"text": "x"}, id="second"),
            client.modern("tools/call", name="chat", arguments={"words": ["a"]}, id="third", meta=LOG),
            client.modern("server/discover", id="fourth"),
            client.modern("nonsense", id="fifth"),
            client.modern("tools/call", name="errand", arguments={"name": "open"}, id="sixth"),
        ]
        await client.send(b"".join(calls))
        await house.wait_started("slow")
        assert house.started == ["slow"]  # one after the other
        for gate in ("slow", "open"):
            house.gates[gate].set()
        answers = [await client.answer() for _ in calls]
        assert [answer.status for answer in answers] == [200, 200, 200, 200, 404, 200]
        plain = [answers[index].json["id"] for index in (0, 1, 3, 4, 5)]
        assert plain == ["first", "second", "fourth", "fifth", "sixth"]
        assert json.loads(answers[2].events[-1].data)["id"] == "third"


async def test_a_request_is_answered_before_what_follows_it_is_refused() -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        await client.send(client.modern("server/discover") + b"NONSENSE\r\n\r\n" + client.modern("server/discover"))
        assert (await client.answer()).status == 200
        refused = await client.answer()
        assert (refused.status, refused.headers["connection"]) == (501, "close")
        assert await client.ended() == b""


@pytest.mark.parametrize("is_upgrade", [False, True])
async def test_a_client_that_waits_is_told_to_continue(is_upgrade: bool) -> None:
    offer = ("Connection: Upgrade", "Upgrade: h2c") if is_upgrade else ()
    async with serving(open_house().server) as place:
        client = await place.connect()
        for _ in range(2):
            data = client.modern("tools/call", "Expect: 100-continue", *offer, name="echo", arguments={"text": "x"})
            head, end, body = data.partition(b"\r\n\r\n")
            await client.send(head + end)
            assert (await client.answer()).status == 100
            await client.send(body)
            assert (await client.answer()).result


async def test_a_client_that_does_not_wait_is_not_told_to_continue() -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        await client.send(client.modern("server/discover", "Expect: 100-continue"))
        assert (await client.answer()).status == 200


async def test_a_client_that_waits_and_is_refused_is_told_at_once() -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        data = client.modern("server/discover", "Expect: 100-continue", headers={"content_type": "text/plain"})
        await client.send(data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
        assert (await client.answer()).status == 415


async def test_a_continue_does_not_land_in_the_middle_of_the_answer_before() -> None:
    house = open_house()
    async with serving(house.server) as place:
        client = await place.connect()
        first = client.modern("tools/call", name="chat", arguments={"words": ["a"], "name": "gate"}, meta=LOG)
        second = client.modern("tools/call", "Expect: 100-continue", name="echo", arguments={"text": "x"})
        head, end, body = second.partition(b"\r\n\r\n")
        await client.send(first)
        stream = await client.stream_of()
        assert (await stream.message())["method"] == "notifications/message"
        await client.send(head + end)
        await settle()
        house.gates["gate"].set()
        assert "result" in (await stream.rest())[-1]
        assert (await client.answer()).status == 100
        await client.send(body)
        assert (await client.answer()).result


@pytest.mark.parametrize(
    ("method", "status"),
    [("PUT", 405), ("PATCH", 405), ("TRACE", 405), ("HEAD", 405), ("PROPFIND", 405), ("CONNECT", 501), ("BREW", 501)],
)
async def test_another_method_is_refused_and_told_which_ones_there_are(method: str, status: int) -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        await client.send(get(place, method=method))
        head = await client.head()
        assert head.status == status
        if status == 405:
            assert head.headers["allow"] == "POST, GET, DELETE, OPTIONS"
        body = await client.ended()
        assert (body == b"") is (method == "HEAD")  # which has no body whatever happens


async def test_options_are_answered_without_a_body() -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        await client.send(get(place, method="OPTIONS") + client.modern("server/discover"))
        answer = await client.answer()
        assert (answer.status, answer.headers["allow"]) == (204, "POST, GET, DELETE, OPTIONS")
        assert (await client.answer()).status == 200


@pytest.mark.parametrize(
    "target", ["/", "/mcp//", "/MCP", "/mcpx", "/sse", "/messages", "*", "/%6dcp", "//mcp", "/mcp#x"]
)
async def test_there_is_nothing_anywhere_else(target: str) -> None:
    async with serving(open_house().server) as place:
        answer = await place.ask(get(place, target))
        assert answer.status == 404


async def test_a_query_makes_no_difference() -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        await client.send(client.modern("server/discover").replace(b" /mcp ", b" /mcp?key=value "))
        assert (await client.answer()).status == 200


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        (f"{JSON}, text/event-stream", 200),
        ("*/*", 200),
        (None, 200),
        (JSON, 406),
        ("text/event-stream", 406),
        ("text/html", 406),
        (f"{JSON}, text/event-stream;q=0", 406),
    ],
)
async def test_a_client_must_take_both_json_and_streams(accept: str | None, status: int) -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        await client.send(client.modern("server/discover", headers={"accept": accept}))
        assert (await client.answer()).status == status


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        (JSON, 200),
        ("Application/Json; charset=utf-8", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("application/json-rpc", 415),
        ("", 415),
        (None, 415),
    ],
)
async def test_a_body_must_say_that_it_is_json(content_type: str | None, status: int) -> None:
    """What a page can send without asking first is not among it."""
    async with serving(open_house().server) as place:
        client = await place.connect()
        await client.send(client.modern("server/discover", headers={"content_type": content_type}))
        assert (await client.answer()).status == status


async def test_a_body_in_chunks_is_a_body() -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        data = client.modern("server/discover", "Transfer-Encoding: chunked", headers={"content_length": None})
        head, end, body = data.partition(b"\r\n\r\n")
        chunks = b"".join(
            b"%x;x=y\r\n%b\r\n" % (len(body[at : at + 9]), body[at : at + 9]) for at in range(0, len(body), 9)
        )
        await client.send(head + end + chunks + b"0\r\nX-Trailer: y\r\n\r\n" + client.modern("server/discover"))
        assert [(await client.answer()).status for _ in range(2)] == [200, 200]


async def test_every_byte_may_come_alone() -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        for byte in client.modern("tools/call", name="echo", arguments={"text": "x"}):
            await client.send(bytes((byte,)))
        assert (await client.answer()).result


async def test_a_client_of_java_offers_http_2_and_is_answered_all_the_same() -> None:
    offer = (
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
    )
    async with serving(open_house().server) as place:
        client = await place.connect()
        for _ in range(3):
            await client.send(client.modern("tools/call", *offer, name="echo", arguments={"text": "x"}))
            assert (await client.answer()).result


async def test_a_websocket_is_not_served_where_none_is_asked_for() -> None:
    async with serving(open_house().server) as place:
        lines = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: eA==")
        assert (await place.ask(get(place, "/mcp", *lines))).status == 501
