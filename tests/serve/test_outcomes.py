"""One outcome for every request, whatever meets it while it is in flight, on every transport and in both eras.

`OUTCOMES` is the table: a row for each kind of handler, a column for each event. A cell is what the client gets under
the id of its request, and how the handler ends. Each cell is asserted over HTTP, WebSocket and stdio, modern and
legacy, against a process that was started by `callboard run`.
"""

from functools import cache
from typing import Final, TypeAlias

import pytest
import trio

from tests.figures import BUSY
from tests.serve.lines import ERAS, TRANSPORTS, Era, Transport
from tests.serve.scenes import END, EVENTS, KINDS, NEIGHBOUR, Event, History, Kind, Scenes, all_played, label_of

Outcomes: TypeAlias = dict[str, str]
"""An outcome for each transport and era, where they differ."""


def everywhere(outcome: str) -> Outcomes:
    return {f"{transport} {era}": outcome for transport in TRANSPORTS for era in ERAS}


def by_era(*, modern: str, legacy: str) -> Outcomes:
    found = {"modern": modern, "legacy": legacy}
    return {f"{transport} {era}": found[era] for transport in TRANSPORTS for era in ERAS}


DRAINED: Final = everywhere("draining; cancelled")
LEFT: Final = everywhere("no answer; cancelled") | {
    # The specification: a legacy client that disconnects has not cancelled. Its session outlives the connection.
    "http legacy": "no answer; goes on",
    "websocket legacy": "result; finished",  # it comes back within the grace of its session, and gets the answer
}
# Over modern HTTP there is no `notifications/cancelled`: to close the stream is to cancel. So that is what is done.
SILENT: Final = everywhere("no answer; cancelled")
LATE: Final = everywhere("timed out; cancelled")

# A thread cannot be cancelled. Its call ends as any other; the thread is abandoned, and finishes on its own.
DRAINED_THREAD: Final = everywhere("draining; abandoned")
LEFT_THREAD: Final = {way: outcome.replace("cancelled", "abandoned") for way, outcome in LEFT.items()}
SILENT_THREAD: Final = everywhere("no answer; abandoned")
LATE_THREAD: Final = everywhere("timed out; abandoned")

# A modern call that is parked was answered, and is not in flight: nothing but the drain and the end of its time ends
# it, and its retry may come by another connection. A legacy one is in flight, and waits for what its client answers.
DRAINED_PARKED: Final = by_era(modern="input_required; cancelled", legacy="draining; cancelled")
LEFT_PARKED: Final = by_era(modern="input_required, then result; finished", legacy="") | {
    "stdio modern": "input_required; cancelled",  # the end of input is the end of the process
    "http legacy": "no answer; goes on",
    "websocket legacy": "result; finished",
    "stdio legacy": "no answer; cancelled",
}
SILENT_PARKED: Final = by_era(modern="input_required, then result; finished", legacy="no answer; cancelled")
LATE_PARKED: Final = by_era(modern="input_required, then refused; cancelled", legacy="timed out; cancelled")

# fmt: off
OUTCOMES: Final[dict[Kind, tuple[Outcomes, ...]]] = {
    #          SIGTERM         disconnect   notifications/cancelled  deadline
    "plain":  (DRAINED,        LEFT,        SILENT,                  LATE),
    "ctx":    (DRAINED,        LEFT,        SILENT,                  LATE),
    "sync":   (DRAINED_THREAD, LEFT_THREAD, SILENT_THREAD,           LATE_THREAD),
    "parked": (DRAINED_PARKED, LEFT_PARKED, SILENT_PARKED,           LATE_PARKED),
}
# fmt: on


def expected(kind: Kind, event: Event, transport: Transport, era: Era) -> str:
    return OUTCOMES[kind][EVENTS.index(event)][f"{transport} {era}"]


@cache
def scenes() -> Scenes:
    return trio.run(all_played)


def history(event: Event, era: Era) -> History:
    """What befell the requests of one scene."""
    return scenes()[event, era]


each_era = pytest.mark.parametrize("era", ERAS)
each_transport = pytest.mark.parametrize("transport", TRANSPORTS)


@each_transport
@pytest.mark.parametrize("kind", KINDS)
@each_era
@pytest.mark.parametrize("event", EVENTS)
def test_every_request_has_one_outcome(kind: Kind, event: Event, transport: Transport, era: Era) -> None:
    assert history(event, era).outcome(kind, transport) == expected(kind, event, transport, era)


@each_era
def test_a_drain_counts_what_it_cuts_and_keeps_its_time(era: Era) -> None:
    found = history("SIGTERM", era)
    cells = [expected(kind, "SIGTERM", transport, era) for kind in KINDS for transport in TRANSPORTS]
    cut = sum(cell.startswith("draining") for cell in cells)
    said = [line for line in found.words.splitlines() if "drain_timed_out" in line]
    assert [f"unfinished={cut}" in line for line in said] == [True], said
    assert found.seconds < END * BUSY


@each_era
@pytest.mark.parametrize("event", EVENTS)
def test_the_process_ends_in_peace(event: Event, era: Era) -> None:
    found = history(event, era)
    assert found.faults == []
    assert found.status == 0
    assert "Traceback" not in found.words
    assert (" draining " in found.words) == (event == "SIGTERM"), found.words  # else nothing was left in flight


@each_era
@each_transport
def test_neighbours_of_what_is_cancelled_go_on(transport: Transport, era: Era) -> None:
    line = history("cancelled", era).lines.of(transport)
    (answer,) = line.answers(NEIGHBOUR)
    assert answer["result"]["content"][0]["text"] == label_of(NEIGHBOUR, transport)


@each_transport
@pytest.mark.parametrize("event", ["cancelled", "deadline"])
def test_a_question_is_taken_back_whose_call_is_over(transport: Transport, event: Event) -> None:
    line = history(event, "legacy").lines.of(transport)
    (question,) = [message for message in line.heard if message.get("method") == "elicitation/create"]
    taken_back = [message["params"] for message in line.heard if message.get("method") == "notifications/cancelled"]
    assert [params["requestId"] for params in taken_back] == [question["id"]]


@each_era
@pytest.mark.parametrize("event", ["disconnect", "cancelled", "deadline"])
def test_an_abandoned_thread_finishes_on_its_own(event: Event, era: Era) -> None:
    found = history(event, era)
    transports = [transport for transport in TRANSPORTS if (event, transport) != ("disconnect", "stdio")]
    assert [one for one in transports if not found.is_noted(label_of("sync", one), "finished")] == []


@each_era
def test_the_answer_to_what_took_too_long_says_how_long_it_may_take(era: Era) -> None:
    lines = history("deadline", era).lines
    messages = {
        lines.of(transport).answers(kind)[0]["error"]["message"] for kind in KINDS[:3] for transport in TRANSPORTS
    }
    assert messages == {"timed out: no response within 0.5 s"}
