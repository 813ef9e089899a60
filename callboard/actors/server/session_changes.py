"""Change notifications of a legacy session: the lists and resources that it is subscribed to, and overload."""

import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from typing import Any, Final, Protocol

import attrs
import trio

from callboard.actors.changes import Change, ListChanged, ListName, News, ResourceUpdated, weight_of
from callboard.actors.fan_out import BEHIND, SubscriberPace
from callboard.actors.frames import notification_frame
from callboard.actors.outlet import FrameKind, Outbound
from callboard.actors.rules import AccessRules
from callboard.actors.server.host import Host
from callboard.actors.server.subscription import change_notification
from callboard.actors.subscribers import Audience, Following
from callboard.actors.terms import Terms
from callboard.codecs.caller import Caller
from callboard.errors import PeerError, RequestFailed, ResourceNotFound
from callboard.supervisor import Address, Mailbox, Snapshot, get_logger

MAX_WAITING: Final = 512
"""Changes that wait for a client which reads. Beyond that it hears only that more has changed."""

MAX_WAITING_ABSENT: Final = 16
"""Changes that wait for a client which has no stream open: there may be many such, each for half an hour."""

MAX_SHOWN: Final = 128
"""Characters of a URI that the tree shows."""

log = get_logger("callboard.actors")


class ChangeListener(Protocol):
    """The session, as its change notifications need it."""

    account: str
    caller: Caller
    terms: Terms | None
    is_ready: bool

    @property
    def principal(self) -> str: ...

    @property
    def host(self) -> Host: ...

    @property
    def is_over(self) -> bool: ...

    @property
    def is_attached(self) -> bool: ...

    @property
    def address(self) -> Address[Any]: ...

    @property
    def inbox(self) -> Mailbox[Any]: ...

    def lose(self, message: object) -> None: ...


