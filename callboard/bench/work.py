"""The requests of a load: calls, reads and lists, with their weights."""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import attrs
from msgspec import UNSET

from callboard.client.client import Client
from callboard.codecs.revisions import CallToolResult, Model, TextContent, Tool
from callboard.errors import CallboardError

Kind: TypeAlias = Literal["call", "read", "list"]

MAX_NAMED: Final = 12
"""Tools that are named to a user that must choose one."""


MAX_SAID: Final = 200
"""Characters of what a tool says when it fails."""


class NothingToDo(CallboardError):
    """It is not clear what to ask of the server. One line says what could be named."""


class ToolFailed(CallboardError):
    """A tool answered that it failed: for a load test that is an error as well."""


@attrs.frozen(kw_only=True, eq=False)
class Act:
    """One kind of request. Two that look the same are two."""

    kind: Kind
    name: str = ""
    arguments: Mapping[str, Any] = attrs.field(factory=dict)
    weight: float = attrs.field(default=1.0, validator=attrs.validators.gt(0))

    def __str__(self) -> str:
        return "list tools" if self.kind == "list" else f"{self.kind} {self.name}"

    async def do(self, client: Client) -> Model:
        """Make the request, and return its result. Raises `ToolFailed`, and what the client raises."""
        if self.kind == "call":
            return succeeded(self.name, await client.call_with(self.name, self.arguments))
        if self.kind == "read":
            return await client.read_anew(self.name)
        return await client.list_anew()


def succeeded(tool: str, result: CallToolResult) -> CallToolResult:
    """The result of a *tool*. Raises `ToolFailed` if it says that it is none."""
    if result.is_error is True:
        raise ToolFailed(f"the tool {tool} failed: {_said(result)}")
    return result


def _said(result: CallToolResult) -> str:
    said = next((block.text for block in result.content if isinstance(block, TextContent)), "no reason given")
    return " ".join(said[:MAX_SAID].split())


@attrs.frozen
class Work:
    """Requests and their proportions."""

    acts: tuple[Act, ...]

    def choose(self, chance: random.Random) -> Act:
        """The next one."""
        if len(self.acts) == 1:
            return self.acts[0]
        return chance.choices(self.acts, [act.weight for act in self.acts])[0]

    def __str__(self) -> str:
        return ", ".join(map(str, self.acts))


def harmless(tools: Sequence[Tool]) -> Act:
    """A tool that may be called over and over without knowing it: it says that it only reads, and
    needs no arguments. Raises `NothingToDo` with what could be named instead."""
    for tool in tools:
        only_reads = tool.annotations is not UNSET and tool.annotations.read_only_hint is True
        if only_reads and not tool.input_schema.get("required"):
            return Act(kind="call", name=tool.name)
    if not tools:
        raise NothingToDo("the server has no tools: choose a request with --read URI or --list")
    named = ", ".join(tool.name for tool in tools[:MAX_NAMED]) + (", ..." if len(tools) > MAX_NAMED else "")
    raise NothingToDo(
        f"no tool is marked read-only and needs no arguments; choose one with --tool, or use --list: {named}"
    )
