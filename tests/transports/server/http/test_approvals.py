"""Calls that wait for a person, on the wire: streams are kept alive, and a client that leaves waits no longer."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from trio.testing import wait_all_tasks_blocked

from callboard import Server
from callboard.actors.rules import AccessRules, Approval, Rule
from callboard.codecs.caller import Caller
from callboard.codecs.revisions import LATEST, LEGACY, Revision
from callboard.errors import NOT_APPROVED
from callboard.transports.limits import Settings
from tests.transports.server.http.sessions import OpenSession
from tests.transports.server.http.stage import Place, serving
from tests.transports.server.websocket.stage import House, house

BEARER = "Authorization: Bearer x"


async def authenticate(_: str) -> Caller:
    return Caller(principal="ada", tenant="acme")


def made() -> Server:
    server = Server("disks")

    @server.tool
    async def wipe(disk: str = "") -> str:
        return f"wiped {disk}"

    return server


@asynccontextmanager
async def guarded(approve: Approval) -> AsyncIterator[Place]:
    async with serving(
        made(), authenticate=authenticate, settings=Settings(write_time=2.0, comment_every=0.5)
    ) as place:
        place.host.rules = AccessRules([Rule(tools=["wipe"], approve=approve)])
        yield place


async def waiting(place: Place | House) -> str:
    while not place.host.approvals.waiting:
        await wait_all_tasks_blocked(0.01)
    return next(iter(place.host.approvals.waiting))


async def test_the_stream_of_a_call_that_waits_is_kept_alive_until_the_operator_answers() -> None:
    async with guarded("operator") as place:
        client = await place.connect()
        await client.send(client.modern("tools/call", BEARER, name="wipe", arguments={"disk": "C:"}))
        stream = await client.stream_of()
        await stream.comment()
        await stream.comment()
        place.host.approvals.settle(await waiting(place), is_approved=True)
        assert (await stream.message())["result"]["content"][0]["text"] == "wiped C:"


async def test_a_no_ends_the_stream_with_the_error() -> None:
    async with guarded("operator") as place:
        client = await place.connect()
        await client.send(client.modern("tools/call", BEARER, name="wipe", arguments={}))
        place.host.approvals.settle(await waiting(place), is_approved=False)
        assert (await (await client.stream_of()).message())["error"]["code"] == NOT_APPROVED


async def test_a_client_that_leaves_waits_no_longer() -> None:
    async with guarded("operator") as place:
        client = await place.connect()
        await client.send(client.modern("tools/call", BEARER, name="wipe", arguments={}))
        await waiting(place)
        client.reset()
        while place.host.approvals.waiting:
            await wait_all_tasks_blocked(0.01)


async def test_a_session_waits_too() -> None:
    async with guarded("operator") as place:
        session = await OpenSession.open(place, max(LEGACY), BEARER)
        client = await session.begin("wipe", disk="C:")
        place.host.approvals.settle(await waiting(place), is_approved=True)
        assert b"wiped C:" in (await client.answer()).body


async def test_a_modern_client_is_asked_by_the_result() -> None:
    async with guarded("caller") as place:
        said: dict[str, Any] = {"name": "wipe", "arguments": {"disk": "C:"}}

        async def ask(**more: Any) -> Any:
            client = await place.connect()
            await client.send(client.modern("tools/call", BEARER, **said, **more))
            return json.loads((await client.answer()).body)["result"]

        asked = await ask()
        (key,) = asked["inputRequests"]
        assert "Tool: wipe" in asked["inputRequests"][key]["params"]["message"]
        answer = {key: {"action": "accept", "content": {"approve": True}}}
        done = await ask(inputResponses=answer, requestState=asked["requestState"])
        assert done["content"][0]["text"] == "wiped C:"


@pytest.mark.parametrize("revision", [LATEST, max(LEGACY)])
@pytest.mark.parametrize("approve", ["caller", "operator"])
async def test_over_a_websocket(revision: Revision, approve: Approval) -> None:
    said = {"elicitation/create": lambda _: {"action": "accept", "content": {"approve": True}}}
    async with house(made(), authenticate=authenticate) as place:
        place.host.rules = AccessRules([Rule(tools=["wipe"], approve=approve)])
        client = await place.peer(revision, answers=said, headers={"Authorization": "Bearer x"})
        if approve == "caller":
            result = await client.call("wipe", disk="C:")
        else:
            number = await client.begin("tools/call", name="wipe", arguments={"disk": "C:"})
            place.host.approvals.settle(await waiting(place), is_approved=True)
            result = await client.finish(number)
        assert result["content"][0]["text"] == "wiped C:"
