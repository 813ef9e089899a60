"""When the program of a backend runs: always, from the first need on, or only as long as it is used."""

import attrs
import trio

from callboard.actors.broker.cached_lists import CachedLists, KeptLists, restore
from callboard.actors.broker.connection import BackendConnection
from callboard.actors.broker.listing import BackendLists
from callboard.actors.broker.policy import BackendSettings
from callboard.actors.broker.pool import SWEEP, BackendPool
from callboard.actors.broker.upstream_subscriptions import UpstreamSubscriptions
from callboard.actors.broker.views import ListViews
from callboard.actors.client.negotiate import Agreed
from callboard.actors.shares import Shares


@attrs.define(eq=False)
class BackendUse:
    """What a backend is needed for: as long as there is any of it, its program is not ended."""

    pool: BackendPool
    subscriptions: UpstreamSubscriptions
    views: ListViews
    shares: tuple[Shares, ...]
    """Requests, and notifications, that are on their way to it."""

    @property
    def is_followed(self) -> bool:
        """Whether clients follow something of it, maybe since before it was configured anew."""
        return next(self.subscriptions.counts(), None) is not None

    def is_quiet(self, primary: BackendConnection) -> bool:
        """Whether nothing but the shared connection is left of it, and that does nothing."""
        return (
            not primary.uses
            and not primary.tasks
            and len(self.pool) == 1
            and not any(one.total for one in self.shares)
            and not any(view.is_read_now for view in self.views.known())
            and not self.is_followed
        )


@attrs.define(eq=False)
class BackendSleep:
    """Whether the program of one backend is needed now. Decides nothing else: the backend starts and ends it."""

    settings: BackendSettings
    cache: KeptLists | None = None
    _needed: trio.Event = attrs.field(factory=trio.Event, init=False)
    _awake_until: float = attrs.field(default=0.0, init=False)
    _news: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def notes_use(self) -> bool:
        """Whether it matters when the shared connection was used last."""
        return self.settings.idle_stop is not None

    @property
    def idle_time(self) -> float:
        """Seconds after which an unused connection of the pool is ended: none keeps the program for longer."""
        idle = self.settings.idle_stop
        return self.settings.idle_time if idle is None else min(idle, self.settings.idle_time)

    # While it sleeps.

    def begin(self) -> None:
        """From now on it is needed only if something says so."""
        self._needed = trio.Event()

    def wake(self) -> None:
        """Have the program run, as soon as it can. No matter if it does."""
        self._needed.set()

    async def wait_needed(self, use: BackendUse) -> None:
        """Wait for `wake`, which may have been called while the program was being ended."""
        if not use.is_followed:
            await self._needed.wait()

    async def restore(self, listings: BackendLists) -> Agreed | None:
        """The lists of the last run, if the program is not to be started for them; None if it must be."""
        if self.settings.start != "lazy" or self.cache is None:
            return None
        cached = await self.cache.load()
        if cached is None:
            return None
        await restore(listings, cached)
        return cached.agreed

    # While it runs.

    def keep_awake(self, seconds: float) -> None:
        """The program has given something away that only this process of it may understand."""
        self._awake_until = max(self._awake_until, trio.current_time() + seconds)

    async def wait_idle(self, primary: BackendConnection, use: BackendUse) -> None:
        """Wait until nothing has been asked of it for `idle_stop`. Returns in the turn in which that is so, so that no
        request can come in between."""
        idle = self.settings.idle_stop
        if idle is None:
            await trio.sleep_forever()
        since = trio.current_time()
        while True:
            now = trio.current_time()
            if not use.is_quiet(primary) or now < self._awake_until:
                since = now
            since = max(since, primary.used)
            if now - since >= idle:
                return
            await trio.sleep(min(since + idle - now, SWEEP))

    def listed(self) -> None:
        """The lists are others than before."""
        self._news.set()

    async def keep_lists(self, agreed: Agreed, listings: BackendLists) -> None:
        """Keep the lists for the next run, now and whenever they change."""
        if self.settings.start != "lazy" or self.cache is None:
            return
        while True:
            self._news = trio.Event()
            if (lists := CachedLists.of(agreed, listings)) is not None:
                await self.cache.save(lists)
            await self._news.wait()
            await trio.sleep(SWEEP)  # a backend may change its lists all the time