@attrs.define(eq=False)
class SessionChanges:
    """The changes that one session wants to hear of, and the lists that it must be told have changed."""

    session: ChangeListener
    lists: set[ListChanged] = attrs.field(factory=set, init=False)
    followed: dict[str, Any] = attrs.field(factory=dict, init=False)
    """The resources, by their URIs: what the audience gave for each."""
    _since: dict[str, float] = attrs.field(factory=dict, init=False)
    _missed: frozenset[ListName] = attrs.field(default=frozenset(), init=False)
    _pace: SubscriberPace | None = attrs.field(default=None, init=False)

    def snapshots(self, path: str, now: float, most: int = sys.maxsize) -> tuple[Snapshot, ...]:
        """The resources, as the tree shows them below the session at *path*: a task for each would weigh eight times as
        much."""
        return tuple(
            Snapshot(
                name=f"followed-{number}",
                path=f"{path}/followed-{number}",
                kind="ResourceSubscription",
                state="running",
                age=now - self._since.get(uri, now),
                facts={"uri": uri[:MAX_SHOWN]},
            )
            for number, uri in enumerate(islice(self.followed, most), 1)
        )

    @property
    def audience(self) -> Audience:
        return self.session.host.audience

    def join(self, lists: Iterable[ListChanged]) -> None:
        """Hear of these lists."""
        added = set(lists)
        self.lists |= added
        self.audience.lists.join(self.hear, added)

    async def follow(self, uri: str) -> None:
        """Hear of one resource. Raises `Overloaded` for one too many, `ResourceNotFound` if it cannot be followed."""
        session = self.session
        if uri in self.followed:
            return
        session.host.check_followed(len(self.lists) + len(self.followed) + 1)
        if not session.host.may_follow(session.caller, uri):
            raise ResourceNotFound(uri)
        weight, is_kept = weight_of([uri]), False
        session.host.followed.take(session.account, weight)
        try:
            following = await self.audience.follow([uri], session.principal, self.hear)
            if not following:
                raise ResourceNotFound(uri)
            if uri in self.followed or session.is_over:  # asked for twice at once, or by a client that has left
                self.audience.unfollow(following, self.hear)
            else:
                self.followed.update(following)
                self._since[uri] = trio.current_time()
                is_kept = True
        finally:
            if not is_kept:
                session.host.followed.give_back(session.account, weight)

    async def follow_again(self, uris: Iterable[str]) -> None:
        """Hear of these resources, as another worker's session did, and be told once that everything has changed."""
        for uri in uris:
            with suppress(PeerError, RequestFailed):  # it may be gone by now
                await self.follow(uri)
        for changed in self.lists:
            self.hear(changed)
        for uri in self.followed:
            self.hear(ResourceUpdated(uri))

    def compare(self, rules: AccessRules, before: Caller) -> None:
        """The client came with another token than *before*: tell it of the lists that are others for it now."""
        now = self.session.caller
        if before.scopes == now.scopes and before.claims == now.claims:
            return
        gates = self.session.host.offer.gates(rules)
        for one in self.lists:
            if any(gate.decide(before).is_listed is not gate.decide(now).is_listed for gate in set(gates[one.name])):
                self.hear(one)

    def unfollow(self, uri: str) -> None:
        """Hear of it no more. Harmless if it was never followed."""
        if uri in self.followed:
            self._since.pop(uri, None)
            self._unfollow({uri: self.followed.pop(uri)})

    def _unfollow(self, following: Following) -> None:
        self.audience.unfollow(following, self.hear)
        self.session.host.followed.give_back(self.session.account, weight_of(following))

    def end(self) -> None:
        """Hear of nothing any more."""
        if self._pace is not None:
            self._pace.catch_up()
        if self.lists:
            self.audience.lists.leave(self.hear, self.lists)
            self.lists.clear()
        if self.followed:
            followed, self.followed = self.followed, {}
            self._unfollow(followed)

    # What is heard.

    def hear(self, news: News) -> None:
        """Tell the client of a change, if there is room for it; else that the resources are others, once there is."""
        session = self.session
        if session.terms is None or not session.is_ready or session.is_over:
            return  # it may end while many are being told
        if isinstance(news, ResourceUpdated) and session.host.hides_resource(session.caller, news.uri):
            return
        waiting = session.inbox.coalesced
        if not isinstance(news, ListChanged | ResourceUpdated):
            self._miss(news, "resources")
        elif isinstance(news, ListChanged):
            if not self._tell(news):
                self._miss(news, news.name)
        elif "resources" in self._missed or waiting >= self._most or not self._tell(news):
            self._miss(news, "resources")
        elif waiting >= BEHIND and session.is_attached:
            if self._pace is None:
                self._pace = SubscriberPace(self.audience.fan_out)
            self._pace.fall_behind()

    @property
    def _most(self) -> int:
        return MAX_WAITING if self.session.is_attached else MAX_WAITING_ABSENT

    def _tell(self, change: Change) -> bool:
        session = self.session
        if session.terms is None:
            return False
        frame = notification_frame(session.terms.revision, *change_notification(change))
        try:
            session.address.send_nowait(Outbound(frame, FrameKind.CHANGE, change))
        except trio.WouldBlock:
            return False
        return True

    def _miss(self, news: News, name: ListName) -> None:
        session = self.session
        session.lose(news)
        if name not in self._missed:
            self._missed |= {name}
            log.info("subscriber_behind", session=session.address.path, waiting=session.inbox.coalesced)
            if not session.inbox.coalesced:  # nothing is written that could make room
                self.catch_up()

    def catch_up(self) -> None:
        """Called when the client has taken what waited: tell it once of what it missed meanwhile."""
        if self._pace is not None:
            self._pace.catch_up()
        for name in self._missed:
            if self._tell(ListChanged(name)):
                self._missed -= {name}

    @property
    def is_behind(self) -> bool:
        """Whether the client is to be told of something when it has taken what waits."""
        return bool(self._missed) or self._pace is not None
