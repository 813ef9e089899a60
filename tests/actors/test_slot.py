"""An answer goes out whatever becomes of it on the way."""

import pytest
from trio.testing import MockClock

from callboard.actors.exchange import Exchange
from callboard.codecs.revisions import AudioContent, CallToolResult, Revision
from callboard.codecs.revisions.revision import R1
from callboard.testing.peer import Refusal
from tests.actors.stage import said, stage, text


async def sing(exchange: Exchange) -> CallToolResult:
    return CallToolResult(content=[AudioContent(data="", mime_type="audio/wav")])


async def leak(exchange: Exchange) -> CallToolResult:
    return CallToolResult(content=[], structured_content={"secret": object()})


async def speak(exchange: Exchange) -> CallToolResult:
    return text("hello")


TOOLS = {"sing": sing, "leak": leak, "speak": speak}


async def test_a_result_that_a_revision_cannot_say_is_an_internal_error(autojump_clock: MockClock) -> None:
    async with stage(TOOLS) as here:
        peer = await here.peer(R1)
        with pytest.raises(Refusal, match="-32603: Internal error"):
            await peer.call("sing")
        assert said(await peer.call("speak")) == "hello"


@pytest.mark.parametrize("revision", [revision for revision in Revision if revision >= "2025-06-18"], ids=str)
async def test_a_result_that_json_cannot_hold_is_an_internal_error(
    revision: Revision, autojump_clock: MockClock
) -> None:
    async with stage(TOOLS) as here:
        peer = await here.peer(revision)
        with pytest.raises(Refusal, match="-32603: Internal error"):
            await peer.call("leak")
        assert said(await peer.call("speak")) == "hello"
