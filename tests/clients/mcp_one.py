"""The official Python SDK of the legacy era (PyPI: mcp 1) on the tour. Runs in its environment."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from mcp import ClientSession, StdioServerParameters, stdio_client, types
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.websocket import websocket_client

from tests.clients.tour import MODEL_SAYS, ROOT, Progress, form, run


class Questions:
    """Answers what the server asks, and keeps it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.changes = asyncio.Queue[str]()

    async def elicit(self, context: Any, params: Any) -> Any:
        self.asked.append(params.message)
        return types.ElicitResult(action="accept", content=form(params.requestedSchema))

    async def sample(self, context: Any, params: Any) -> Any:
        self.asked.append(params.messages[0].content.text)
        return types.CreateMessageResult(
            role="assistant", content=types.TextContent(type="text", text=MODEL_SAYS), model="m"
        )

    async def roots(self, context: Any) -> Any:
        self.asked.append("roots")
        return types.ListRootsResult(roots=[types.Root(uri=ROOT)])

    async def hear(self, message: Any) -> None:
        match getattr(message, "root", None):
            case types.ResourceUpdatedNotification(params=params):
                await self.changes.put(f"updated {params.uri}")
            case types.ToolListChangedNotification():
                await self.changes.put("tools changed")


class Visit:
    """A connected client in the words of the tour."""

    def __init__(self, session: Any, questions: Questions, revision: str) -> None:
        self._session, self._questions = session, questions
        self.asked = questions.asked
        self.revision = revision

    async def names(self) -> dict[str, list[str]]:
        session = self._session
        return {
            "tools": [tool.name for tool in (await session.list_tools()).tools],
            "resources": [str(resource.uri) for resource in (await session.list_resources()).resources],
            "templates": [
                template.uriTemplate for template in (await session.list_resource_templates()).resourceTemplates
            ],
            "prompts": [prompt.name for prompt in (await session.list_prompts()).prompts],
        }

    async def call(self, tool: str, arguments: Mapping[str, Any], progress: Progress | None = None) -> str:
        result = await self._session.call_tool(tool, dict(arguments), progress_callback=progress)
        return ("error: " if result.isError else "") + str(result.content[0].text)

    async def read(self, uri: str) -> str:
        return str((await self._session.read_resource(uri)).contents[0].text)

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        return str((await self._session.get_prompt(name, arguments)).messages[0].content.text)

    async def complete(self, prompt: str, argument: str, value: str) -> list[str]:
        reference = types.PromptReference(type="ref/prompt", name=prompt)
        result = await self._session.complete(reference, {"name": argument, "value": value})
        return list(result.completion.values)

    async def give_up(self, call: asyncio.Task[str]) -> None:
        # This library tells nobody when a call is cancelled, and does not say under which id it went.
        last = self._session._request_id - 1
        params = types.CancelledNotificationParams(requestId=last, reason="no longer wanted")
        await self._session.send_notification(types.ClientNotification(types.CancelledNotification(params=params)))
        call.cancel()
        await asyncio.wait([call])

    @asynccontextmanager
    async def watch(self, uri: str) -> AsyncIterator[Callable[[], Awaitable[str]]]:
        await self._session.subscribe_resource(uri)
        yield self._questions.changes.get
        await self._session.unsubscribe_resource(uri)


def transport(wire: str, target: Mapping[str, Any]) -> AbstractAsyncContextManager[Any]:
    opened: AbstractAsyncContextManager[Any]
    match wire:
        case "http" | "asgi":
            opened = streamable_http_client(target["url"])
        case "sse":
            opened = sse_client(target["url"])
        case "ws":
            opened = websocket_client(target["url"])
        case _:
            command, *arguments = target["command"]
            opened = stdio_client(StdioServerParameters(command=command, args=arguments))
    return opened


@asynccontextmanager
async def connect(wire: str, target: Mapping[str, Any]) -> AsyncIterator[Visit]:
    questions = Questions()
    async with (
        transport(wire, target) as (reading, writing, *_),
        ClientSession(
            reading,
            writing,
            elicitation_callback=questions.elicit,
            sampling_callback=questions.sample,
            list_roots_callback=questions.roots,
            message_handler=questions.hear,
        ) as session,
    ):
        revision = (await session.initialize()).protocolVersion
        yield Visit(session, questions, str(revision))


if __name__ == "__main__":
    run(connect)
