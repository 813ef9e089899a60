"""A server with a tool, prompt, resource and template of each name, hosted or behind a broker, under rules."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec
import pytest
import trio

from callboard.actors.rules import AccessRules, Condition
from callboard.actors.server.host import Host
from callboard.actors.server.parking import Parking
from callboard.codecs.caller import Caller
from callboard.codecs.revisions import LATEST, LEGACY
from callboard.errors import INSUFFICIENT_SCOPE
from callboard.server import Server
from callboard.server.context import Context
from callboard.testing import Peer, Refusal
from tests.broker.front import backend, brokered

OLDER = max(LEGACY)
ERAS = pytest.mark.parametrize("revision", [LATEST, OLDER])
SIDES = pytest.mark.parametrize("side", ["hosted", "brokered"])
Side = Literal["hosted", "brokered"]

ALICE = Caller(principal="alice", tenant="acme", scopes=["a"])
BOB = Caller(principal="bob", tenant="other", scopes=["b"])
ACME = (Condition(tenant=("acme",)),)

TOOLS = ("read", "write", "wrote")


def made() -> Server:
    server = Server("back", instructions="Be kind.", cache_scope="public", ttl=60)

    def add(name: str) -> None:
        @server.tool(name=name)
        async def tool(ctx: Context) -> str:
            return f"{name} ran"

        @server.prompt(name=name)
        async def prompt(word: str = "") -> str:
            return f"{name} said"

        @server.completion(name, "word")
        async def words(value: str) -> list[str]:
            return [f"{name}-word"]

        @server.resource(f"back://{name}", cache_scope="public", ttl=60)
        async def resource() -> str:
            return f"{name} was read"

        @server.resource(f"back://{name}/{{part}}")
        async def template(part: str) -> str:
            return f"{part} of {name}"

        @server.completion(f"back://{name}/{{part}}", "part")
        async def parts(value: str) -> list[str]:
            return [f"{name}-part"]

    for name in TOOLS:
        add(name)
    return server


@asynccontextmanager
async def stood(side: Side, server: Server, rules: AccessRules | None = None) -> AsyncIterator[Host]:
    if side == "brokered":
        async with brokered(backend(server, "back", trusted=True)) as host:
            await trio.testing.wait_all_tasks_blocked()
            host.rules = rules
            yield host
    else:
        async with server.host(parking=Parking("back")) as host:
            host.rules = rules
            yield host


async def names(client: Peer, kind: str) -> list[str]:
    """All pages of a list."""
    method, member, key = {
        "tools": ("tools/list", "tools", "name"),
        "prompts": ("prompts/list", "prompts", "name"),
        "resources": ("resources/list", "resources", "uri"),
        "templates": ("resources/templates/list", "resourceTemplates", "uriTemplate"),
    }[kind]
    found: list[str] = []
    more: dict[str, Any] = {}
    while True:
        page = await client.request(method, **more)
        found += [one[key] for one in page[member]]
        if "nextCursor" not in page:
            return found
        more = {"cursor": page["nextCursor"]}


USES: Mapping[str, Any] = {
    "tool": lambda name: ("tools/call", {"name": name, "arguments": {}}),
    "prompt": lambda name: ("prompts/get", {"name": name}),
    "resource": lambda name: ("resources/read", {"uri": f"back://{name}"}),
    "template": lambda name: ("resources/read", {"uri": f"back://{name}/x"}),
    "completion": lambda name: (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": "word", "value": ""}},
    ),
    "template completion": lambda name: (
        "completion/complete",
        {
            "ref": {"type": "ref/resource", "uri": f"back://{name}/{{part}}"},
            "argument": {"name": "part", "value": ""},
        },
    ),
}


async def raw_answer(client: Peer, method: str, params: dict[str, Any]) -> bytes:
    """The frame that answers a request, without its id."""
    number = await client.begin(method, **params)
    while True:
        frame = bytes(await client.connection.receive())
        if msgspec.json.decode(frame).get("id") == number:
            return frame.replace(b'"id":%d' % number, b'"id":0')


async def outcome(client: Peer, method: str, params: dict[str, Any]) -> str:
    try:
        await client.request(method, **params)
    except Refusal as refusal:
        return "needs" if refusal.code == INSUFFICIENT_SCOPE else f"unknown {refusal.code}"
    return "fine"
