"""An answer goes out whatever becomes of it on the way."""

import pytest
import trio
from trio.testing import MockClock

from callboard.actors.server.exchange import Exchange, Handler
from callboard.codecs.bridge.results import Forwarded
from callboard.codecs.members import raw
from callboard.codecs.revisions import LATEST, CallToolResult, Revision, TextContent
from callboard.testing.peer import Refusal
from tests.actors.server.stage import said, stage, text


async def leak(exchange: Exchange) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=object())])  # type: ignore[arg-type]


async def misdirect(exchange: Exchange) -> CallToolResult:
    exchange.slot.method = "prompts/get"  # as if it answered another request
    return text("hello")


async def break_off(exchange: Exchange) -> Forwarded:
    return Forwarded({"content": raw([]), "_meta": raw([1])})  # which no revision has


async def speak(exchange: Exchange) -> CallToolResult:
    return text("hello")


TOOLS: dict[str, Handler] = {"leak": leak, "misdirect": misdirect, "speak": speak, "break_off": break_off}


@pytest.mark.parametrize("tool", ["leak", "misdirect"])
@pytest.mark.parametrize("revision", list(Revision), ids=str)
async def test_a_result_that_cannot_be_said_is_an_internal_error(
    revision: Revision, tool: str, autojump_clock: MockClock
) -> None:
    async with stage(TOOLS) as here:
        peer = await here.peer(revision)
        with pytest.raises(Refusal, match="-32603: Internal error"):
            await peer.call(tool)
        assert said(await peer.call("speak")) == "hello"


@pytest.mark.finding("security-21")
async def test_a_result_that_cannot_be_written_is_an_internal_error(autojump_clock: MockClock) -> None:
    async with stage(TOOLS) as here:
        peer = await here.peer(LATEST)
        with trio.fail_after(1), pytest.raises(Refusal, match="-32603: Internal error"):
            await peer.call("break_off")
