"""What a sampling request says beside its messages, and the titles of prompt arguments."""

from typing import Annotated, Any

import pytest
from trio.testing import MockClock

from callboard import Context, Doc, Revision, Server
from callboard.server import Meta
from callboard.server.context import IncludeContext
from callboard.testing import connect

OLD = [revision for revision in Revision if revision < "2025-11-25"]
NEW = [revision for revision in Revision if revision >= "2025-11-25"]
REPLY = {"role": "assistant", "content": {"type": "text", "text": "42"}, "model": "m"}


def sampling() -> Server:
    server = Server("sampling")

    @server.tool
    async def think(include: IncludeContext | None, ctx: Context) -> str:
        return (await ctx.sample("Why?", max_tokens=5, include_context=include, metadata={"trace": [1, "a"]})).text

    return server


async def asked(revision: Revision, declared: dict[str, Any], include: IncludeContext | None) -> dict[str, Any]:
    """The params that the client gets."""
    seen: list[dict[str, Any]] = []

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        seen.append(params)
        return REPLY

    answers = {"sampling/createMessage": answer}
    async with connect(sampling(), revision, answers=answers, capabilities={"sampling": declared}) as client:
        assert (await client.call("think", include=include))["content"][0]["text"] == "42"
    [params] = seen
    return params


@pytest.mark.finding("protocol-1.12f")
@pytest.mark.parametrize("revision", [*OLD, *NEW], ids=str)
async def test_metadata_reaches_the_client_as_it_is(revision: Revision, autojump_clock: MockClock) -> None:
    params = await asked(revision, {}, None)
    assert params["metadata"] == {"trace": [1, "a"]}
    assert "includeContext" not in params


@pytest.mark.finding("protocol-1.12f")
@pytest.mark.parametrize("include", ["none", "thisServer", "allServers"])
@pytest.mark.parametrize("revision", [*OLD, *NEW], ids=str)
async def test_a_client_that_adds_context_is_asked_to(
    revision: Revision, include: IncludeContext, autojump_clock: MockClock
) -> None:
    declared: dict[str, Any] = {} if revision in OLD else {"context": {}}
    assert (await asked(revision, declared, include))["includeContext"] == include


@pytest.mark.finding("protocol-1.12f")
@pytest.mark.parametrize("revision", NEW, ids=str)
async def test_a_client_that_declares_no_context_is_asked_without_it(
    revision: Revision, autojump_clock: MockClock
) -> None:
    assert "includeContext" not in await asked(revision, {}, "allServers")
    assert (await asked(revision, {}, "none"))["includeContext"] == "none"


@pytest.mark.finding("protocol-1.12f")
async def test_a_prompt_argument_has_the_title_of_its_parameter() -> None:
    server = Server("titled")

    @server.prompt
    def greet(
        guest: Annotated[str, Meta(title="Name of the guest"), Doc("How to call them")], tone: str = "warm"
    ) -> str:
        return f"Greet {guest}"

    async with connect(server) as client:
        [prompt] = (await client.request("prompts/list"))["prompts"]
        guest, tone = prompt["arguments"]
        assert (guest["title"], guest["description"]) == ("Name of the guest", "How to call them")
        assert "title" not in tone
    async with connect(server, Revision.V2025_03_26) as client:
        [prompt] = (await client.request("prompts/list"))["prompts"]
        assert "title" not in prompt["arguments"][0]
