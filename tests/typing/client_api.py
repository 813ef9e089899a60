"""The client API as a type checker sees it: an unused ignore below is a failure of `mypy --strict`."""

from collections.abc import Sequence
from typing import assert_type

from callboard import Asked, Client, Command, ManualClient, Patience, Revision, Server, connect
from callboard.actors.changes import ListChanged, ResourceUpdated
from callboard.codecs.revisions import (
    CallToolResult,
    ClientCapabilities,
    ElicitResult,
    GetPromptResult,
    ReadResourceResult,
    Tool,
)


async def targets(server: Server) -> None:
    async with connect("http://127.0.0.1:8000/mcp", headers={"X-Key": "k"}, revision="2025-11-25") as client:
        assert_type(client, Client)
    async with connect(["python", "server.py"], patience=Patience(timeout=5)):
        pass
    async with connect(Command(args=("python",), env={"A": "1"}), roots=["file:///"]):
        pass
    async with connect(server, sampling=lambda params: "text", elicitation=lambda params: None):
        pass
    async with connect(7):  # type: ignore[call-overload]
        pass


async def calls(client: Client) -> None:
    assert_type(client.revision, Revision)
    assert_type(await client.tools(), Sequence[Tool])
    assert_type(await client.call("x", city="Oslo", days=3), CallToolResult)
    async with client.call_with("x", {"not-a-name": 1}) as call:
        async for update in call.progress:
            assert_type(update.progress, float)
    assert_type(call.result, CallToolResult)
    assert_type(await client.read("x://y"), ReadResourceResult)
    assert_type(await client.prompt("x", guest="ada"), GetPromptResult)
    await client.prompt("x", guest=7)  # type: ignore[arg-type]
    async with client.listen(tools=True, resources=["x://y"]) as changes:
        async for change in changes:
            assert_type(change, ListChanged | ResourceUpdated)


async def rounds(server: Server) -> None:
    async with connect(server, input="answer") as plain:
        assert_type(plain, Client)
    async with connect(server, capabilities=ClientCapabilities()):  # type: ignore[call-overload]
        pass
    async with connect(server, input="manual", capabilities=ClientCapabilities(), patience=Patience(cap=9)) as client:
        assert_type(client, ManualClient)
        assert_type(await client.tools(), Sequence[Tool])
        got = await client.call("x", city="Oslo")
        assert_type(got, CallToolResult | Asked[CallToolResult])
        assert got.content  # type: ignore[union-attr]
        while isinstance(got, Asked):
            got = await client.answer(got, {key: ElicitResult(action="decline") for key in got.questions})
        assert_type(got, CallToolResult)
        read = await client.read("x://y")
        if isinstance(read, Asked):
            assert_type(await client.answer(read), ReadResourceResult | Asked[ReadResourceResult])
            await client.answer(read, {"key": "yes"})  # type: ignore[dict-item]
        assert_type(await client.prompt("x", guest="ada"), GetPromptResult | Asked[GetPromptResult])
