"""The official Python SDK of both eras (PyPI: mcp 2) on the tour. Runs in its environment."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.subscriptions import ResourceUpdated

from tests.clients.tour import MODEL_SAYS, ROOT, Progress, form, run


class Questions:
    """Answers what the server asks, and keeps it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.changes = asyncio.Queue[str]()

    async def elicit(self, context: Any, params: Any) -> Any:
        self.asked.append(params.message)
        return types.ElicitResult(action="accept", content=form(params.requested_schema))

    async def sample(self, context: Any, params: Any) -> Any:
        self.asked.append(params.messages[0].content.text)
        return types.CreateMessageResult(
            role="assistant", content=types.TextContent(type="text", text=MODEL_SAYS), model="m"
        )

    async def roots(self, context: Any) -> Any:
        self.asked.append("roots")
        return types.ListRootsResult(roots=[types.Root(uri=ROOT)])

    async def hear(self, message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            await self.changes.put(f"updated {message.params.uri}")
        elif isinstance(message, types.ToolListChangedNotification):
            await self.changes.put("tools changed")


class Visit:
    """A connected client in the words of the tour."""

    def __init__(self, client: Any, questions: Questions, *, modern: bool) -> None:
        self._client, self._questions, self._modern = client, questions, modern
        self.asked = questions.asked
        self.revision = str(client.protocol_version)

    async def names(self) -> dict[str, list[str]]:
        client = self._client
        return {
            "tools": [tool.name for tool in (await client.list_tools()).tools],
            "resources": [resource.uri for resource in (await client.list_resources()).resources],
            "templates": [
                template.uri_template for template in (await client.list_resource_templates()).resource_templates
            ],
            "prompts": [prompt.name for prompt in (await client.list_prompts()).prompts],
        }

    async def call(self, tool: str, arguments: Mapping[str, Any], progress: Progress | None = None) -> str:
        result = await self._client.call_tool(tool, dict(arguments), progress_callback=progress)
        return ("error: " if result.is_error else "") + str(result.content[0].text)

    async def read(self, uri: str) -> str:
        return str((await self._client.read_resource(uri)).contents[0].text)

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        return str((await self._client.get_prompt(name, arguments)).messages[0].content.text)

    async def complete(self, prompt: str, argument: str, value: str) -> list[str]:
        reference = types.PromptReference(type="ref/prompt", name=prompt)
        result = await self._client.complete(reference, {"name": argument, "value": value})
        return list(result.completion.values)

    async def give_up(self, call: asyncio.Task[str]) -> None:
        call.cancel()
        await asyncio.wait([call])

    @asynccontextmanager
    async def watch(self, uri: str) -> AsyncIterator[Callable[[], Awaitable[str]]]:
        if self._modern:
            async with self._client.listen(tools_list_changed=True, resource_subscriptions=[uri]) as events:

                async def next_change() -> str:
                    event = await anext(events)
                    return f"updated {event.uri}" if isinstance(event, ResourceUpdated) else "tools changed"

                yield next_change
        else:
            await self._client.subscribe_resource(uri)
            yield self._questions.changes.get
            await self._client.unsubscribe_resource(uri)


@asynccontextmanager
async def connect(wire: str, target: Mapping[str, Any]) -> AsyncIterator[Visit]:
    questions = Questions()
    modern = wire.endswith("modern")
    command, *arguments = target.get("command", [""])
    async with Client(
        target.get("url") or StdioServerParameters(command=command, args=arguments),
        mode="auto" if modern else "legacy",
        elicitation_callback=questions.elicit,
        sampling_callback=questions.sample,
        list_roots_callback=questions.roots,
        message_handler=questions.hear,
    ) as client:
        yield Visit(client, questions, modern=modern)


if __name__ == "__main__":
    run(connect)
