"""A broker in several processes: what its workers share of the backends exists once, and outlives them."""

import os
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from tests.shared import APPS
from tests.transports.server.http.stage import META, Answer
from tests.workers.crowd import Crowd, children, crowd, said

COUNTED: Final = APPS / "counted.py"
NOTE: Final = "callboard://once/note%3A%2F%2Ftoday"
PLAIN: Final[dict[str, Any]] = {f"{META}clientCapabilities": {}}
BACK: Final = 10.0
"""Seconds in which backends are back whose keeper was killed. `tests/soak` wants three, with no tests beside it."""

LEGACY: Final = 'revision = "2025-06-18"'


def write(file: Path, **servers: str) -> Path:
    """A configuration: each server runs `counted.py`, with these settings."""
    texts = [
        f"[mcpServers.{name}]\ncommand = {sys.executable!r}\n"
        f"args = ['-m', 'callboard', 'run', '{COUNTED}']\n[mcpServers.{name}.callboard]\n{settings}\n"
        for name, settings in servers.items()
    ]
    beside = file.with_suffix(".new")
    beside.write_text("\n".join(texts))
    beside.replace(file)
    return file


async def wait_until(is_so: Callable[[], bool], within: float = 30.0) -> float:
    """Seconds until it is so."""

    async def look() -> bool:
        return is_so()

    return await wait_found(look, within)


async def wait_found(find: Callable[[], Awaitable[bool]], within: float = 30.0) -> float:
    began = trio.current_time()
    with trio.fail_after(within):
        while not await find():  # noqa: ASYNC110 -- processes set no events here
            await trio.sleep(0.05)
    return trio.current_time() - began


async def count(many: Crowd, name: str = "once__count", token: str | None = None) -> tuple[int, int]:
    """The count of a backend, and its process. The client can be asked nothing: so all may share a connection."""
    number, pid = said(await many.modern("tools/call", token=token, meta=PLAIN, name=name, arguments={}))
    return number, pid


def is_alive(pid: int) -> bool:
    try:
        state = re.search(r"State:\s+(\w)", Path(f"/proc/{pid}/status").read_text())
    except FileNotFoundError:
        return False
    return state is not None and state[1] != "Z"


async def test_a_stdio_backend_runs_once_and_outlives_workers(tmp_path: Path) -> None:
    config = write(tmp_path / "servers.toml", once=f'{LEGACY}\nshare = "all"')
    async with crowd(command="serve", app=config, workers=3, patience=90.0) as many:
        [keeper] = many.keepers()
        assert len(many.workers()) == 3
        counts = [await count(many) for _ in range(12)]
        [process] = {pid for _, pid in counts}
        assert [number for number, _ in counts] == list(range(1, 13))
        assert children(keeper) == [process]
        lists = [(await many.modern("tools/list")).result["tools"] for _ in range(12)]
        assert [one["name"] for one in lists[0]][:2] == ["once__count", "once__ask"]
        assert all(one == lists[0] for one in lists)
        # On the way: progress, questions, cancellation, changes.
        assert await progress_of(many) == [1, 2, 3]
        assert (await ask(many)).endswith(" Ada")  # in a process for clients that can be asked this
        await cancel(many)
        await follow(many)
        # A worker that is killed takes nothing along but its own.
        victim = many.workers()[0]
        os.kill(victim, signal.SIGKILL)
        await wait_until(lambda: not is_alive(victim))
        assert await count(many) == (13, process)
        await wait_until(lambda: many.process.words.count("worker_serves") == 4)
        # The keeper that is killed is back soon, and its backends with it: they are new.
        os.kill(keeper, signal.SIGKILL)
        await wait_until(lambda: not is_alive(keeper))
        await wait_found(partial(counts_again, many), BACK)
        number, new = await count(many)
        assert (number, new != process) == (2, True)
        await wait_until(lambda: not is_alive(process))
        left = [*many.workers(), many.keepers()[-1]]
        left += [pid for parent in left for pid in children(parent)]
        many.process.signal(signal.SIGTERM)
        assert await many.process.wait() == 0
        assert [pid for pid in left if is_alive(pid)] == []


async def counts_again(many: Crowd) -> bool:
    return "result" in (await many.modern("tools/call", meta=PLAIN, name="once__count", arguments={})).json


async def progress_of(many: Crowd) -> list[float]:
    async with many.client() as client:
        arguments: dict[str, Any] = {"name": "once__slow", "arguments": {"steps": 3}}
        await client.send(client.modern("tools/call", meta={"progressToken": "p"}, **arguments))
        stream = await client.stream_of()
        messages = [await stream.message() for _ in range(4)]
    assert "result" in messages[-1]
    return [message["params"]["progress"] for message in messages[:-1]]


