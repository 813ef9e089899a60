"""Scripts, played over and over in many sessions: what each step took, and what came of it."""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import trio

from callboard.bench.engine import TRIES, Loop, kind_of
from callboard.bench.player import Player
from callboard.bench.seats import RENEWED, Seat
from callboard.bench.steps import Await, Listen, Repeat, Scenario, Script, Step, StepRequest, Think
from callboard.bench.tally import UNANSWERED
from callboard.errors import CallboardError, CannotConnect, ConnectionLost, RequestTimedOut

OPENING: Final = "open session"
NOT_HEARD: Final = "notification not received in time"
NOT_BEGUN: Final = "not started: no session was free"


class StepFailed(CallboardError):
    """A step did not work when it was tried, before there was any load."""


class _Cut(Exception):
    """The rest of the script is left out: the session is lost, or the time is over."""


@attrs.define(eq=False)
class Scripts(Loop[Scenario, Player]):
    """Each session plays one script at a time. At a pace, a script that finds no session free waits for one."""

    _free: trio.MemoryReceiveChannel[Seat[Player]] = attrs.field(init=False)
    _given_back: trio.MemorySendChannel[Seat[Player]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._given_back, self._free = trio.open_memory_channel(self.sessions)

    @property
    def figures(self) -> Mapping[str, float]:
        """With as many renewed sessions as have a latency: one that opens at the very end has none."""
        opened = self.tally.steps.get(OPENING)
        return {**super().figures, **({} if opened is None else {RENEWED: float(opened.count)})}

    async def rehearse(self, seats: Sequence[Seat[Player]]) -> None:
        for script in self.work.scripts:
            for step in script.walk():
                if isinstance(step, StepRequest | Await):
                    self.tally.step(step.label)  # in the order of the file
        player = await seats[0].lane()
        for script in self.work.scripts:
            values = dict[str, Any]()
            for step in script.walk():
                await self._try(player, script, step, values)
        for seat in seats:
            self._given_back.send_nowait(seat)

    async def _try(self, player: Player, script: Script, step: Step, values: dict[str, Any]) -> None:
        for left in reversed(range(TRIES)):
            try:
                await _rehearse(player, script, step, values)
                break
            except (ConnectionLost, RequestTimedOut):
                raise
            except CallboardError as error:
                if not left or isinstance(step, Await):
                    label = step.label if isinstance(step, StepRequest | Await) else "listen"
                    raise StepFailed(f"{script.name}, {label}: {error}") from error

    async def turn(self, seat: Seat[Player], chance: random.Random, due: float) -> bool:
        script = self.work.choose(chance)
        chance = random.Random(chance.random())  # noqa: S311  # what others do meanwhile does not matter
        has_begun = False
        try:
            seat = await self._free.receive()
            try:
                if trio.current_time() >= self.until:
                    return True
                has_begun = True
                return await self._play(seat, script, chance, due)
            finally:
                self._given_back.send_nowait(seat)
        finally:
            self.in_flight -= 1
            if not has_begun and not self.is_stopped and self.plan.pace is not None:
                self.failed(NOT_BEGUN, due)

    async def _play(self, seat: Seat[Player], script: Script, chance: random.Random, due: float) -> bool:
        player = await self._session(seat, script)
        seat.uses += 1
        scene = _Scene(self, seat, player, script, chance, None if self.plan.pace is None else due)
        try:
            await scene.play(script.steps)
        except _Cut:
            return scene.is_connected
        if due >= self.started:
            self.tally.counts["scripts"] += 1
        return scene.is_connected

    async def _session(self, seat: Seat[Player], script: Script) -> Player:
        if not script.per_session or seat.uses < script.per_session or seat.current is None:
            return await seat.lane()
        player = await seat.renew()
        now = trio.current_time()
        if now - seat.took >= self.started:
            self.tally.step(OPENING).succeeded(seat.took, now - self.started, is_late=now > self.until)
        return player


@attrs.define(eq=False)
class _Scene:
    """One script, played once. At a pace, the latency of its first request counts from when the script was due."""

    drive: Scripts
    seat: Seat[Player]
    player: Player
    script: Script
    chance: random.Random
    due: float | None
    is_connected: bool = True
    values: dict[str, Any] = attrs.field(factory=dict, init=False)
    """What its steps have saved."""

    async def play(self, steps: Sequence[Step]) -> None:
        """Raises `_Cut`."""
        for step in steps:
            if trio.current_time() >= self.drive.until:
                raise _Cut
            match step:
                case StepRequest():
                    await self._ask(step)
                case Think(low, high):
                    await trio.sleep(min(self.chance.uniform(low, high), self.drive.until - trio.current_time()))
                    self.due = None
                case Listen():
                    await self._listen(step)
                case Await():
                    await self._await(step)
                case Repeat(times, repeated):
                    for _ in range(times):
                        await self.play(repeated)

    async def _ask(self, request: StepRequest) -> None:
        drive, due, is_settled = self.drive, self._due(), False
        try:
            after = math.inf if request.cancel_after is None else request.cancel_after
            with trio.move_on_after(after) as scope:
                await self.player.ask(request, self.script.answers, self.values)
            is_settled = True
            now = trio.current_time()
            if due < drive.started:
                return
            if scope.cancelled_caught:
                for tally in (drive.tally, drive.tally.step(request.label)):
                    tally.counts["cancelled"] += 1
            else:
                at, is_late = now - drive.started, now > drive.until
                drive.tally.succeeded(now - due, at, is_late=is_late, step=request.label)
        except CallboardError as error:
            is_settled = True
            self._failed(error, due, request.label)
        finally:
            if not is_settled and not drive.is_stopped:
                drive.failed(UNANSWERED, due, request.label)

    async def _listen(self, step: Listen) -> None:
        try:
            await self.player.listen(step)
        except CallboardError as error:
            self._failed(error, self._due(), "listen")

    async def _await(self, step: Await) -> None:
        drive, due = self.drive, self._due()
        try:
            is_heard = await _hears(self.player, step)
        except CallboardError as error:
            self._failed(error, due, step.label)
            return
        now = trio.current_time()
        if not is_heard:
            drive.failed(NOT_HEARD, due, step.label)
        elif due >= drive.started:
            drive.tally.step(step.label).succeeded(now - due, now - drive.started, is_late=now > drive.until)

    def _due(self) -> float:
        due, self.due = self.due, None
        return trio.current_time() if due is None else due

    def _failed(self, error: CallboardError, due: float, label: str) -> None:
        self.drive.failed(kind_of(error), due, label, str(error))
        self.is_connected = self.is_connected and not isinstance(error, ConnectionLost | CannotConnect)
        if self.player.is_lost:
            self.seat.lose(self.player)
            self.is_connected = True  # the next one waits for a session
            raise _Cut from error


async def _rehearse(player: Player, script: Script, step: Step, values: dict[str, Any]) -> None:
    if isinstance(step, StepRequest):
        with trio.move_on_after(math.inf if step.cancel_after is None else step.cancel_after):
            await player.ask(step, script.answers, values)
    elif isinstance(step, Listen):
        await player.listen(step)
    elif isinstance(step, Await) and not await _hears(player, step):
        raise StepFailed(f"no notification within {step.within:g} s")


async def _hears(player: Player, step: Await) -> bool:
    with trio.move_on_after(step.within) as scope:
        await player.wait_news(step.topic)
    return not scope.cancelled_caught
