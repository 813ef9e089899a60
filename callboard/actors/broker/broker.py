"""The broker's control plane: one actor that owns the backends, the catalogue and the offer, and is told of all news.

Backends, the file of pins and the configuration tell it; requests never do. Requests read the catalogue as it is.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

import attrs
import trio

from callboard import tree
from callboard.actors.broker.audience import BrokerAudience
from callboard.actors.broker.backend import Backend, Withdraw
from callboard.actors.broker.cached_lists import KeptLists
from callboard.actors.broker.connection import Reach
from callboard.actors.broker.news import Flush, Listed, StateChanged
from callboard.actors.broker.offer import BrokerOffer
from callboard.actors.broker.personal import CallerReach
from callboard.actors.broker.policy import BackendSettings
from callboard.actors.broker.skill_pins import SkillApprovals, SkillPins
from callboard.codecs.bridge.definitions import RESOURCES
from callboard.codecs.revisions import Implementation
from callboard.errors import CallboardError
from callboard.supervisor import Actor, Ask, Fact, MailboxSpec, Overflow, Supervisor

NEWS: Final = 10_000
"""Messages that wait for the broker. Those of a backend are merged: two for each backend at most, and few others."""


@attrs.frozen
class BackendPlan:
    """A backend as it is configured."""

    name: str
    settings: BackendSettings
    reach: Reach
    withdraw: Withdraw | None = None
    personal: CallerReach | None = None
    cache: KeptLists | None = None


@attrs.frozen
class Approved:
    """The operator has approved of definitions: what was withheld may be shown."""


@attrs.frozen
class Reload(Ask[None]):
    """Go on with backends of these names, in this order; start those of *plans*, instead of those that run."""

    order: tuple[str, ...]
    plans: Mapping[str, BackendPlan]


News: TypeAlias = Listed | StateChanged | Approved | Reload | Flush


def _overflow(message: News) -> Overflow:
    return Overflow.WAIT if isinstance(message, Ask) else Overflow.COALESCE


@attrs.define(eq=False)
class BrokerActor(Actor[News]):
    """Takes in what backends, operator and configuration say: the only writer of the catalogue's base lists."""

    mailbox = MailboxSpec[News](size=NEWS, overflow=_overflow, key=lambda message: message)

    info: Implementation
    offer: BrokerOffer
    audience: BrokerAudience
    plans: dict[str, BackendPlan]
    """How the backends are configured that should run. It outlives this actor's crash, as the offer does."""
    approvals: SkillApprovals | None = None
    """Of skills of pinned servers."""
    on_news: Callable[[], None] = attrs.field(default=lambda: None)
    """Called when backends have other lists, or others of them are up: not while some are about to start."""
    _reloading: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def run(self) -> None:
        for name in self.offer.backends:  # after a crash: what it was told last may have been lost
            self.address.send_nowait(Listed(name))
            self.address.send_nowait(StateChanged(name))
        async with trio.open_nursery() as nursery:
            async for message in self.inbox:
                match message:
                    case Listed(name):
                        self._listed(name)
                    case StateChanged(name):
                        self._state_changed(name)
                    case Approved():
                        self._review()
                    case Flush():
                        message.reply(None)
                    case Reload():  # backends may take seconds to end: news is taken in meanwhile
                        nursery.start_soon(self._reload, message)
            nursery.cancel_scope.cancel()

    def facts(self) -> Mapping[str, Fact]:
        return {"backends": len(self.offer.backends), "catalogue": self.offer.catalogue.version}

    # What it is told.

    def _listed(self, name: str) -> None:
        backend = self.offer.backends.get(name)
        if backend is not None:
            self.offer.put(name, *backend.listings.take_news())
            backend.views.base_read()
            self._tell()

    def _state_changed(self, name: str) -> None:
        backend = self.offer.backends.get(name)
        if backend is not None:
            self.offer.catalogue.mark(name, is_stale=not backend.is_available)
            self.offer.look_around()
            if backend.is_up:
                self.audience.came_up(backend)
            self._tell()

    def _tell(self) -> None:
        if not self._reloading.locked():
            self.on_news()

    def _review(self) -> None:
        self.offer.review()
        changed = {name for name, one in self.offer.backends.items() if one.skills is not None and one.skills.review()}
        for offer in (self.offer, *self.offer.narrowed.values()):
            if not changed.isdisjoint(offer.backends):
                offer.tell_of([RESOURCES.member])  # of skills there is no news, and their files are resources

    async def _reload(self, message: Reload) -> None:
        async with self._reloading:
            known = {**self.plans, **message.plans}
            self.plans.clear()
            self.plans.update({name: known[name] for name in message.order})
            staying = {_path(name) for name in message.order if name not in message.plans}
            self._order()  # what is gone is in no list from here on: it is not looked up while it ends
            async with trio.open_nursery() as nursery:
                for address, _ in self._backends.actors():
                    if address.name not in staying:
                        nursery.start_soon(address.stop)
            await self._start(message.plans)
        self.on_news()
        message.reply(None)

    # The backends.

    @property
    def _backends(self) -> Supervisor:
        return self.supervisor.supervisor.supervisor_of(tree.BACKENDS)

    async def _start(self, plans: Mapping[str, BackendPlan]) -> None:
        """Start these, and let the catalogue have all of them."""
        expected = {*self.offer.backends, *plans}  # the first may list what it has before the last is started
        self._arrange([name for name in self.plans if name in expected])
        for plan in plans.values():
            group = await self._backends.add(tree.backend(_path(plan.name)))
            await group.add(tree.backend_actor(partial(self._backend, plan, group)))
        self._order()

    def _order(self) -> None:
        """Have those that are there in the order of the configuration."""
        running = self.offer.backends
        self.offer.backends = {name: running[name] for name in self.plans if name in running}
        self._arrange(list(self.offer.backends))
        self.offer.look_around()

    def _arrange(self, names: list[str]) -> None:
        settings = {name: plan.settings for name, plan in self.plans.items()}
        self.offer.tell_of(self.offer.catalogue.arrange(names, settings))

    def _backend(self, plan: BackendPlan, group: Supervisor) -> Backend:
        """A backend that is about to run: it takes the place of the one before, if there was one. The supervisor calls
        this, and not a message: requests must find it before it has anything to say."""
        offer = self.offer
        backend = Backend(
            plan.name,
            plan.settings,
            plan.reach,
            self.info,
            group,
            broker=self.address,
            on_view=partial(offer.put_for, plan.name),
            serves=lambda uri: self._serves(backend, uri),
            fan_out=self.audience.fan_out,
            transparent=offer.transparent,
            on_custom=lambda *said: offer.on_custom(*said),
            withdraw=plan.withdraw,
            personal=plan.personal,
            cache=plan.cache,
        )
        if plan.settings.pin and self.approvals is not None:
            backend.skills = SkillPins(backend, self.approvals)
        if (before := offer.backends.get(plan.name)) is not None:
            backend.subscriptions.inherit(before.subscriptions)
            offer.catalogue.forget_others(plan.name)
        offer.take_in(backend)
        return backend

    def _serves(self, backend: Backend, uri: str) -> bool:
        try:
            return self.offer.find_resource(uri)[0] is backend
        except CallboardError:
            return False


def _path(name: str) -> str:
    return name.replace("/", "-")
