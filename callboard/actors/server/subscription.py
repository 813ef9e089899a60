"""One `subscriptions/listen`: acknowledged first, then every change once, closed by a result."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Never

import attrs
import msgspec
import trio
from msgspec import UNSET

from callboard.actors.changes import Change, ListChanged, News, ResourceUpdated, count_of, wanted_lists, weight_of
from callboard.actors.fan_out import BEHIND, SubscriberPace
from callboard.actors.frames import error_frame, notification_frame
from callboard.actors.lifecycle import RequestEvent
from callboard.actors.outlet import FrameKind, Outbound, Outlet
from callboard.actors.server.exchange import Exchange
from callboard.actors.server.task_following import TASK_PACE, TaskChanged, TaskFollowing
from callboard.actors.shares import Shares
from callboard.actors.subscribers import Audience, Following
from callboard.codecs.caller import Caller
from callboard.codecs.envelope import RequestId
from callboard.codecs.revisions import (
    CancelledNotificationParams,
    Model,
    NotificationMetaObject,
    NotificationParams,
    ResourceUpdatedNotificationParams,
    Revision,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenResult,
    SubscriptionsListenResultMetaObject,
)
from callboard.errors import InvalidParams, Overloaded, SupervisorClosed
from callboard.supervisor import WHY_OVERFLOW, Actor, Lost, MailboxSpec, Overflow, Unfinished

SUBSCRIPTION_SIZE = 1024
"""Most changes that wait for one subscriber, each resource and list counted once."""


def change_notification(change: Change, meta: NotificationMetaObject | None = None) -> tuple[str, Model]:
    """The notification that tells of *change*: its method and params."""
    about = UNSET if meta is None else meta
    if isinstance(change, ListChanged):
        return f"notifications/{change.name}/list_changed", NotificationParams(meta=about)
    return "notifications/resources/updated", ResourceUpdatedNotificationParams(uri=change.uri, meta=about)


@attrs.define(eq=False)
class Subscription(Actor[Change | TaskChanged]):
    """Owns a filter and an outbox in which the same change stands at most once.

    Stopped, it says so with the closing result; killed, because the client has left, it says nothing.
    """

    mailbox = MailboxSpec[Change | TaskChanged](
        size=SUBSCRIPTION_SIZE, overflow=Overflow.COALESCE, key=lambda change: change
    )

    exchange: Exchange
    audience: Audience
    granted: SubscriptionFilter
    followed: Shares
    hides: Callable[[Caller, str], bool] = attrs.field(default=lambda _, __: False)
    """Whether the caller may not know of a resource."""
    tasks: TaskFollowing | None = None
    _pace: SubscriberPace | None = attrs.field(default=None, init=False)

    async def run(self) -> None:
        asked = self.granted.resource_subscriptions
        account = self.exchange.slot.account
        # What was asked for is read: a stream may be open for days, and need not keep the bytes of its request.
        self.exchange.request = msgspec.structs.replace(self.exchange.request, params=UNSET)
        try:
            weight = 0 if asked is UNSET else weight_of(asked)
            if weight:
                self.followed.take(account, weight)
        except (InvalidParams, Overloaded) as error:
            await self.exchange.settle(error, RequestEvent.RESULT)
            return
        try:
            await self._listen()
        finally:
            if weight:
                self.followed.give_back(account, weight)

    async def _listen(self) -> None:
        slot, principal, hear = self.exchange.slot, self.exchange.terms.principal, self.hear
        meta = NotificationMetaObject(subscription_id=slot.request_id)
        audience = self.audience
        following = await self._follow(principal)
        lists = audience.lists_for(wanted_lists(self.granted), self.exchange.terms.capabilities)
        audience.lists.join(hear, lists)
        try:
            granted = self.granted if self.tasks is None else self._follow_tasks(self.tasks)
            acknowledged = SubscriptionsAcknowledgedNotificationParams(notifications=granted, meta=meta)
            await slot.notify("notifications/subscriptions/acknowledged", acknowledged, FrameKind.ANSWER)
            async for change in self.inbox:
                await self._tell(change, meta)
                await self._tell_rest(meta)
                if self.tasks is not None:
                    await trio.sleep(TASK_PACE)  # changes of the same task meanwhile are one
        finally:
            if self.tasks is not None:
                self.tasks.end(self.hear_task)
            if self._pace is not None:
                self._pace.catch_up()
            audience.lists.leave(hear, lists)
            audience.unfollow(following, hear)
        closing = SubscriptionsListenResultMetaObject(subscription_id=slot.request_id)
        await self.exchange.settle(SubscriptionsListenResult(meta=closing), RequestEvent.RESULT)
        if slot.is_shared:
            await slot.outlet.send(self._that_it_ended())

    async def _follow(self, principal: str) -> Following:
        """Follow the resources that can be; what is acknowledged names only those."""
        asked = self.granted.resource_subscriptions
        if asked is UNSET:
            return {}
        following = await self.audience.follow(asked, principal, self.hear)
        self.granted = attrs.evolve(self.granted, resource_subscriptions=tuple(following) or UNSET)
        return following

    def _follow_tasks(self, tasks: TaskFollowing) -> SubscriptionFilter:
        tasks.begin(self.exchange, self.hear_task)
        for task_id in tasks.news():
            self.hear_task(task_id)
        return tasks.acknowledged(self.granted)

    async def _tell(self, change: Change | TaskChanged, meta: NotificationMetaObject) -> None:
        if not isinstance(change, TaskChanged):
            await self.exchange.slot.notify(*change_notification(change, meta), FrameKind.CHANGE, change)
        elif self.tasks is not None:
            await self.tasks.tell(self.exchange, change)

    async def _tell_rest(self, meta: NotificationMetaObject) -> None:
        """Tell of all that waits before others get a turn: a source may bring as many as there is room for in one."""
        inbox = self.inbox
        for _ in range(inbox.depth):
            try:
                change = inbox.receive_nowait()
            except (trio.WouldBlock, trio.EndOfChannel):
                break
            await self._tell(change, meta)
        if self._pace is not None and not inbox.depth:
            self._pace.catch_up()

    def hear(self, news: News) -> None:
        """Take a change in. A client that lets a thousand different ones pile up is cut off: it must read anew."""
        if isinstance(news, ListChanged | ResourceUpdated):
            if isinstance(news, ResourceUpdated) and self.hides(self.exchange.terms.caller, news.uri):
                return
            try:
                self.address.send_nowait(news)
            except trio.WouldBlock:
                self._overflow(news)
            else:
                if self.inbox.coalesced >= BEHIND:
                    if self._pace is None:
                        self._pace = SubscriberPace(self.audience.fan_out)
                    self._pace.fall_behind()
        else:
            self._overflow(news)

    def hear_task(self, task_id: str) -> None:
        """Take in that a task has changed."""
        with suppress(trio.WouldBlock):  # as many other changes wait: its client may ask for it
            self.address.send_nowait(TaskChanged(task_id))

    def _overflow(self, news: News) -> None:
        letters = self.exchange.supervisor.dead_letters
        letters.add(self.address.path, news, Lost.OVERFLOWED, at=trio.current_time())
        if self.exchange.slot.is_open:
            self._cut_off()
        self.address.kill(WHY_OVERFLOW)

    def _cut_off(self) -> None:
        """Say so: a stream that only fell silent would look like one on which nothing happens."""
        slot, supervisor = self.exchange.slot, self.exchange.supervisor
        slot.close()
        error = None
        if not slot.is_shared:
            error = Overloaded("too many changes for this subscriber: read the lists and resources again")
        last = SubscriptionEnd(slot.outlet, self._that_it_ended(), slot.request_id, slot.terms.revision, error)
        with suppress(SupervisorClosed):  # then its edge ends too, and says so
            supervisor.spawn(last, name=f"{self.name}-last", shutdown=0)

    def _that_it_ended(self) -> Outbound:
        """The specification has two ways to say it: a result, and where no stream ends with it this notification."""
        slot = self.exchange.slot
        params = CancelledNotificationParams(request_id=slot.request_id, reason="the subscription has ended")
        return Outbound(notification_frame(slot.terms.revision, "notifications/cancelled", params))

    # How it is drained: asked to stop, it sends its closing result.

    def unfinished(self) -> Iterable[Unfinished]:
        return (self,)

    @property
    def begin_stop(self) -> Callable[[], None]:
        return self.address.begin_stop

    async def wait_over(self) -> None:
        await self.address.wait_ended()

    def cut_short(self) -> bool:
        return False

    async def part(self) -> None:
        """Its session or its edge ends it."""

    def facts(self) -> dict[str, str | int]:
        return {"hears": count_of(self.granted) + (0 if self.tasks is None else len(self.tasks.granted))}


@attrs.define(eq=False)
class SubscriptionEnd(Actor[Never]):
    """Waits for room to say one thing more: there may be none before the peer reads on."""

    mailbox = None

    outlet: Outlet
    message: Outbound
    request_id: RequestId
    revision: Revision
    error: Exception | None
    """What ends the stream that belongs to the subscription alone, if there is one."""

    async def run(self) -> None:
        if self.error is None:
            await self.outlet.send(self.message)
        else:
            await self.outlet.answer(error_frame(self.request_id, self.revision, self.error), self.error)


def granted(chosen: SubscriptionFilter, *, lists: dict[str, bool], resources: bool) -> SubscriptionFilter:
    """The part of *chosen* that this server supports."""

    def allowed(name: str, flag: object) -> bool | None:
        return True if flag is True and lists.get(name) else None

    uris = chosen.resource_subscriptions if resources and chosen.resource_subscriptions is not UNSET else ()
    tools = allowed("tools", chosen.tools_list_changed)
    prompts = allowed("prompts", chosen.prompts_list_changed)
    listed = allowed("resources", chosen.resources_list_changed)
    return SubscriptionFilter(
        tools_list_changed=UNSET if tools is None else tools,
        prompts_list_changed=UNSET if prompts is None else prompts,
        resources_list_changed=UNSET if listed is None else listed,
        resource_subscriptions=tuple(uris) if uris else UNSET,
    )
