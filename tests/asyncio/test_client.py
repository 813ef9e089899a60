"""The client for asyncio: the same calls to the same servers, awaited on asyncio."""

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any, Final

import pytest

import callboard
import callboard.asyncio
from callboard import Context, Server
from callboard.errors import CannotConnect

SERVER: Final = """
from callboard import Server
server = Server("other")

@server.tool
async def add(a: int, b: int) -> int:
    return a + b

if __name__ == "__main__":
    server.run()
"""


def served() -> Server:
    server = Server("s", instructions="Ask.")
    stopped: list[str] = []

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def count(ctx: Context) -> str:
        async for _ in ctx.progress(["a", "b"]):
            await ctx.log("info", "counting")
        return "counted"

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.sample("Who?", max_tokens=5)).text

    @server.tool
    async def slow(ctx: Context) -> None:
        import trio

        try:
            await trio.sleep_forever()
        finally:
            stopped.append(ctx.method)

    @server.tool
    async def was_stopped() -> list[str]:
        return stopped

    @server.resource("notes://one")
    async def one() -> str:
        return "1"

    @server.prompt
    async def greet(name: str) -> str:
        return f"Greet {name}"

    @server.tool
    async def change(ctx: Context) -> None:
        ctx.notify_updated("notes://one")

    return server


def text(result: Any) -> str:
    words: str = result.content[0].text
    return words


def test_every_kind_of_request_is_awaited_on_asyncio() -> None:
    async def main() -> None:
        async with callboard.asyncio.connect(served()) as client:
            assert client.revision.value == "2026-07-28"
            assert client.instructions == "Ask."
            assert "add" in [tool.name for tool in await client.tools()]
            assert (await client.call("add", a=1, b=2)).structured_content == {"result": 3}
            assert (await client.call_with("add", {"a": 2, "b": 2})).structured_content == {"result": 4}
            assert (await client.read("notes://one")).contents[0].text == "1"  # type: ignore[union-attr]  # it is text
            assert "Ada" in str((await client.prompt("greet", name="Ada")).messages)
            await client.ping()

    asyncio.run(main())
    assert not any(thread.name == "trio" for thread in threading.enumerate())


def test_functions_of_the_caller_run_in_its_own_loop() -> None:
    async def main() -> None:
        loop, logs = asyncio.get_running_loop(), list[str]()

        async def sampling(_: object) -> str:
            assert asyncio.get_running_loop() is loop
            await asyncio.sleep(0)
            return "Ada"

        def on_log(log: Any) -> None:
            assert asyncio.get_running_loop() is loop
            logs.append(log.data)

        async with callboard.asyncio.connect(served(), sampling=sampling, on_log=on_log, log_level="debug") as client:
            assert text(await client.call("ask")) == "Ada"
            async with client.call("count") as call:
                updates = [update.progress async for update in call.progress]
            assert updates[-1] == 2
            assert text(call.result) == "counted"
            assert logs == ["counting", "counting"]

    asyncio.run(main())


def test_a_cancelled_asyncio_task_cancels_the_call_at_the_server() -> None:
    async def main() -> None:
        async with callboard.asyncio.connect(served()) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.call("slow"), 0.1)
            async with client.call("slow") as call:
                await asyncio.sleep(0.05)
                call.cancel()
            async with asyncio.timeout(5):
                while (await client.call("was_stopped")).structured_content != {"result": ["tools/call"] * 2}:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    asyncio.run(main())


def test_changes_are_heard_on_asyncio() -> None:
    async def main() -> None:
        async with (
            callboard.asyncio.connect(served()) as client,
            client.listen(resources=["notes://one"]) as changes,
        ):
            await client.call("change")
            change: Any = await asyncio.wait_for(anext(changes), 5)
            assert change.uri == "notes://one"

    asyncio.run(main())


def test_a_server_in_another_process_is_reached_from_asyncio(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(SERVER)

    async def main() -> None:
        async with callboard.asyncio.connect([sys.executable, str(tmp_path / "other.py")]) as client:
            results = await asyncio.gather(*(client.call("add", a=n, b=1) for n in range(20)))
            assert [result.structured_content for result in results] == [{"result": n + 1} for n in range(20)]

    asyncio.run(main())


def test_what_cannot_be_reached_is_said_in_the_same_words() -> None:
    async def main() -> None:
        with pytest.raises(CannotConnect):
            async with callboard.asyncio.connect("http://127.0.0.1:9/mcp"):
                pass

    asyncio.run(main())


def test_the_client_for_trio_says_on_asyncio_where_the_other_is() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"callboard\.asyncio\.connect"):
            async with callboard.connect(served()):
                pass

    asyncio.run(main())


async def test_the_client_for_asyncio_says_on_trio_where_the_other_is() -> None:
    with pytest.raises(RuntimeError, match=r"on Trio use callboard\.connect"):
        async with callboard.asyncio.connect(served()):
            pass
