"""A server for tests of what is shown: everything that it says is a secret."""

import os
import sys
from dataclasses import dataclass

from callboard import Context, Server

server = Server("confiding")


@dataclass
class Answer:
    word: str


@server.tool
async def tell(word: str, *, ctx: Context) -> str:
    sys.stderr.write("canary-stderr\n")
    await ctx.report(1, total=2, message="canary-progress")
    await ctx.log("info", "canary-log")
    return f"canary-result {word}"


@server.tool
async def fail() -> str:
    raise RuntimeError("canary-exception")


@server.tool
async def ask(*, ctx: Context) -> str:
    answer = await ctx.elicit("canary-question", Answer)
    return str(answer)


@server.tool
async def think(*, ctx: Context) -> str:
    reply = await ctx.sample("canary-sampling-message", max_tokens=9, system="canary-sampling-system")
    return f"thought: {reply.text}"


@server.tool
async def environment() -> str:
    return os.environ["PASSWORD"]


@server.resource("notes://shelf/{name}{?page}")
async def note(name: str, page: str = "") -> str:
    return f"canary-contents {name} {page}"


@server.prompt
async def brief(topic: str) -> str:
    return f"canary-prompt {topic}"
