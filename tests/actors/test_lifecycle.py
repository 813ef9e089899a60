"""Races have one winner: whatever happens to a request, in whatever order, it has exactly one outcome.

Every order of up to five events is tried (four in the short form). `CALLBOARD_RACES` says how many longer ones to draw.
"""

import os
from itertools import permutations, product

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from callboard.actors.lifecycle import TABLE, Act, Event, Life, State, step
from tests.figures import LONG, figure

RACES = int(os.environ.get("CALLBOARD_RACES", "2000"))
ENDS = {Act.ANSWER, Act.STAY_SILENT, Act.KEEP}


class Heard:
    """A request, and a peer that counts what it hears."""

    def __init__(self) -> None:
        self.life = Life()
        self.answers = 0  # final ones; a front request that was parked had its own
        self.ends: list[Act] = []
        self.waiting_fronts = 1

    def happen(self, event: Event) -> None:
        was_over = self.life.is_over
        act = self.life.meet(event)
        if was_over:
            assert act is Act.DROP
        if act in ENDS:
            self.ends.append(act)
        if act in (Act.ANSWER, Act.ANSWER_INPUT_REQUIRED, Act.STAY_SILENT):
            # a parked request that expires owes nobody an answer: its last front request was answered
            assert self.waiting_fronts == 1 or act is Act.STAY_SILENT
            self.waiting_fronts = 0
        if act is Act.RESUME:
            assert self.waiting_fronts == 0
            self.waiting_fronts = 1

    def check(self) -> None:
        """At most one outcome, and nobody waits for a request that is over or parked."""
        assert len(self.ends) <= 1
        assert self.life.is_over == bool(self.ends) == (self.life.outcome is not None)
        assert self.waiting_fronts == (1 if self.life.state is State.WAITING else 0)


class Request(RuleBasedStateMachine):
    """The same, with events drawn one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = Heard()

    @rule()
    def result(self) -> None:
        self.heard.happen(Event.RESULT)

    @rule()
    def failure(self) -> None:
        self.heard.happen(Event.FAILURE)

    @rule()
    def deadline(self) -> None:
        self.heard.happen(Event.DEADLINE)

    @rule()
    def backend_gone(self) -> None:
        self.heard.happen(Event.BACKEND_GONE)

    @rule()
    def peer_cancelled(self) -> None:
        self.heard.happen(Event.PEER_CANCELLED)

    @rule()
    def disconnected(self) -> None:
        self.heard.happen(Event.DISCONNECTED)

    @rule()
    def session_ended(self) -> None:
        self.heard.happen(Event.SESSION_ENDED)

    @rule()
    def asked(self) -> None:
        self.heard.happen(Event.ASKED)

    @rule()
    def retried(self) -> None:
        self.heard.happen(Event.RETRIED)

    @rule()
    def expired(self) -> None:
        self.heard.happen(Event.EXPIRED)

    @invariant()
    def has_one_outcome(self) -> None:
        self.heard.check()


TestRaces = Request.TestCase
TestRaces.settings = settings(max_examples=RACES, stateful_step_count=12)


def test_11_every_order_of_events_has_one_winner() -> None:
    orders = 0
    for events in product(Event, repeat=5 if LONG else 4):
        heard = Heard()
        for event in events:
            heard.happen(event)
            heard.check()
        orders += 1
    figure("promise 11", f"{orders:,} orders of events, each with at most one outcome", "100,000")


@pytest.mark.requirement("M162", "L079")
@pytest.mark.parametrize(
    "events", list(permutations((Event.RESULT, Event.PEER_CANCELLED, Event.DEADLINE, Event.SESSION_ENDED)))
)
def test_the_first_of_several_ends_wins_and_the_rest_are_counted(events: tuple[Event, ...]) -> None:
    life = Life()
    acts = [life.meet(event) for event in events]
    assert acts[1:] == [Act.DROP] * 3
    assert life.outcome is events[0]
    assert life.late == 3


@pytest.mark.parametrize("state", [State.SETTLED, State.CANCELLED])
@pytest.mark.parametrize("event", Event)
def test_nothing_leads_out_of_an_end(state: State, event: Event) -> None:
    assert step(state, event) == (state, Act.DROP)


def test_a_closed_stream_does_not_touch_a_parked_request() -> None:
    assert step(State.PARKED, Event.DISCONNECTED) == (State.PARKED, Act.DROP)
    assert step(State.PARKED, Event.PEER_CANCELLED) == (State.PARKED, Act.DROP)


def test_every_event_matters_somewhere() -> None:
    assert {event for _, event in TABLE} == set(Event)
