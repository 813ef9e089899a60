"""The reference server of the protocol's authors, npm's server-everything, over each of its transports."""

from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio

from callboard.client import connect
from callboard.codecs.revisions import ElicitRequestURLParams, ImageContent
from callboard.errors import ServerRefused
from callboard.transports.client.process import Command
from tests.node import needs_npm, node
from tests.servers.running import EVERYTHING, cuttable, listening, packages
from tests.servers.tour import MODEL_SAYS, ROOT, Visit, text

PATIENCE = 60.0
FORM = {"name": "ada", "check": True, "email": "ada@example.org", "integer": 7}


def elicitation(params: Any) -> Any:
    return True if isinstance(params, ElicitRequestURLParams) else FORM


@needs_npm
@pytest.mark.parametrize("way", ["stdio", "streamableHttp", "sse"])
async def test_the_reference_server_is_spoken_to(way: str) -> None:
    logs: list[Any] = []
    command = [str(node()), EVERYTHING, way]
    async with AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(PATIENCE))
        target: Any = Command(args=tuple(command), cwd=str(packages()))
        cutter = None
        if way != "stdio":
            path = "/sse" if way == "sse" else "/mcp"
            url = await stack.enter_async_context(listening(command, packages(), path))
            target, cutter = await stack.enter_async_context(cuttable(url))
        client = await stack.enter_async_context(
            connect(
                target,
                sampling=lambda _: MODEL_SAYS,
                elicitation=elicitation,
                roots=[ROOT],
                on_log=logs.append,
                on_stderr=lambda _: None,
            )
        )
        visit = Visit(client, cutter)
        assert client.revision == "2025-11-25"
        assert client.server_info is not None
        assert "everything" in client.server_info.name

        tools = {tool.name for tool in await client.tools()}
        assert {"echo", "trigger-sampling-request", "trigger-elicitation-request", "get-roots-list"} <= tools
        assert len(await client.resources()) == 7
        assert len(await client.templates()) == 2
        assert len(await client.prompts()) == 4

        assert await visit.call("echo", message="hi") == "Echo: hi"
        assert "is 5" in await visit.call("get-sum", a=2, b=3)
        weather = await client.call("get-structured-content", location="New York")
        assert weather.structured_content == {"temperature": 33, "conditions": "Cloudy", "humidity": 82}
        picture = await client.call("get-tiny-image")
        assert any(isinstance(block, ImageContent) for block in picture.content)
        contents: Any = (await client.read("demo://resource/dynamic/text/1")).contents[0]
        assert "Resource 1" in contents.text
        message: Any = (await client.prompt("args-prompt", city="Oslo")).messages[0]
        assert "Oslo" in message.content.text
        assert await client.complete("completable-prompt", "department", "E") == ["Engineering"]

        steps = await visit.stepwise("trigger-long-running-operation", duration=0.3, steps=3)
        assert steps[:-1] == [[1, 3], [2, 3], [3, 3]]
        assert MODEL_SAYS in await visit.call("trigger-sampling-request", prompt="What?", maxTokens=10)
        answered = await client.call("trigger-elicitation-request")
        assert "ada@example.org" in str(answered.content)
        assert ROOT in await visit.call("get-roots-list")
        consented = await client.call_with("trigger-url-elicitation", {"url": "https://example.org/"})
        assert "https://example.org/" in str(consented.content)
        with pytest.raises(ServerRefused) as refused:
            await client.call_with("trigger-url-elicitation", {"url": "https://example.org/", "errorPath": True})
        assert refused.value.error_code == -32042

        async with client.call_with("trigger-long-running-operation", {"duration": 30, "steps": 60}) as call:
            async for _ in call.progress:
                call.cancel()
        uri = "demo://resource/dynamic/text/1"
        async with client.listen(resources=[uri]) as changes:
            await visit.call("toggle-subscriber-updates")
            assert uri in str(await anext(changes))
            await visit.call("toggle-subscriber-updates")
        await client.set_log_level("debug")
        assert any("Subscribe" in str(said.data) for said in logs)

        if way == "streamableHttp":
            progressed, done = await visit.interrupted("trigger-long-running-operation", duration=1.2, steps=4)
            assert progressed == [1, 2, 3, 4]
            assert "completed" in done
            assert cutter is not None
            assert cutter.cuts == 1
        assert text(await client.call("echo", message="bye")) == "Echo: bye"
