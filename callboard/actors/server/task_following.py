"""The tasks that one subscription follows: whenever one changes, all of it is told."""

from collections.abc import Sequence
from typing import Final

import attrs

from callboard.actors.frames import LARGE
from callboard.actors.outlet import FrameKind, Outbound
from callboard.actors.server.exchange import Exchange
from callboard.actors.server.extensions import check_declared_extension
from callboard.actors.server.task import HearTask
from callboard.actors.server.task_store import TaskStore, ids_in
from callboard.actors.shares import Hold
from callboard.codecs.bridge.tasks import EXTENSION
from callboard.codecs.members import write_members
from callboard.codecs.revisions import SubscriptionFilter, meta
from callboard.errors import Overloaded

TASK_PACE: Final = 0.1
"""Seconds between two notifications about one task to one subscriber. What happens meanwhile is told at once."""

MEMBER: Final = "taskIds"


@attrs.frozen
class TaskChanged:
    """A task stands otherwise now."""

    task_id: str


def wanted_tasks(exchange: Exchange, chosen: SubscriptionFilter) -> Sequence[str]:
    """The tasks that a subscription is to follow. Raises `InvalidParams`, and `MissingCapability` for a client that
    does not declare the extension."""
    if MEMBER not in chosen.extra:
        return ()
    check_declared_extension(exchange.terms, EXTENSION)
    return ids_in(chosen.extra[MEMBER])


@attrs.define(eq=False)
class TaskFollowing:
    """The tasks that a subscription follows."""

    store: TaskStore
    wanted: Sequence[str]
    granted: Sequence[str] = attrs.field(default=(), init=False)

    def begin(self, exchange: Exchange, hear: HearTask) -> None:
        self.granted = self.store.follow(self.wanted, exchange, hear)
        self.wanted = ()  # a frame full of ids that there are not need not stay as long as the subscription

    def end(self, hear: HearTask) -> None:
        self.store.unfollow(self.granted, hear)

    def acknowledged(self, granted: SubscriptionFilter) -> SubscriptionFilter:
        """*granted*, with the tasks that are followed."""
        return attrs.evolve(granted, extra={**granted.extra, MEMBER: list(self.granted)})

    def news(self) -> Sequence[str]:
        """The tasks that stood otherwise than at work when the subscription began: their last change is not lost."""
        found = [(task_id, self.store.told(task_id)) for task_id in self.granted]
        return [task_id for task_id, told in found if told is not None and told["status"] != "working"]

    async def tell(self, exchange: Exchange, change: TaskChanged) -> None:
        """Tell of a task, if there is room for that: the client may ask for it at any time."""
        slot, told = exchange.slot, self.store.told(change.task_id)
        if told is None or not slot.is_open:
            return
        about = {**told, "_meta": {meta.SUBSCRIPTION_ID: slot.request_id}}
        frame = write_members({"jsonrpc": "2.0", "method": "notifications/tasks", "params": about})
        try:
            hold = None if slot.unread is None or len(frame) < LARGE else Hold(slot.unread, slot.account, len(frame))
        except Overloaded:
            return
        await slot.outlet.send(Outbound(frame, FrameKind.CHANGE, (slot.request_id, change), hold))
