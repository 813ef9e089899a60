"""The tools that the official suite asks for in its scenarios of the tasks extension. Names and texts are its own."""

import attrs
import trio

from callboard import Context, Server, ToolError
from callboard.errors import InvalidParams

server = Server("tasks", version="1.0.0")


@attrs.define
class Confirmation:
    confirm: bool


@attrs.define
class Name:
    name: str


@server.tool
async def greet(name: str) -> str:
    """Greets someone; never a task."""
    return f"Hello, {name}!"


@server.tool(task="optional")
async def slow_compute(seconds: float, label: str = "") -> str:
    """Takes as long as it is told."""
    await trio.sleep(seconds)
    return f"computed {label} in {seconds:g} s"


@server.tool(task="required")
async def failing_job() -> str:
    """Fails after a second."""
    await trio.sleep(1)
    raise ToolError("the job failed")


@server.tool(task="required")
async def protocol_error_job() -> str:
    """Ends with an error of the protocol."""
    await trio.sleep(0.5)
    raise InvalidParams("the job met an error of the protocol")


@server.tool(task="required")
async def confirm_delete(filename: str, *, ctx: Context) -> str:
    """Asks first."""
    given = await ctx.elicit(f"Delete {filename}?", Confirmation)
    return f"deleted {filename}" if given.confirm else f"kept {filename}"


@server.tool(task="required")
async def multi_input(*, ctx: Context) -> str:
    """Asks two questions at once."""
    first, second = await ctx.ask_all(ctx.elicit("Your name?", Name), ctx.elicit("Your pet's name?", Name))
    return f"{first.name} and {second.name}"


@server.tool(task="optional")
async def test_tool_with_task(*, ctx: Context) -> str:
    """Asks for a name, and then becomes a task."""
    given = await ctx.elicit("Your name?", Name, key="name")
    await trio.sleep(1)
    return f"Hello, {given.name}!"
