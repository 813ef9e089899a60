"""Backends that make a broker hold as much as it lets them, and the client that gives them the occasion."""

from collections.abc import Mapping
from typing import Any, Final

import trio

from benchmarks.memory_clients import CAPABLE, Act, Aim, Did, held
from tests.soak.clients import Answer, ask, frame_of, head_of, modern, session_at

PATIENCE: Final = 20.0


async def call(aim: Aim, tool: str, **more: Any) -> Answer:
    """Call a tool of the backend, once its lists were read. Status 0: there was no answer in time."""
    frame = modern("tools/call", name=f"b0__{tool}", arguments={}, **more)
    answer = Answer(0, {}, b"")
    with trio.move_on_after(PATIENCE):
        while not answer.message().get("result"):
            answer = await ask(aim.url, frame)
            await trio.sleep(0.1)
    return answer


async def listed(aim: Aim) -> Did:
    """Wait until the lists were read, and ask for them."""
    await call(aim, "noop")
    await ask(aim.url, modern("tools/list"))
    return Did("60 pages of 3.9 MB")


async def defined(aim: Aim) -> Did:
    await call(aim, "noop")
    await ask(aim.url, modern("tools/list"))
    return Did("a tool of 3.9 MB")


async def results(aim: Aim) -> Did:
    await call(aim, "noop")
    frame = modern("tools/call", name="b0__result", arguments={})
    for _ in range(aim.few // 2):
        await aim.stack.enter_async_context(held(aim.url, head_of(aim.url, frame) + frame))
    await trio.sleep(3)
    return Did(f"{aim.few // 2} results of 3.9 MB that are not read")


async def notifications(aim: Aim) -> Did:
    await call(aim, "notify", meta={"io.modelcontextprotocol/logLevel": "debug"})
    return Did("as many as fit through the pipe in 4 s, 60 kB each")


async def stderr(aim: Aim) -> Did:
    await call(aim, "complain")
    return Did("as much as fits through the pipe in 4 s")


async def questions(aim: Aim) -> Did:
    await call(aim, "noop")
    with trio.move_on_after(PATIENCE):
        await ask(aim.url, modern("tools/call", name="b0__question", arguments={}, meta=CAPABLE))
    return Did("2,000 questions of 60 kB about one call")


async def updates(aim: Aim) -> Did:
    await call(aim, "noop")
    for _ in range(10):
        session = await session_at(aim.url)
        await ask(aim.url, frame_of("resources/subscribe", uri="memory://one"), session=session)
    await call(aim, "update")
    await trio.sleep(1)
    return Did("20,000 of 4 kB, ten sessions follow and have left")


async def giant(aim: Aim) -> Did:
    await call(aim, "noop")
    with trio.move_on_after(PATIENCE):
        await ask(aim.url, modern("tools/call", name="b0__giant", arguments={}))
    return Did("a line of 256 MiB")


ACTS: Final[Mapping[str, Act]] = {
    "lists": listed,
    "definitions": defined,
    "results": results,
    "notifications": notifications,
    "stderr": stderr,
    "questions": questions,
    "updates": updates,
    "giant": giant,
}
