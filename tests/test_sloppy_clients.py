"""Clients that write null for what they do not have, and ids as large as they like, are served."""

from typing import Any

import msgspec
import pytest
from trio.testing import MockClock

from callboard import Context, Server
from callboard.codecs.revisions import LATEST, Revision
from callboard.codecs.revisions.revision import R1, R4, R5
from callboard.testing import Peer, connect
from tests.broker.back import Back, text
from tests.broker.front import brokered, peer


def greeting() -> Server:
    server = Server("s", offers=["completions"])

    @server.tool
    async def greet(name: str | None = None) -> str:
        return f"hello {name}"

    @server.prompt
    def ask(city: str = "Oslo") -> str:
        return city

    return server


def params(client: Peer, **said: Any) -> dict[str, Any]:
    return {**said, "_meta": client._meta() or None}


@pytest.mark.finding("protocol-1.11")
@pytest.mark.parametrize("revision", [LATEST, Revision.V2025_06_18])
async def test_nulls_for_absent_members_are_taken_for_absent(revision: Revision) -> None:
    async with connect(greeting(), revision) as client:
        asked: tuple[tuple[str, Any], ...] = (
            ("tools/list", params(client, cursor=None)),
            ("tools/call", params(client, name="greet", arguments=None)),
            ("tools/call", params(client, name="greet", arguments={"name": None}, requestState=None)),
            ("prompts/get", params(client, name="ask", arguments=None)),
            (
                "completion/complete",
                params(
                    client,
                    ref={"type": "ref/prompt", "name": "ask", "title": None},
                    argument={"name": "city", "value": "O"},
                    context={"arguments": None},
                ),
            ),
        )
        for number, (method, said) in enumerate(asked, 2**53):
            await client.say({"id": number, "method": method, "params": said})
            answer = await client.hear()
            assert answer["id"] == number
            assert "result" in answer, answer


@pytest.mark.finding("protocol-1.11")
async def test_a_handshake_with_nulls_is_a_handshake() -> None:
    server = greeting()
    async with connect(server, R5) as client:
        info = {"name": "c", "version": "1", "title": None, "icons": None, "websiteUrl": None}
        can = {"roots": None, "sampling": None, "elicitation": {"form": None}, "experimental": None}
        hello = {"protocolVersion": R4.value, "capabilities": can, "clientInfo": info, "_meta": None}
        await client.say({"id": 10**30, "method": "initialize", "params": hello})
        answer = await client.hear()
        assert (answer["id"], answer["result"]["protocolVersion"]) == (10**30, R4.value)
        await client.say({"method": "notifications/initialized", "params": None})
        await client.say({"id": 2, "method": "tools/list", "params": None})
        assert len((await client.hear())["result"]["tools"]) == 1


@pytest.mark.parametrize("revision", [LATEST, Revision.V2025_06_18])
async def test_settings_of_an_extension_that_are_null_or_no_object_refuse_no_client(revision: Revision) -> None:
    server, odd = greeting(), {"com.example/nil": None, "com.example/on": True}

    @server.tool
    async def declared(ctx: Context) -> dict[str, Any]:
        return {"all": [ctx.client_capabilities.extensions, ctx.client_capabilities.experimental]}

    async with connect(server, revision, capabilities={"extensions": odd, "experimental": odd}) as client:
        found = (await client.call("declared"))["content"][0]["text"]
        assert msgspec.json.decode(found) == {"all": [{"com.example/nil": {}}] * 2}


@pytest.mark.finding("protocol-1.11")
@pytest.mark.parametrize("behind", [R1, R4, R5])
@pytest.mark.parametrize("front", [R4, R5])
async def test_no_backend_gets_a_null_for_an_absent_member(
    front: Revision, behind: Revision, autojump_clock: MockClock
) -> None:
    back = Back(behind)
    async with brokered(back.ways) as host, peer(host, front, capabilities={}) as client:
        meta = {**client._meta(), "progressToken": None, "example.com/own": None}
        said = {"name": "book", "arguments": None, "requestState": None, "task": None, "_meta": meta}
        await client.say({"id": 2**60 + 1, "method": "tools/call", "params": said})
        line, request = await back.hear()
        got = request["params"]
        assert {key: value for key, value in got.items() if key != "_meta"} == {"name": "book"}
        assert [key for key, value in got["_meta"].items() if value is None] == ["example.com/own"]
        await line.answer(request, **text("done"))
        assert (await client.hear())["id"] == 2**60 + 1
