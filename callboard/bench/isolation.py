"""Whether sessions are kept apart: each request carries a canary that its answer must contain, and no other answer may.

All requests of a round are sent at once, over all sessions. Every session numbers its requests from the same number on,
so that the ids of different sessions collide, as they do in practice. A request without a canary is the same in all
sessions, and so must be its answers: that is a race check.
"""

import itertools
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec
import trio

from callboard.bench.engine import Drive, kind_of
from callboard.bench.lanes import ClientLane
from callboard.bench.seats import PAUSE, Seat
from callboard.bench.work import Act, Work
from callboard.codecs.revisions import Model, Revision, write
from callboard.errors import CallboardError

CANARY: Final = "{canary}"
"""Is replaced in the arguments of a tool, and in a URI."""

LEAK: Final = "an answer contains the canary of another session"
MIXED_UP: Final = "an answer is that of another request of the session"
MISSING: Final = "an answer does not contain its canary"
DIFFERENT: Final = "answers to the same request differ"

FINDINGS: Final = {LEAK: "leaks", MIXED_UP: "mixed_up", MISSING: "missing_canaries", DIFFERENT: "different_answers"}
"""Kinds of findings, and the figures that count them."""


class CannotCheck(CallboardError):
    """The answers of a request do not tell sessions apart. One line says what would."""


@attrs.frozen
class Canaries:
    """Words that stand in one request of one session, and nowhere else in the world."""

    run: str = attrs.field(factory=lambda: secrets.token_hex(6))

    def of(self, session: int, number: int) -> str:
        return f"cb{self.run}s{session}n{number}e"

    def found_in(self, text: str) -> set[tuple[int, int]]:
        """The sessions and numbers of all canaries of this run."""
        return {(int(one), int(other)) for one, other in re.findall(rf"cb{self.run}s(\d+)n(\d+)e", text)}

    def judge(self, text: str, session: int, number: int) -> str:
        """What is wrong with an answer that is written so; nothing, if it is the right one."""
        found = self.found_in(text)
        if any(one != session for one, _ in found):
            return LEAK
        if (session, number) in found:
            return ""
        return MIXED_UP if found else MISSING


def has_canary(act: Act) -> bool:
    return CANARY in act.name or CANARY in msgspec.json.encode(act.arguments).decode()


def with_canary(act: Act, canary: str) -> Act:
    return attrs.evolve(act, name=act.name.replace(CANARY, canary), arguments=_replaced(act.arguments, canary))


def _replaced(value: Any, canary: str) -> Any:
    if isinstance(value, str):
        return value.replace(CANARY, canary)
    if isinstance(value, Mapping):
        return {name: _replaced(one, canary) for name, one in value.items()}
    return [_replaced(one, canary) for one in value] if isinstance(value, list) else value


def written(revision: Revision, result: Model) -> str:
    """An answer as text, the same for the same answer. `_meta` is about the way it came, and is left out."""
    members = {name: value for name, value in write(revision, result).items() if name != "_meta"}
    return msgspec.json.encode(members, order="deterministic").decode()


@attrs.define(eq=False)
class Isolation(Drive[Work, ClientLane]):
    """Rounds of requests, all at once, whose answers are looked at."""

    canaries: Canaries = attrs.field(factory=Canaries, init=False)
    _expected: dict[Act, str] = attrs.field(factory=dict, init=False)
    """The answer to each request without a canary."""
    _numbers: "itertools.count[int]" = attrs.field(factory=itertools.count, init=False)

    @property
    def figures(self) -> Mapping[str, float]:
        findings = {figure: float(self.tally.errors[kind]) for kind, figure in FINDINGS.items()}
        return {"rounds": 0.0, "answers_checked": 0.0, **super().figures, **findings}

    async def rehearse(self, seats: Sequence[Seat[ClientLane]]) -> None:
        for act in self.work.acts:
            for seat in (seats[0], seats[-1]):
                lane = await seat.lane()
                found = await self._ask(lane, act, seat.number, next(self._numbers))
                if found == DIFFERENT:
                    raise CannotCheck(
                        f"{act}: two answers to the same request differ without any load: choose a request that is "
                        f"always answered alike, or put {CANARY} into --args"
                    )
                if found:
                    raise CannotCheck(
                        f"{act}: {found}: choose a tool that returns its argument, and nothing of other requests"
                    )

    async def load(self, seats: Sequence[Seat[ClientLane]], begun: float) -> None:
        while (due := trio.current_time()) < self.until:
            async with trio.open_nursery() as nursery:
                for number in range(self.plan.concurrency):
                    act = self.work.acts[number // len(seats) % len(self.work.acts)]
                    nursery.start_soon(self._call, seats[number % len(seats)], act, due)
            if self.is_counted(due):
                self.tally.counts["rounds"] += 1

    async def _call(self, seat: Seat[ClientLane], act: Act, due: float) -> None:
        lane, number = await seat.lane(), next(self._numbers)
        self.in_flight += 1
        try:
            found = await self._ask(lane, act, seat.number, number)
        except CallboardError as error:
            self._failed(seat, lane, act, error, due, number)
            if lane.is_lost:
                await trio.sleep(PAUSE)
            return
        finally:
            self.in_flight -= 1
        now = trio.current_time()
        if not self.is_counted(due):
            return
        self.tally.counts["answers_checked"] += 1
        if found:
            self.failed(found, due, str(act), f"{act}, session {seat.number}, request {number}")
        else:
            self.tally.succeeded(now - due, now - self.started, is_late=now > self.until, step=str(act))

    async def _ask(self, lane: ClientLane, act: Act, session: int, number: int) -> str:
        """What is wrong with the answer; nothing, if it is the right one. Raises what the client raises."""
        is_marked = has_canary(act)
        asked = with_canary(act, self.canaries.of(session, number)) if is_marked else act
        answer = written(lane.client.revision, await asked.do(lane.client))
        if is_marked:
            return self.canaries.judge(answer, session, number)
        if self.canaries.found_in(answer):
            return LEAK
        return "" if self._expected.setdefault(act, answer) == answer else DIFFERENT

    def _failed(
        self, seat: Seat[ClientLane], lane: ClientLane, act: Act, error: CallboardError, due: float, number: int
    ) -> None:
        """An error may contain a canary, too."""
        others = {session for session, _ in self.canaries.found_in(str(error))} - {seat.number}
        text = f"{act}, session {seat.number}, request {number}: {error}"
        self.failed(LEAK if others else kind_of(error), due, str(act), text if others else str(error))
        if lane.is_lost:
            seat.lose(lane)
