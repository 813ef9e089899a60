"""A call that is made as a task: from its request to its outcome, in both protocols."""

from collections.abc import Mapping
from typing import Any

from callboard.bench.work import succeeded
from callboard.client.client import Client
from callboard.codecs.bridge.tasks import has_task_extension, runs_tasks
from callboard.codecs.revisions import CallToolResult
from callboard.errors import CallboardError


class NoTasks(CallboardError):
    """The server runs no calls as tasks: what would be measured are plain calls."""


async def follow(client: Client, tool: str, arguments: Mapping[str, Any]) -> CallToolResult:
    """Start a task and follow it to its outcome. If it is given up, so is the task at the server.

    Raises `NoTasks`, `ToolFailed`, and what the client raises.
    """
    offered = client.server_capabilities
    if not (runs_tasks(client.revision, offered) or has_task_extension(client.revision, offered)):
        raise NoTasks("the server does not support tasks: use `call`")
    handle = await client.call_with(tool, arguments, task=True)
    return succeeded(tool, await handle.see_through())
