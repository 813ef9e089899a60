"""The call of a task, as its handler sees it: at first on the way of its request, later on none."""

from collections.abc import Sequence
from typing import Protocol

import trio

from callboard import tree
from callboard.actors.outlet import Outbound
from callboard.actors.server.client_requests import ClientRequest
from callboard.actors.server.exchange import Exchange
from callboard.actors.server.progress import ProgressReport
from callboard.actors.server.reply_slot import ReplySlot
from callboard.codecs.revisions import JSONValue, LoggingLevel, LoggingMessageNotificationParams, Model


class AskingTask(Protocol):
    """The task of a call: the `HostedTask`."""

    async def ask(self, questions: Sequence[ClientRequest]) -> list[Model]:
        """Ask its client, which hears of it when it asks for the task. Raises the refusal of the client."""

    def change(self) -> None:
        """Something about it is another now."""

    @property
    def is_asking(self) -> bool:
        """Whether it waits for an answer of its client."""


class _Nowhere:
    """The way of a call that has no request any more."""

    async def answer(self, frame: bytes, error: Exception | None = None, hold: object = None) -> None: ...
    def try_answer(self, frame: bytes) -> bool:
        return True

    async def send(self, message: Outbound) -> None: ...
    def send_nowait(self, message: Outbound) -> None: ...
    def try_send(self, message: Outbound) -> bool:
        return True

    async def give_up(self) -> None: ...
    async def close_stream(self, retry: float) -> None: ...


class TaskExchange(Exchange):
    """The call of a task. Its own slot leads nowhere: what it says goes by its request, as long as that waits."""

    front: Exchange | None
    task: AskingTask

    def __init__(self, front: Exchange, task: AskingTask) -> None:
        slot = front.slot
        own = ReplySlot(slot.request_id, slot.method, slot.terms, _Nowhere(), slot.server_info, None, slot.account)
        super().__init__(front.engine, front.request, front.route, own, front.engine.root.supervisor_of(tree.TASKS))
        self.front, self.task, self.session = front, task, front.session
        self.carried, self.passed = front.carried, front.passed
        if front.terms.revision.dialect.asks_in_results:
            self.rounds.number = front.rounds.number
        self.asking = 0
        self.since = trio.current_time()

    @property
    def waits_for_client(self) -> bool:
        return bool(self.asking) or self.task.is_asking

    def hands_over(self) -> bool:
        return self.front is not None and super().hands_over()

    async def _ask(self, questions: Sequence[ClientRequest], *, at_once: bool) -> list[Model]:
        if self.front is None:
            return await self.task.ask(questions)
        self.asking += 1
        self.task.change()
        try:
            return await self.front.ask(questions, at_once=at_once)
        finally:
            self.asking -= 1
            self.since = trio.current_time()
            self.task.change()

    async def log(self, level: LoggingLevel, data: JSONValue, logger: str | None = None) -> None:
        if self.front is None:
            await trio.lowlevel.checkpoint()
        else:
            await self.front.log(level, data, logger)

    async def tell(self, frame: bytes) -> None:
        if self.front is not None:
            await self.front.tell(frame)

    def tell_nowait(self, frame: bytes) -> None:
        if self.front is not None:
            self.front.tell_nowait(frame)

    def log_nowait(self, params: LoggingMessageNotificationParams) -> None:
        if self.front is not None:
            self.front.log_nowait(params)

    def report_nowait(self, report: ProgressReport) -> None:
        if self.front is not None:
            self.front.report_nowait(report)
