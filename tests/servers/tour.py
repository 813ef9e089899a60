"""What callboard's client does at a server, step by step, and what it hears."""

import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import attrs
import trio

from callboard.client import Client
from callboard.codecs.revisions import CallToolResult, TextContent
from tests.servers.running import Cutter

STEP_TIME: Final = 15.0
"""Seconds for one step. Each takes less than one; a step that hangs must not take the others with it."""

ROOT: Final = "file:///home/ada"
MODEL_SAYS: Final = "42"


def elicitation(params: Any) -> Mapping[str, Any]:
    """Fills in every form with the same name."""
    return dict.fromkeys(params.requested_schema.properties, "ada")


ANSWERS: Final[dict[str, Any]] = {
    "sampling": lambda _: MODEL_SAYS,
    "elicitation": elicitation,
    "roots": [ROOT],
}


def text(result: CallToolResult) -> str:
    block = result.content[0]
    assert isinstance(block, TextContent)
    return block.text


@attrs.frozen
class Visit:
    """A client at a server, and the wire between them, if that can be cut."""

    client: Client
    cutter: Cutter | None = None

    async def call(self, tool: str, /, **arguments: Any) -> str:
        return text(await self.client.call_with(tool, arguments))

    async def stepwise(self, tool: str, /, **arguments: Any) -> list[Any]:
        async with self.client.call_with(tool, arguments) as call:
            heard = [[update.progress, update.total] async for update in call.progress]
        return [*heard, text(call.result)]

    async def interrupted(self, tool: str, /, **arguments: Any) -> list[Any]:
        """The wire is cut when the first progress is heard."""
        assert self.cutter is not None
        heard = []
        async with self.client.call_with(tool, arguments) as call:
            async for update in call.progress:
                heard.append(update.progress)
                if len(heard) == 1:
                    self.cutter.cut()
        return [heard, text(call.result)]


async def names(visit: Visit) -> list[list[str]]:
    client = visit.client
    return [
        sorted(tool.name for tool in await client.tools())[:3],
        [resource.uri for resource in await client.resources()],
        [prompt.name for prompt in await client.prompts()],
    ]


async def echo(visit: Visit) -> str:
    return await visit.call("echo", text="hi")


async def fail(visit: Visit) -> bool:
    result = await visit.client.call("fail")
    return result.is_error is True and text(result) != ""


async def read(visit: Visit) -> str:
    contents: Any = (await visit.client.read("stage://note")).contents[0]
    return str(contents.text)


async def prompt(visit: Visit) -> str:
    message: Any = (await visit.client.prompt("invite", guest="ada")).messages[0]
    return str(message.content.text)


async def progress(visit: Visit) -> list[Any]:
    return await visit.stepwise("count", to=3, pause=0.1)  # what is said too fast for a busy machine is merged


async def ask(visit: Visit) -> str:
    return await visit.call("ask")


async def think(visit: Visit) -> str:
    return await visit.call("think")


async def look(visit: Visit) -> str:
    return await visit.call("look")


async def cancel(visit: Visit) -> str:
    tag = uuid.uuid4().hex
    async with visit.client.call("linger", tag=tag) as call:
        async for _ in call.progress:
            call.cancel()
    return await visit.call("was_cancelled", tag=tag)


async def watch(visit: Visit) -> list[str]:
    async with visit.client.listen(tools=True, resources=["stage://note"]) as changes:
        await visit.call("touch")
        return sorted([str(await anext(changes)), str(await anext(changes))])


async def resume(visit: Visit) -> list[Any]:
    return await visit.interrupted("count", to=4, pause=0.3)


EXPECTED: Final[Mapping[Callable[[Visit], Awaitable[Any]], Any]] = {
    names: [["ask", "count", "echo"], ["stage://note"], ["invite"]],
    echo: "hi",
    fail: True,
    read: "remember the milk",
    prompt: "Dear ada",
    progress: [[1, 3], [2, 3], [3, 3], "counted to 3"],
    ask: "hello ada",
    think: MODEL_SAYS,
    look: ROOT,
    cancel: "cancelled",
    watch: ["ListChanged(name='tools')", "ResourceUpdated(uri='stage://note')"],
    resume: [[1, 2, 3, 4], "counted to 4"],
}


async def heard(step: Callable[[Visit], Awaitable[Any]], visit: Visit) -> Any:
    """What a step ends with: what it returns, or what went wrong."""
    try:
        with trio.fail_after(STEP_TIME):
            return await step(visit)
    except Exception as error:  # whatever it is, it is what was heard, and the next step is taken
        return f"{type(error).__name__}: {error}"
