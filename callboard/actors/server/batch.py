"""One batch of a 2025-03-26 session: its members are served like any others, and answered together."""

import attrs

from callboard.actors.outlet import Outbound, Outlet
from callboard.actors.server.reply_slot import ReplySlot
from callboard.codecs.envelope import join_batch
from callboard.codecs.lines import MAX_FRAME


@attrs.define(eq=False)
class Batch:
    """The way out for the members of one batch: what else they say goes out at once, their answers as one array."""

    outlet: Outlet
    is_read: bool = attrs.field(default=False, init=False)
    _is_over: bool = attrs.field(default=False, init=False)
    _slots: list[ReplySlot] = attrs.field(factory=list, init=False)
    _answers: list[bytes] = attrs.field(factory=list, init=False)

    def expect(self, slot: ReplySlot) -> None:
        """A member that is answered through *slot*, or cancelled."""
        self._slots.append(slot)

    async def answer(self, frame: bytes, error: Exception | None = None, hold: object = None) -> None:
        self._answers.append(frame)
        await self.flush()

    def try_answer(self, frame: bytes) -> bool:
        return False

    async def send(self, message: Outbound) -> None:
        await self.outlet.send(message)

    def send_nowait(self, message: Outbound) -> None:
        self.outlet.send_nowait(message)

    def try_send(self, message: Outbound) -> bool:
        return self.outlet.try_send(message)

    async def give_up(self) -> None:
        await self.flush()  # it may have been the last that the others waited for

    async def close_stream(self, retry: float) -> None:
        await self.outlet.close_stream(retry)

    async def flush(self) -> None:
        """Send the answers if all members were read and none is open any more. No answers, no array, but an end.

        What would not fit into one frame goes out answer by answer: that is legal too, and arrives.
        """
        if not self.is_read or self._is_over or any(slot.is_open for slot in self._slots):
            return
        self._is_over, answers = True, self._answers
        fits = sum(map(len, answers)) + len(answers) < MAX_FRAME
        frames = [join_batch(answers)] if answers and fits else answers
        for frame in frames[:-1]:
            await self.outlet.send(Outbound(frame))
        if frames:
            await self.outlet.answer(frames[-1])
        if self._slots and not frames:
            await self.outlet.give_up()

    @property
    def is_answered(self) -> bool:
        """Whether any of its members is to be answered, or is already."""
        return bool(self._slots or self._answers)
