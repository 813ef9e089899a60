"""Scopes in Python: of a tool, prompt or resource, and what a handler asks for itself."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from callboard import Context, Server
from callboard.actors.rules import AccessRules
from callboard.codecs.caller import Caller
from callboard.codecs.revisions import LATEST, LEGACY, Revision
from callboard.errors import INSUFFICIENT_SCOPE
from callboard.testing import Peer, Refusal, connect
from tests.broker.front import peer

ERAS = pytest.mark.parametrize("revision", [LATEST, max(LEGACY)])

ran: list[str] = []


def made() -> Server:
    server = Server("scoped")

    @server.tool(scopes=["notes:write"])
    async def write() -> str:
        ran.append("write")
        return "written"

    @server.tool
    def erase(many: bool, ctx: Context) -> str:
        if many:
            ctx.require_scopes("notes:write", "notes:erase")
        return f"erased for {ctx.caller.principal} of {ctx.caller.tenant}"

    @server.prompt(scopes=["notes:read"])
    async def ask() -> str:
        return "asked"

    @server.resource("notes://{name}", scopes=["notes:read"], cache_scope="public", ttl=9)
    async def note(name: str) -> str:
        return name

    @server.resource("notes://all", scopes=["notes:read"])
    async def notes(ctx: Context) -> str:
        ctx.require_scopes("notes:all")
        return "all"

    return server


@asynccontextmanager
async def called_by(revision: Revision, *scopes: str, rules: AccessRules | None = None) -> AsyncIterator[Peer]:
    caller = Caller(principal="ada", tenant="acme", scopes=scopes)
    async with made().host() as host:
        host.rules = rules
        async with peer(host, revision, principal=caller) as client:
            yield client


async def needed(client: Peer, method: str, **params: object) -> list[str]:
    with pytest.raises(Refusal) as caught:
        await client.request(method, **params)  # type: ignore[arg-type]  # meta is none of them
    assert caught.value.code == INSUFFICIENT_SCOPE
    found: list[str] = caught.value.data["requiredScopes"]
    return found


@ERAS
async def test_scopes_are_asked_for_before_the_function_runs(revision: Revision) -> None:
    ran.clear()
    async with called_by(revision) as client:
        assert await needed(client, "tools/call", name="write", arguments={}) == ["notes:write"]
        assert await needed(client, "prompts/get", name="ask") == ["notes:read"]
        assert await needed(client, "resources/read", uri="notes://x") == ["notes:read"]
        assert await needed(client, "resources/read", uri="notes://all") == ["notes:read"]
        listed = await client.request("tools/list")
        assert [tool["name"] for tool in listed["tools"]] == ["write", "erase"]
    assert not ran


@ERAS
async def test_a_handler_asks_for_scopes_by_its_arguments(revision: Revision) -> None:
    async with called_by(revision, "notes:write", "notes:read") as client:
        assert (await client.call("erase", many=False))["content"][0]["text"] == "erased for ada of acme"
        several = await needed(client, "tools/call", name="erase", arguments={"many": True})
        assert several == ["notes:erase", "notes:write"]
        assert await needed(client, "resources/read", uri="notes://all") == ["notes:all"]
        assert (await client.call("write"))["content"][0]["text"] == "written"
        read = await client.request("resources/read", uri="notes://x")
        assert read["contents"][0]["text"] == "x"
        assert read.get("cacheScope", "private") == "private"


async def test_implied_scopes_count() -> None:
    async with called_by(LATEST, "admin", rules=AccessRules([], {"admin": ["notes:*"]})) as client:
        assert (await client.call("write"))["content"][0]["text"] == "written"
        assert (await client.call("erase", many=True))["content"][0]["text"] == "erased for ada of acme"


async def test_in_process_no_scope_is_asked_for_unless_a_caller_is_given() -> None:
    async with connect(made()) as client:
        assert (await client.call("erase", many=True))["content"][0]["text"] == "erased for anonymous of "
    async with connect(made(), principal=Caller(principal="ada")) as client:
        assert await needed(client, "tools/call", name="write", arguments={}) == ["notes:write"]


@pytest.mark.parametrize("scopes", ["two words", ["a b"], ['"'], [""]])
def test_what_is_no_scope_is_refused(scopes: str | list[str]) -> None:
    with pytest.raises(ValueError, match="invalid scope"):
        Server("s").tool(scopes=scopes)
