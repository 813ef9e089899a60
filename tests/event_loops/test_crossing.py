"""Calls between Trio and asyncio: results, exceptions and cancellation cross in both directions."""

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest
import trio
import trio.lowlevel

from callboard.event_loops.asyncio_thread import AsyncioThread
from callboard.event_loops.crossing import LoopEnded, TrioCalls
from callboard.event_loops.trio_thread import TrioThread, shared_trio_thread


@asynccontextmanager
async def thread() -> AsyncIterator[AsyncioThread]:
    made = AsyncioThread("test asyncio")
    try:
        yield made
    finally:
        await made.aclose()
        assert not any(one.name == "test asyncio" for one in threading.enumerate())


async def test_what_asyncio_code_returns_and_raises_comes_back() -> None:
    async def double(value: int) -> int:
        await asyncio.sleep(0)
        return 2 * value

    async def fail() -> None:
        await asyncio.sleep(0)
        raise LookupError("nothing there")

    async with thread() as there:
        assert await there.call(lambda: double(21)) == 42
        with pytest.raises(LookupError, match="nothing there"):
            await there.call(fail)
        assert await there.call(lambda: double(1)) == 2


async def test_a_cancelled_caller_cancels_the_asyncio_task_and_waits_for_its_clean_up() -> None:
    events: list[str] = []
    begun = trio.Event()
    token = trio.lowlevel.current_trio_token()

    async def work() -> None:
        token.run_sync_soon(begun.set)
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(0)
            events.append("rolled back")

    async with thread() as there, trio.open_nursery() as nursery:
        nursery.start_soon(there.call, work)
        await begun.wait()
        nursery.cancel_scope.cancel()
    assert events == ["rolled back"]


async def test_a_caller_that_is_cancelled_already_does_not_wait() -> None:
    async with thread() as there:
        with trio.CancelScope() as scope, trio.fail_after(1):
            scope.cancel()
            await there.call(lambda: asyncio.sleep(1000))
        assert scope.cancelled_caught


async def test_code_that_exits_ends_neither_the_loop_nor_other_calls() -> None:
    async def leave() -> None:
        raise SystemExit(3)

    async def leave_in_a_task() -> None:
        asyncio.get_running_loop().create_task(leave())  # nothing waits for it
        await asyncio.sleep(0)

    async def fine() -> str:
        return "fine"

    async with thread() as there:
        with pytest.raises(SystemExit):
            await there.call(leave)
        await there.call(leave_in_a_task)
        assert await there.call(fine) == "fine"


async def test_code_that_cancels_itself_fails_with_words() -> None:
    async def cancel_self() -> None:
        raise asyncio.CancelledError

    async with thread() as there:
        with pytest.raises(RuntimeError, match="cancelled by asyncio code"):
            await there.call(cancel_self)


async def test_libraries_for_both_see_asyncio_there_and_the_callers_context() -> None:
    traced = contextvars.ContextVar[str]("traced")
    traced.set("abc")

    async def see() -> tuple[str, str]:
        await anyio.lowlevel.checkpoint()  # goes by the library that it finds
        return traced.get(), type(asyncio.current_task()).__name__

    async with thread() as there:
        assert await there.call(see) == ("abc", "Task")


async def test_asyncio_code_calls_back_to_trio() -> None:
    async with thread() as there, trio.open_nursery() as nursery:
        crossing = TrioCalls(nursery)

        async def on_trio() -> float:
            await trio.lowlevel.checkpoint()
            return trio.current_time()

        async def fails() -> None:
            raise LookupError("on trio")

        async def on_asyncio() -> float:
            with pytest.raises(LookupError, match="on trio"):
                await crossing.call(fails)
            return await crossing.call(on_trio)

        assert await there.call(on_asyncio) <= trio.current_time()


async def test_a_cancelled_asyncio_caller_cancels_what_runs_on_trio() -> None:
    events: list[str] = []

    async with thread() as there, trio.open_nursery() as nursery:
        crossing = TrioCalls(nursery)

        async def long() -> None:
            try:
                await trio.sleep_forever()
            finally:
                events.append("cancelled on trio")

        async def on_asyncio() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(crossing.call(long), 0.01)
            events.append("went on")

        await there.call(on_asyncio)
    assert events == ["cancelled on trio", "went on"]


async def test_a_call_to_a_nursery_that_has_ended_says_so() -> None:
    async with thread() as there:
        async with trio.open_nursery() as nursery:
            crossing = TrioCalls(nursery)
        with pytest.raises(LoopEnded):
            await there.call(lambda: crossing.call(trio.lowlevel.checkpoint))


async def test_a_context_manager_is_entered_and_left_in_one_asyncio_task() -> None:
    tasks: list[object] = []

    @asynccontextmanager
    async def pool() -> AsyncIterator[str]:
        tasks.append(asyncio.current_task())
        yield "pool"
        tasks.append(asyncio.current_task())

    @asynccontextmanager
    async def broken() -> AsyncIterator[str]:
        if tasks:
            raise ConnectionRefusedError("no database")
        yield "never"

    async with thread() as there:
        async with there.hold(pool) as value:
            assert value == "pool"
            assert len(tasks) == 1
        assert len(tasks) == 2
        assert tasks[0] is tasks[1]
        with pytest.raises(ConnectionRefusedError, match="no database"):
            async with there.hold(broken):
                pass


def test_trio_code_runs_for_callers_on_asyncio() -> None:
    events: list[str] = []

    async def on_trio() -> str:
        await trio.lowlevel.checkpoint()
        return "trio"

    async def long() -> None:
        try:
            await trio.sleep_forever()
        finally:
            events.append("cancelled")

    async def main() -> None:
        async with shared_trio_thread() as one, shared_trio_thread() as two:
            assert one is two
            assert await one.call(on_trio) == "trio"
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(two.call(long), 0.01)
        assert not any(thread.name == "trio" for thread in threading.enumerate() if thread.is_alive())

    asyncio.run(main())
    assert events == ["cancelled"]


def test_a_context_manager_of_trio_ends_with_the_block_also_when_the_task_is_cancelled() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def connection() -> AsyncIterator[str]:
        events.append("open")
        try:
            yield "value"
        finally:
            events.append("closed")

    async def main() -> None:
        thread = TrioThread()
        await thread.begin()

        async def use() -> None:
            async with thread.hold(connection) as value:
                assert value == "value"
                await asyncio.sleep(1000)

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(use(), 0.05)
        async with thread.hold(connection):
            pass
        await thread.end()

    asyncio.run(main())
    assert events == ["open", "closed"] * 2
