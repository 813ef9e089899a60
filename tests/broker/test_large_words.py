"""A backend whose unasked messages have four MiB each: they are bounded in bytes wherever they wait."""

import json
from typing import Any, cast

import msgspec
import pytest
import trio
from msgspec import UNSET, Raw
from trio.testing import MockClock

from callboard.actors.broker.capabilities import MAX_INSTRUCTIONS, instructions_of
from callboard.actors.broker.visits import UrlVisits
from callboard.actors.client.answerer import MAX_QUESTION_BYTES, MAX_QUESTION_ID, Answering
from callboard.actors.client.pace import ReadPace
from callboard.actors.server.progress import MAX_LOG, MAX_LOGGER, as_kept
from callboard.codecs.envelope import Request
from callboard.codecs.revisions import LoggingMessageNotificationParams
from callboard.codecs.revisions.revision import R4, R5
from tests.broker.back import Back, form, named, text
from tests.broker.front import brokered, peer
from tests.broker.test_parking import BOOK, retry

LARGE = 3_900_000


@pytest.mark.finding("security-22", "security-23")
async def test_a_visit_with_an_id_of_four_mebibytes_is_not_remembered(autojump_clock: MockClock) -> None:
    visits = UrlVisits()
    for said in ("e" * LARGE, "e" * 1025, "short"):
        visits.add(Raw(msgspec.json.encode(said)))
    await visits.wait(["short"], 5)
    assert trio.current_time() == 0
    await visits.wait(["e" * 1025], 5)
    assert trio.current_time() == 5


def question(name: str | int, size: int) -> Request:
    return Request(name, "sampling/createMessage", {"systemPrompt": Raw(b'"%b"' % (b"s" * size))})


@pytest.mark.finding("security-23")
async def test_questions_that_are_being_answered_are_bounded_in_bytes() -> None:
    answering = Answering({}, cast("Any", None))
    first, second, third = (answering.admit(question(number, LARGE)) for number in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    assert [first.is_refused, second.is_refused, third.is_refused] == [False, False, True]
    assert third.request.params is UNSET  # what is refused is not kept
    assert answering.asked.total <= MAX_QUESTION_BYTES
    answering.done(0, first.size, lambda: None)
    again = answering.admit(question(4, LARGE))
    assert again is not None
    assert not again.is_refused


@pytest.mark.finding("security-23")
async def test_a_question_whose_id_is_too_long_to_be_repeated_is_dropped() -> None:
    answering = Answering({}, cast("Any", None))
    assert answering.admit(Request("i" * (MAX_QUESTION_ID + 1), "ping")) is None
    assert answering.admit(Request("i" * MAX_QUESTION_ID, "ping")) is not None
    assert answering.asked.total == MAX_QUESTION_ID


@pytest.mark.finding("security-8")
@pytest.mark.parametrize("data", ["d" * LARGE, [[]] * 300_000, {"é" * 9000: 1}], ids=["text", "lists", "key"])
async def test_a_long_log_message_waits_as_its_beginning(data: object) -> None:
    said: Any = {"level": "info", "data": data, "logger": "l" * LARGE}
    kept: Any = as_kept(LoggingMessageNotificationParams(**said))
    assert len(kept.data) < 2 * MAX_LOG + 100
    assert len(kept.logger) == MAX_LOGGER
    assert msgspec.json.decode(kept.data).endswith(f"(cut: {len(msgspec.json.encode(data))} bytes)")
    assert as_kept(kept) is kept


@pytest.mark.finding("security-8")
async def test_what_a_backend_logs_while_its_request_is_parked_is_cut_too(autojump_clock: MockClock) -> None:
    back = Back(R4)
    async with brokered(back.ways) as host, peer(host, R5, log_level="debug") as client:
        begun = await client.begin("tools/call", **BOOK)
        line, request = await back.hear()
        await line.ask("elicitation/create", **form())
        asked = await client.finish(begun)
        for number in range(3):
            await line.tell("notifications/message", level="error", data=f"{number}{'d' * LARGE}")
        await trio.sleep(1)
        begun = await client.begin("tools/call", **BOOK, **retry(asked, named("ada")))
        await trio.sleep(1)
        await line.answer(request, **text("done"))
        await client.finish(begun)
        told = [len(json.dumps(one)) for one in client.notifications("notifications/message")]
        assert len(told) == 3
        assert max(told) < MAX_LOG + 200


@pytest.mark.finding("security-23")
async def test_a_server_that_says_much_at_once_is_heard_more_slowly(autojump_clock: MockClock) -> None:
    pace = ReadPace()
    for _ in range(3):
        await pace.keep(LARGE)
    assert trio.current_time() == 0
    for _ in range(100):
        await pace.keep(LARGE)
    assert trio.current_time() > 0  # it rests, as after a thousand small ones


class _Named:
    """As much of a backend as its instructions need."""

    def __init__(self, name: str, instructions: str) -> None:
        self.name = name
        self.agreed = self
        self.instructions = instructions


@pytest.mark.finding("security-6")
async def test_long_instructions_of_one_backend_leave_room_for_the_others() -> None:
    long, short = _Named("long", "x" * LARGE), _Named("short", "Ask me.")
    told = instructions_of(cast("Any", [long, short]))
    assert told is not None
    assert told.endswith("short: Ask me.")
    assert MAX_INSTRUCTIONS - 10 < len(told) <= MAX_INSTRUCTIONS
    alone = instructions_of(cast("Any", [long]))
    assert alone == "x" * MAX_INSTRUCTIONS
    assert instructions_of(cast("Any", [short])) == "Ask me."
    assert instructions_of(cast("Any", [_Named("none", "")])) is None
