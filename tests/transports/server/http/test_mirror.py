"""Headers that repeat the body, on the wire: anything but equality is refused."""

import base64

import pytest

from tests.transports.server.http.house import open_house
from tests.transports.server.http.stage import VERSION, Client, Json, serving


def sentinel(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def call(client: Client, *lines: str, headers: Json | None = None, **arguments: object) -> bytes:
    return client.modern("tools/call", *lines, headers=headers, name="route", arguments=arguments)


async def status(client: Client, data: bytes) -> int:
    """200, or the code of the error, which must be a 400."""
    await client.send(data)
    answer = await client.answer()
    if answer.status == 200:
        assert answer.result
        return 200
    assert answer.status == 400
    assert "id" in answer.json
    return answer.code


GOOD: list[tuple[Json, tuple[str, ...]]] = [
    ({"city": "Oslo"}, ("Mcp-Param-City: Oslo",)),
    ({"city": "Oslo"}, ("mcp-param-CITY:   Oslo \t",)),
    ({"city": "Oslo"}, (f"Mcp-Param-City: {sentinel('Oslo')}",)),
    ({"city": "Málaga"}, (f"Mcp-Param-City: {sentinel('Málaga')}",)),
    ({"city": " padded "}, (f"Mcp-Param-City: {sentinel(' padded ')}",)),
    ({"city": "line1\nline2"}, (f"Mcp-Param-City: {sentinel('line1' + chr(10) + 'line2')}",)),
    ({"city": "=?base64?literal?="}, (f"Mcp-Param-City: {sentinel('=?base64?literal?=')}",)),
    ({"city": "=?base64?"}, ("Mcp-Param-City: =?base64?",)),
    ({"city": "=?BASE64?T3Nsbw==?="}, ("Mcp-Param-City: =?BASE64?T3Nsbw==?=",)),
    ({"city": ""}, ("Mcp-Param-City:",)),
    ({"city": "New York"}, ("Mcp-Param-City: New York",)),
    ({"city": "x", "zone": 42}, ("Mcp-Param-City: x", "Mcp-Param-Zone: 42")),
    ({"city": "x", "zone": 42}, ("Mcp-Param-City: x", "Mcp-Param-Zone: 42.0")),
    ({"city": "x", "zone": -7}, ("Mcp-Param-City: x", "Mcp-Param-Zone: -7")),
    ({"city": "x", "zone": 0}, ("Mcp-Param-City: x", "Mcp-Param-Zone: -0")),
    ({"city": "x", "zone": 2**53 - 1}, ("Mcp-Param-City: x", f"Mcp-Param-Zone: {2**53 - 1}")),
    ({"city": "x", "sure": True}, ("Mcp-Param-City: x", "Mcp-Param-Sure: true")),
    ({"city": "x", "sure": False}, ("Mcp-Param-City: x", "Mcp-Param-Sure: false")),
    ({"city": "x"}, ("Mcp-Param-City: x", "Mcp-Param-Zone: 42")),  # nothing to compare it with
    ({"city": "x"}, ("Mcp-Param-City: x", "Mcp-Param-Unknown: y")),
]


@pytest.mark.parametrize(("arguments", "lines"), GOOD)
async def test_what_agrees_is_served(arguments: Json, lines: tuple[str, ...]) -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        assert await status(client, call(client, *lines, **arguments)) == 200


BAD: list[tuple[Json, tuple[str, ...]]] = [
    ({"city": "Oslo"}, ()),
    ({"city": "Oslo"}, ("Mcp-Param-City: oslo",)),
    ({"city": "Oslo"}, ("Mcp-Param-City: Bergen",)),
    ({"city": "Oslo"}, ("Mcp-Param-City:",)),
    ({"city": ""}, ()),
    ({"city": "Oslo"}, ("Mcp-Param-City: Oslo", "Mcp-Param-City: Oslo")),
    ({"city": "Oslo"}, ("Mcp-Param-City: Oslo", "mcp-param-city: Bergen")),
    ({"city": "Oslo"}, ("Mcp_Param_City: Oslo",)),
    ({"city": "Oslo"}, ("Mcp-Param-City: Oslo", "Mcp_Param_City: Bergen")),
    ({"city": "Oslo"}, ("Mcp-Param-City: Oslo", "Mcp-Param_City: Oslo")),
    ({"city": "Oslo"}, ("Mcp-Param-City: =?base64?T3Nsbw?=",)),  # not padded
    ({"city": "Oslo"}, ("Mcp-Param-City: =?base64?T3Nsbx==?=",)),  # spare bits
    ({"city": "Oslo"}, ("Mcp-Param-City: =?base64?T3N sbw==?=",)),
    ({"city": "Oslo"}, ("Mcp-Param-City: =?base64?!!!!?=",)),
    ({"city": "Oslo"}, ("Mcp-Param-City: =?BASE64?T3Nsbw==?=",)),
    ({"city": "\ufffd"}, ("Mcp-Param-City: =?base64?/w==?=",)),
    ({"city": "Málaga"}, ("Mcp-Param-City: Málaga",)),
    ({"city": "x", "zone": 42}, ("Mcp-Param-City: x",)),
    ({"city": "x", "zone": 42}, ("Mcp-Param-City: x", "Mcp-Param-Zone: 43")),
    ({"city": "x", "zone": 42}, ("Mcp-Param-City: x", "Mcp-Param-Zone: 42.5")),
    ({"city": "x", "zone": 42}, ("Mcp-Param-City: x", "Mcp-Param-Zone: 0x2a")),
    ({"city": "x", "zone": 42}, ("Mcp-Param-City: x", "Mcp-Param-Zone: 4_2")),
    ({"city": "x", "zone": 42}, ("Mcp-Param-City: x", "Mcp-Param-Zone: +42")),
    ({"city": "x", "zone": 42}, ("Mcp-Param-City: x", "Mcp-Param-Zone: 042")),
    ({"city": "x", "zone": 2**53}, ("Mcp-Param-City: x", f"Mcp-Param-Zone: {2**53}")),
    ({"city": "x", "sure": True}, ("Mcp-Param-City: x", "Mcp-Param-Sure: True")),
    ({"city": "x", "sure": True}, ("Mcp-Param-City: x", "Mcp-Param-Sure: 1")),
]


@pytest.mark.requirement("M147")
@pytest.mark.parametrize(("arguments", "lines"), BAD)
async def test_what_does_not_agree_is_refused(arguments: Json, lines: tuple[str, ...]) -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        assert await status(client, call(client, *lines, **arguments)) == -32020


FIXED: list[tuple[dict[str, str | None], tuple[str, ...]]] = [
    ({"mcp_method": None}, ()),
    ({"mcp_method": ""}, ()),
    ({"mcp_method": "Tools/Call"}, ()),
    ({"mcp_method": "tools/list"}, ()),
    ({"mcp_method": "tools/call, tools/call"}, ()),
    ({"mcp_method": sentinel("tools/call")}, ()),
    ({}, ("Mcp-Method: tools/call",)),
    ({}, ("MCP-METHOD: tools/list",)),
    ({}, ("Mcp_Method: tools/call",)),
    ({"mcp_method": None}, ("Mcp_Method: tools/call",)),
    ({"mcp_name": None}, ()),
    ({"mcp_name": ""}, ()),
    ({"mcp_name": "Route"}, ()),
    ({"mcp_name": "echo"}, ()),
    ({"mcp_name": "=?base64?cm91dGU?="}, ()),
    ({}, ("Mcp-Name: route",)),
    ({}, ("Mcp_Name: echo",)),
    ({"mcp_protocol_version": None}, ()),
    ({}, (f"MCP-Protocol-Version: {VERSION}",)),
    ({}, ("Mcp-Protocol-Version: 2025-11-25",)),
    ({}, (f"Mcp_Protocol_Version: {VERSION}",)),
    ({"mcp_name": "r\xf6ute"}, ()),
]


@pytest.mark.parametrize(("headers", "lines"), FIXED)
async def test_method_name_and_version_are_said_once_and_alike(
    headers: dict[str, str | None], lines: tuple[str, ...]
) -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        data = call(client, "Mcp-Param-City: Oslo", *lines, headers=headers, city="Oslo")
        assert await status(client, data) == -32020


@pytest.mark.parametrize("name", ["route", "=?base64?cm91dGU=?="])
async def test_a_name_may_be_written_in_either_way(name: str) -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        data = call(client, "Mcp-Param-City: Oslo", headers={"mcp_name": name}, city="Oslo")
        assert await status(client, data) == 200


async def test_a_resource_is_mirrored_by_its_uri() -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        assert await status(client, client.modern("resources/read", uri="note://a")) == 200
        wrong = client.modern("resources/read", uri="note://a", headers={"mcp_name": "note://b"})
        assert await status(client, wrong) == -32020


async def test_a_tool_that_mirrors_nothing_minds_no_parameter_headers() -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        data = client.modern("tools/call", "Mcp-Param-Text: other", name="echo", arguments={"text": "x"})
        assert await status(client, data) == 200


async def test_the_same_head_does_not_vouch_for_another_body() -> None:
    """A head that was read before is remembered; what it says is compared with each body anew."""
    async with serving(open_house().server) as place:
        client = await place.connect()
        good = call(client, "Mcp-Param-City: Oslo", city="Oslo")
        bad = good.replace(b'"Oslo"', b'"oslO"')
        for _ in range(2):
            assert await status(client, good) == 200
            assert await status(client, bad) == -32020
        other = client.modern("tools/call", name="echo", arguments={"text": "12345"}, id=1)
        assert await status(client, other) == 200
        assert await status(client, other.replace(b'"name": "echo"', b'"name": "work"')) == -32020
