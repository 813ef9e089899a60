"""The client of PyPI's fastmcp 4 on the tour, in both eras. Runs in its environment."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastmcp import Client
from fastmcp.client.messages import MessageHandler
from fastmcp.client.transports import StdioTransport
from mcp.client.subscriptions import ResourceUpdated, listen
from mcp_types import PromptReference

from tests.clients.tour import MODEL_SAYS, ROOT, Progress, form, run


class Questions(MessageHandler):  # type: ignore[misc]  # the library is not installed where types are checked
    """Answers what the server asks, and keeps it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.changes = asyncio.Queue[str]()

    async def elicit(self, message: str, response_type: Any, params: Any, context: Any) -> Any:
        self.asked.append(message)
        return form(params.requested_schema)

    async def sample(self, messages: Any, params: Any, context: Any) -> str:
        self.asked.append(messages[0].content.text)
        return MODEL_SAYS

    async def roots(self, context: Any) -> list[str]:
        self.asked.append("roots")
        return [ROOT]

    async def on_resource_updated(self, message: Any) -> None:
        await self.changes.put(f"updated {message.params.uri}")

    async def on_tool_list_changed(self, message: Any) -> None:
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
            "tools": [tool.name for tool in await client.list_tools()],
            "resources": [str(resource.uri) for resource in await client.list_resources()],
            "templates": [template.uri_template for template in await client.list_resource_templates()],
            "prompts": [prompt.name for prompt in await client.list_prompts()],
        }

    async def call(self, tool: str, arguments: Mapping[str, Any], progress: Progress | None = None) -> str:
        result = await self._client.call_tool(tool, dict(arguments), progress_handler=progress, raise_on_error=False)
        return ("error: " if result.is_error else "") + str(result.content[0].text)

    async def read(self, uri: str) -> str:
        return str((await self._client.read_resource(uri))[0].text)

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        return str((await self._client.get_prompt(name, arguments)).messages[0].content.text)

    async def complete(self, prompt: str, argument: str, value: str) -> list[str]:
        reference = PromptReference(type="ref/prompt", name=prompt)
        return list((await self._client.complete(reference, {"name": argument, "value": value})).values)

    async def give_up(self, call: asyncio.Task[str]) -> None:
        call.cancel()
        await asyncio.wait([call])

    @asynccontextmanager
    async def watch(self, uri: str) -> AsyncIterator[Callable[[], Awaitable[str]]]:
        session = self._client.session  # the library has no words of its own for subscriptions
        if self._modern:
            async with listen(session, tools_list_changed=True, resource_subscriptions=[uri]) as events:

                async def next_change() -> str:
                    event = await anext(events)
                    return f"updated {event.uri}" if isinstance(event, ResourceUpdated) else "tools changed"

                yield next_change
        else:
            await session.subscribe_resource(uri)
            yield self._questions.changes.get
            await session.unsubscribe_resource(uri)


@asynccontextmanager
async def connect(wire: str, target: Mapping[str, Any]) -> AsyncIterator[Visit]:
    questions = Questions()
    modern = wire.endswith("modern")
    command, *arguments = target.get("command", [""])
    async with Client(
        target.get("url") or StdioTransport(command, arguments, keep_alive=False),
        mode="auto" if modern else "legacy",
        elicitation_handler=questions.elicit,
        sampling_handler=questions.sample,
        roots=questions.roots,
        message_handler=questions,
    ) as client:
        yield Visit(client, questions, modern=modern)


if __name__ == "__main__":
    run(connect)
