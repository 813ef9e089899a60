"""The client of PyPI's fastmcp 4 with fastmcp-tasks, at examples/everything.py. Runs in its environment:
`python -m tests.clients.fast_tasks URL` prints what it heard as one line of JSON."""

import asyncio
import json
import sys
from typing import Any

from fastmcp import Client
from fastmcp_tasks import call_tool_task


async def elicit(message: str, response_type: Any, params: Any, context: Any) -> Any:
    return {"confirm": True} if "Delete" in message else {"name": message}


async def main(url: str) -> None:
    async with Client(url, mode="auto", elicitation_handler=elicit) as client:

        async def text(tool: str, **arguments: Any) -> str:
            result = await client.call_tool(tool, arguments, raise_on_error=False)
            return ("error: " if result.is_error else "") + str(result.content[0].text)

        heard: dict[str, Any] = {"revision": str(client.protocol_version)}
        calls = {
            "plain": text("greet", name="Ada"),
            "task": text("slow_compute", seconds=1, label="x"),
            "asks": text("confirm_delete", filename="x"),
            "asks twice at once": text("multi_input"),
            "fails": text("failing_job"),
        }
        heard |= dict(zip(calls, await asyncio.gather(*calls.values()), strict=True))
        handle = await call_tool_task(client, "confirm_delete", {"filename": "y"})
        heard["begun"] = (await handle.status()).status in ("working", "input_required")
        await handle.cancel()
        heard["cancelled"] = (await handle.status()).status
        print(json.dumps(heard))  # noqa: T201  # that is its output


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
