"""A server of two eras that can ask its clients only in the older one: the operator is told which setting helps."""

import pytest
from structlog.testing import capture_logs
from trio.testing import MockClock

from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R1, R4, R5
from callboard.testing import Refusal
from tests.broker.back import Back, text
from tests.broker.front import brokered, peer, texts
from tests.client.stage import Json

BOOK: Json = {"name": "book", "arguments": {}}
UNAVAILABLE = "elicitation via server-initiated requests is unavailable on 2026-07-28 connections"
SETTING = 'revision = "2025-11-25"'


@pytest.mark.finding("protocol-1.10")
@pytest.mark.parametrize("front", [R1, R4, R5])
async def test_a_tool_that_cannot_ask_in_the_newest_revision_names_the_setting(
    front: Revision, autojump_clock: MockClock
) -> None:
    back = Back()
    with capture_logs() as logs:
        async with brokered(back.ways) as host, peer(host, front) as client:
            begun = await client.begin("tools/call", **BOOK)
            line, request = await back.hear()
            await line.answer(request, **text(UNAVAILABLE), isError=True)
            said = [block["text"] for block in (await client.finish(begun))["content"]]
    assert said[0] == UNAVAILABLE
    assert SETTING in said[1]
    assert [SETTING in line["hint"] for line in logs if line["event"] == "backend_cannot_ask"] == [True]


@pytest.mark.finding("protocol-1.10")
async def test_an_error_that_says_so_names_the_setting(autojump_clock: MockClock) -> None:
    back = Back()
    async with brokered(back.ways) as host, peer(host) as client:
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        await line.refuse(request, -32603, UNAVAILABLE)
        with pytest.raises(Refusal) as refused:
            await client.finish(begun)
    assert refused.value.code == -32603
    assert SETTING in str(refused.value)


async def test_other_failures_are_passed_on_as_they_are(autojump_clock: MockClock) -> None:
    back = Back()
    async with brokered(back.ways) as host, peer(host) as client:
        for words, is_error in (("no table left on 2026-07-28", True), (UNAVAILABLE, False)):
            begun = await client.begin("tools/call", **BOOK)
            line, request = await back.hear()
            await line.answer(request, **text(words), isError=is_error)
            result = await client.finish(begun)
            assert texts([result]) == [words]
            assert len(result["content"]) == 1
