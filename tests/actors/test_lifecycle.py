"""Races have one winner: whatever happens to a request, in whatever order, it has exactly one outcome.

Every order of up to five events is tried (four in the short form). `CALLBOARD_RACES` says how many longer ones to draw.
"""

import os
from itertools import permutations, product

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from callboard.actors.lifecycle import TABLE, Consequence, Lifecycle, RequestEvent, RequestState, step
from tests.figures import LONG, figure

RACES = int(os.environ.get("CALLBOARD_RACES", "800"))
ENDS = {Consequence.ANSWER, Consequence.STAY_SILENT, Consequence.KEEP}


class Heard:
    """A request, and a peer that counts what it hears."""

    def __init__(self) -> None:
        self.life = Lifecycle()
        self.answers = 0  # final ones; a front request that was parked had its own
        self.ends: list[Consequence] = []
        self.waiting_fronts = 1

    def happen(self, event: RequestEvent) -> None:
        was_over = self.life.is_over
        act = self.life.meet(event)
        if was_over:
            assert act is Consequence.DROP
        if act in ENDS:
            self.ends.append(act)
        if act in (Consequence.ANSWER, Consequence.ANSWER_INPUT_REQUIRED, Consequence.STAY_SILENT):
            # a parked request that expires owes nobody an answer: its last front request was answered
            assert self.waiting_fronts == 1 or act is Consequence.STAY_SILENT
            self.waiting_fronts = 0
        if act is Consequence.RESUME:
            assert self.waiting_fronts == 0
            self.waiting_fronts = 1

    def check(self) -> None:
        """At most one outcome, and nobody waits for a request that is over or parked."""
        assert len(self.ends) <= 1
        assert self.life.is_over == bool(self.ends) == (self.life.ended_by is not None)
        assert self.waiting_fronts == (1 if self.life.state is RequestState.WAITING else 0)


class Request(RuleBasedStateMachine):
    """The same, with events drawn one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = Heard()

    @rule()
    def result(self) -> None:
        self.heard.happen(RequestEvent.RESULT)

    @rule()
    def failure(self) -> None:
        self.heard.happen(RequestEvent.FAILURE)

    @rule()
    def deadline(self) -> None:
        self.heard.happen(RequestEvent.DEADLINE)

    @rule()
    def backend_gone(self) -> None:
        self.heard.happen(RequestEvent.BACKEND_GONE)

    @rule()
    def peer_cancelled(self) -> None:
        self.heard.happen(RequestEvent.PEER_CANCELLED)

    @rule()
    def disconnected(self) -> None:
        self.heard.happen(RequestEvent.DISCONNECTED)

    @rule()
    def session_ended(self) -> None:
        self.heard.happen(RequestEvent.SESSION_ENDED)

    @rule()
    def asked(self) -> None:
        self.heard.happen(RequestEvent.ASKED)

    @rule()
    def retried(self) -> None:
        self.heard.happen(RequestEvent.RETRIED)

    @rule()
    def expired(self) -> None:
        self.heard.happen(RequestEvent.EXPIRED)

    @invariant()
    def has_one_outcome(self) -> None:
        self.heard.check()


TestRaces = Request.TestCase
TestRaces.settings = settings(max_examples=RACES, stateful_step_count=12)


def test_11_every_order_of_events_has_one_winner() -> None:
    orders = 0
    for events in product(RequestEvent, repeat=5 if LONG else 4):
        heard = Heard()
        for event in events:
            heard.happen(event)
            heard.check()
        orders += 1
    figure("promise 11", f"{orders:,} orders of events, each with at most one outcome", "100,000")


@pytest.mark.requirement("M162", "L079")
@pytest.mark.parametrize(
    "events",
    list(
        permutations(
            (RequestEvent.RESULT, RequestEvent.PEER_CANCELLED, RequestEvent.DEADLINE, RequestEvent.SESSION_ENDED)
        )
    ),
)
def test_the_first_of_several_ends_wins_and_the_rest_are_counted(events: tuple[RequestEvent, ...]) -> None:
    life = Lifecycle()
    acts = [life.meet(event) for event in events]
    assert acts[1:] == [Consequence.DROP] * 3
    assert life.ended_by is events[0]
    assert life.late == 3


@pytest.mark.parametrize("state", [RequestState.SETTLED, RequestState.CANCELLED])
@pytest.mark.parametrize("event", RequestEvent)
def test_nothing_leads_out_of_an_end(state: RequestState, event: RequestEvent) -> None:
    assert step(state, event) == (state, Consequence.DROP)


def test_a_closed_stream_does_not_touch_a_parked_request() -> None:
    assert step(RequestState.PARKED, RequestEvent.DISCONNECTED) == (RequestState.PARKED, Consequence.DROP)
    assert step(RequestState.PARKED, RequestEvent.PEER_CANCELLED) == (RequestState.PARKED, Consequence.DROP)


def test_every_event_matters_somewhere() -> None:
    assert {event for _, event in TABLE} == set(RequestEvent)