async def ask(many: Crowd) -> str:
    """A tool asks, and its client answers on another connection: at any worker."""
    params: dict[str, Any] = {"name": "once__ask", "arguments": {}}
    asked: Answer = await many.modern("tools/call", **params)
    [key] = asked.result["inputRequests"]
    answers = {key: {"action": "accept", "content": {"name": "Ada"}}}
    state = asked.result["requestState"]
    answer = await many.modern("tools/call", inputResponses=answers, requestState=state, **params)
    words: str = answer.result["content"][0]["text"]
    return words


async def cancel(many: Crowd) -> None:
    """A client that leaves cancels its call at the backend."""
    async with many.client() as client:
        await client.send(client.modern("tools/call", name="once__wait", arguments={"seconds": 60}))
        await trio.sleep(0.3)
        assert await many.call("once__cancelled") == 0

    async def is_cancelled() -> bool:
        return bool(await many.call("once__cancelled"))

    await wait_found(is_cancelled)


async def follow(many: Crowd) -> None:
    """Followers at any worker hear of a change at the one backend."""
    async with AsyncExitStack() as stack:
        streams = []
        for _ in range(6):
            client = await stack.enter_async_context(many.client())
            wanted = {"resourceSubscriptions": [NOTE]}
            await client.send(client.modern("subscriptions/listen", notifications=wanted))
            streams.append(await client.stream_of())
            assert (await streams[-1].message())["params"]["notifications"] == wanted
        await many.call("once__change")
        for stream in streams:
            assert (await stream.message())["params"]["uri"] == NOTE


async def test_reloads_and_generations_leave_what_workers_share_as_it_is(tmp_path: Path) -> None:
    config = write(tmp_path / "servers.toml", once=LEGACY, mine=f'{LEGACY}\nshare = "session"', own="local = true")
    tokens = tmp_path / "tokens"
    tokens.write_text("ann first-token-of-all\nbob second-token-of-all\n")
    tokens.chmod(0o600)
    ann, bob = "first-token-of-all", "second-token-of-all"
    async with crowd("--token-file", str(tokens), command="serve", app=config, patience=90.0) as many:
        [keeper] = many.keepers()
        # Each principal has a process, and each session that wants one.
        calls = [(token, await count(many, token=token)) for token in (ann, bob) * 5]
        processes = {token: {pid for one, (_, pid) in calls if one == token} for token in (ann, bob)}
        assert [len(some) for some in processes.values()] == [1, 1]
        assert processes[ann] != processes[bob]
        assert [number for token, (number, _) in calls if token == ann] == [1, 2, 3, 4, 5]
        session = await many.session(ann)
        [_, mine] = await session.call("mine__count")
        # What is local, each worker has for itself.
        own = {pid for _, pid in [await count(many, "own__count", ann) for _ in range(20)]}
        assert own == {pid for worker in many.workers() for pid in children(worker)}
        assert len(own) == 2
        # Another backend, while it runs: a new name for the first one starts nothing anew.
        before = many.workers()
        write(config, once=f'{LEGACY}\nprefix = "first"', mine=f'{LEGACY}\nshare = "session"', more='share = "all"')
        await wait_found(partial(lists, many, ann, {"first", "mine", "more"}))
        number, pid = await count(many, "first__count", ann)
        assert (number, {pid}) == (6, processes[ann])
        assert len(children(keeper)) == 6  # one for the lists of each, ann's, bob's, and the session's
        # The next generation: the keeper and its backends stay.
        many.process.signal(signal.SIGHUP)
        await wait_until(lambda: not set(many.workers()) & set(before), within=15)
        assert many.keepers() == [keeper]
        assert await count(many, "first__count", ann) == (7, pid)
        assert await session.call("mine__count") == [2, mine]
        write(config, more='share = "all"')
        await wait_until(lambda: len(children(keeper)) == 1)
        await wait_found(partial(lists, many, ann, {"more"}))
        # Without a parent, all of them end.
        left = [*many.workers(), keeper, *children(keeper)]
        many.process.signal(signal.SIGKILL)
        await wait_until(lambda: not any(map(is_alive, left)))


async def lists(many: Crowd, token: str, prefixes: set[str]) -> bool:
    """Whether all workers list tools of these backends, as far as some connections tell."""
    answers = [await many.modern("tools/list", token=token, meta=PLAIN) for _ in range(6)]
    return all({tool["name"].split("__")[0] for tool in answer.result["tools"]} == prefixes for answer in answers)
