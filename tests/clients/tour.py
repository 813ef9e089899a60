"""What a client in Python does at callboard's stage, whatever its library; it says in JSON lines what it heard.

Runs in the environment of the library: only Python's own modules are imported here.
"""

import asyncio
import json
import sys
import traceback
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

STEP_TIME = 10.0
"""Seconds for one step. Each takes less than one; a step that hangs must not take the others with it."""
WIRE_TIME = 30.0
"""Seconds for all steps over one wire, from connecting to closing."""

ANSWERS = {"username": "ada", "email": "ada@example.org", "name": "Ada", "colour": "green"}
"""What the user writes into a form, field by field."""
MODEL_SAYS = "Paris"
ROOT = "file:///home/ada"

Progress = Callable[[float, float | None, str | None], Awaitable[None]]


class Visitor(Protocol):
    """A connected client, in the words of the tour. What it was asked on the way is in `asked`."""

    asked: list[str]
    revision: str

    async def names(self) -> dict[str, list[str]]: ...
    async def call(self, tool: str, arguments: Mapping[str, Any], progress: Progress | None = None) -> str: ...
    async def read(self, uri: str) -> str: ...
    async def prompt(self, name: str, arguments: dict[str, str]) -> str: ...
    async def complete(self, prompt: str, argument: str, value: str) -> list[str]: ...
    async def give_up(self, call: asyncio.Task[str]) -> None:
        """Cancel a call, as a user of the library does."""

    def watch(self, uri: str) -> AbstractAsyncContextManager[Callable[[], Awaitable[str]]]:
        """Subscribe to a resource and to the list of tools: inside, the next change that is heard."""
        ...


Connect = Callable[[str, Mapping[str, Any]], AbstractAsyncContextManager[Visitor]]


def run(connect: Connect) -> None:
    """Tour every wire that the command line names: {"http": {"url": ...}, "stdio": {"command": [...]}, ...}."""
    asyncio.run(_tour(connect, json.loads(sys.argv[1])))


async def _tour(connect: Connect, targets: Mapping[str, Mapping[str, Any]]) -> None:
    for wire, target in targets.items():
        await _hear(wire, "close", WIRE_TIME, _visit(connect, wire, target))


async def _visit(connect: Connect, wire: str, target: Mapping[str, Any]) -> str:
    async with connect(wire, target) as visitor:
        for step in STEPS:
            visitor.asked.clear()
            await _hear(wire, step.__name__, STEP_TIME, step(visitor))
    return "closed"


async def _hear(wire: str, step: str, seconds: float, heard: Awaitable[Any]) -> None:
    said: dict[str, Any]
    try:
        async with asyncio.timeout(seconds):
            said = {"heard": await heard}
    except Exception as error:  # whatever a library raises is what was heard, and the next step is taken
        traceback.print_exc()
        said = {"error": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps({"wire": wire, "step": step, **said}) + "\n")
    sys.stdout.flush()


def form(schema: Mapping[str, Any]) -> dict[str, str]:
    return {name: ANSWERS[name] for name in schema["properties"]}


async def negotiate(visitor: Visitor) -> str:
    return visitor.revision


async def list_all(visitor: Visitor) -> dict[str, list[str]]:
    return {kind: sorted(names) for kind, names in (await visitor.names()).items()}


async def call(visitor: Visitor) -> str:
    return await visitor.call("test_simple_text", {})


async def fail(visitor: Visitor) -> str:
    return await visitor.call("test_error_handling", {})


async def read(visitor: Visitor) -> str:
    return await visitor.read("test://static-text")


async def prompt(visitor: Visitor) -> str:
    return await visitor.prompt("test_prompt_with_arguments", {"arg1": "one", "arg2": "two"})


async def complete(visitor: Visitor) -> list[str]:
    return await visitor.complete("test_prompt_with_arguments", "arg1", "testi")


async def progress(visitor: Visitor) -> list[Any]:
    reports: list[Any] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        reports.append([progress, total, message])

    return [await visitor.call("test_tool_with_progress", {}, note), *reports]


async def elicit(visitor: Visitor) -> list[str]:
    return [await visitor.call("test_elicitation", {"message": "Who are you?"}), *visitor.asked]


async def sample(visitor: Visitor) -> list[str]:
    return [await visitor.call("test_sampling", {"prompt": "Capital of France?"}), *visitor.asked]


async def roots(visitor: Visitor) -> list[str]:
    return [await visitor.call("test_input_required_result_list_roots", {}), *visitor.asked]


async def two_rounds(visitor: Visitor) -> list[str]:
    return [await visitor.call("test_input_required_result_multi_round", {}), *visitor.asked]


async def cancel(visitor: Visitor) -> str:
    tag = uuid.uuid4().hex
    here = asyncio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        here.set()

    call = asyncio.create_task(visitor.call("linger", {"tag": tag}, note))
    await here.wait()
    await visitor.give_up(call)
    return await visitor.call("was_cancelled", {"tag": tag})


async def subscribe(visitor: Visitor) -> list[str]:
    tag = uuid.uuid4().hex
    async with visitor.watch(f"stage://{tag}/watched") as next_change:
        await visitor.call("touch", {"tag": tag})
        first = await next_change()
        await visitor.call("test_trigger_tool_change", {})
        return [first.replace(tag, "TAG"), await next_change()]


STEPS: tuple[Callable[[Visitor], Coroutine[Any, Any, Any]], ...] = (
    *(negotiate, list_all, call, fail, read, prompt, complete, progress),
    *(elicit, sample, roots, two_rounds, cancel, subscribe),
)
