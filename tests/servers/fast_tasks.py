"""Tasks of PyPI's fastmcp 4 with fastmcp-tasks. Runs in its environment: `fast_tasks.py stdio`, or `http PORT`."""

import importlib
import sys
from typing import Any

import anyio
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

server = FastMCP("tasks", version="4")
server.add_extension(TasksExtension())

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


async def compute(seconds: float) -> str:
    await anyio.sleep(seconds)
    return f"computed in {seconds:g}"


async def fail() -> str:
    raise ToolError("it did not work")


async def ask(ctx: Context) -> Any:
    given = (ctx.input_responses or {}).get("who")
    if given is None:
        form = ElicitRequestFormParams(message="Who?", requested_schema=FORM)
        return InputRequiredResult(input_requests={"who": ElicitRequest(params=form)})
    return f"hello {given.content['name']}"


async def echo(text: str) -> str:
    return text


# Not by decorators: the library is not installed where types are checked.
server.tool(compute, task=True)
server.tool(fail, task=TaskConfig(mode="required"))
server.tool(ask, task=TaskConfig(mode="required"), output_schema=None)
server.tool(echo)

if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio", show_banner=False)
    else:
        app = server.http_app()
        importlib.import_module("uvicorn").run(app, port=int(sys.argv[2]), log_level="warning", ws="none")
