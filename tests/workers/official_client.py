"""The official Python client (PyPI: mcp 2), in a legacy session: asks again and again which worker it reached, and says
what it heard, a line for each call, until its standard input ends. Runs in its own environment."""

import asyncio
import json
import sys

from mcp import Client


async def main(url: str) -> None:
    over = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    async with Client(url, mode="legacy") as client:
        while not over.done():
            try:
                answer = await asyncio.wait_for(client.call_tool("where", {}), 10)
                said: dict[str, object] = {"pid": int(answer.content[0].text)}
            except Exception as error:  # whatever it is: the test says which may be
                said = {"error": f"{type(error).__name__}: {error}"}
            sys.stdout.write(json.dumps(said) + "\n")
            sys.stdout.flush()
            await asyncio.sleep(0.01)


asyncio.run(main(sys.argv[1]))
