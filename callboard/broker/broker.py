"""The broker: many servers behind one endpoint, for clients of every revision."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import trio

from callboard import tree
from callboard._version import __version__
from callboard.actors.broker.audience import BrokerAudience
from callboard.actors.broker.backend import Backend
from callboard.actors.broker.broker import BackendPlan, BrokerActor, News, Reload
from callboard.actors.broker.cached_lists import KeptLists
from callboard.actors.broker.catalogue import Catalogue
from callboard.actors.broker.circuit import CircuitState
from callboard.actors.broker.known_tools import known_tools
from callboard.actors.broker.merging import Approve
from callboard.actors.broker.news import Flush
from callboard.actors.broker.offer import BrokerOffer
from callboard.actors.broker.override_problems import override_problems
from callboard.actors.broker.paths import BrokerPaths
from callboard.actors.broker.policy import Profile
from callboard.actors.broker.tasks import check_extension
from callboard.actors.server.host import Host
from callboard.actors.server.parking import Parking
from callboard.actors.server.progress import ProgressTimer
from callboard.actors.server.tool_search import ToolSearch
from callboard.actors.tape import Tape
from callboard.actors.unused_rules import UnusedRules
from callboard.broker.caches import ListCaches
from callboard.broker.interceptors import intercept, load_interceptors
from callboard.broker.own_extensions import OwnExtensions, patterns_and_own
from callboard.broker.pins import Pinning, Pins
from callboard.broker.placing import Here, Placed, Placing
from callboard.broker.reach import reach_for_all, reach_for_callers
from callboard.broker.reload import Reloader
from callboard.codecs.bridge.definitions import TOOLS
from callboard.codecs.bridge.transparent import Transparent
from callboard.codecs.http.passed import header_names
from callboard.codecs.revisions import ALL, Implementation, Revision
from callboard.codecs.seal import Seal
from callboard.config import BackendSpec, BackendTarget, Configuration, read_configuration
from callboard.config.front import START_WAIT, FrontSettings
from callboard.config.loading import skip_reason
from callboard.errors import CannotServe
from callboard.server.extension import Extension
from callboard.server.middleware import Middleware
from callboard.server.served import BackendStatus, Behind, Served
from callboard.supervisor import Address, Supervisor, get_logger, open_tree
from callboard.supervisor.last_words import telling
from callboard.supervisor.logs import load_structlog

if TYPE_CHECKING:
    from callboard.oauth.login_desk import LoginDesk

log = get_logger("callboard.broker")

RELOAD: Final = 60.0
"""Seconds that the broker may take to end and start backends. Each of them has a few to end in."""

MARGIN: Final = 5.0
"""Seconds that a request has beyond what its backend may take."""

FEW_WORDS: Final = 160
"""Characters of the reason why a backend is not up, where all of them are counted up."""

WAIT_TOLD: Final = 1.0
"""Seconds of waiting for backends at the start after which the log says for which ones."""


class Broker(Served):
    """Stands in front of the servers of a configuration. Runs as a `Server` does."""

    def __init__(
        self,
        backends: Sequence[BackendSpec],
        *,
        name: str = "callboard",
        version: str = __version__,
        revisions: frozenset[Revision] = ALL,
        approve: Approve | None = None,
        pre_warm: float = START_WAIT,
        example: str | None = None,
        ready_when: Literal["any", "all"] = "any",
        extensions: Iterable[str | Extension] = (),
        experimental: Iterable[str] = (),
        profiles: Iterable[Profile] = (),
        interceptors: Iterable[Middleware] = (),
        interceptor_headers: Iterable[str] = (),
        tool_search: bool = False,
    ) -> None:
        """*example* has calls that the operator may try, one on each line: a tool, and arguments as `callboard call`
        takes them. It is ready when *any* backend is up, or *all*. *extensions* and *experimental*
        capabilities of these names, which may be shell patterns, cross both ways, as MCP Apps (`ui`) do in
        any case; an `Extension` among them is the broker's own: it declares it, and serves its methods. *profiles* are
        served at paths of their own, as each backend is. *interceptors* stand around each request, list and method of
        an extension, the first one outermost, and find *interceptor_headers* of a client's HTTP request in
        `ctx.headers`. With *tool_search* clients are shown `search_tools` and `call_tool` in the place of all tools."""
        self.info = Implementation(name=name, version=version)
        self.revisions = frozenset(revisions)
        self.specs: dict[str, BackendSpec] = {spec.name: spec for spec in backends}
        self.catalogue = Catalogue(approve)
        crossing, self.extensions = patterns_and_own(extensions)
        self.transparent = Transparent(crossing, tuple(experimental))
        self.profiles = tuple(profiles)
        self.interceptors = tuple(interceptors)
        self._interceptor_headers = header_names(tuple(interceptor_headers))
        self.tool_search = tool_search
        self.configuration: Configuration | None = None
        self.pins: Pins | None = None
        self.placing: Placing = Here()
        self.logins: LoginDesk | None = None
        self.caches: Callable[[str, Placed], KeptLists | None] | None = None
        """Keep the lists of servers that are started when they are needed."""
        self.tape: Tape | None = None
        """Takes what is said to the servers and what they say, if that is recorded."""
        self._placed: Mapping[str, Placed] = {}
        self._reloading = trio.Lock()
        self.ready_when = ready_when
        self.pre_warm = pre_warm
        self._example = example
        self._offer: BrokerOffer | None = None
        self._root: Supervisor | None = None
        self._host: Host | None = None
        self._paths: BrokerPaths | None = None

    @classmethod
    def of_file(cls, file: Path, *, skips_invalid: bool = False, **options: Any) -> Self:
        """A broker for the servers of *file*, which it keeps an eye on. Raises `BadConfiguration`; with *skips_invalid*
        a server with mistakes is left out instead, and logged."""
        found = read_configuration(file, skips_invalid=skips_invalid)
        for warning in found.warnings:
            log.warning("config_warning", warning=str(warning))
        pins = Pins.beside(file)
        front = found.front
        said = {
            "extensions": front.extensions,
            "experimental": front.experimental,
            "profiles": front.profiles,
            "interceptors": load_interceptors(front.interceptors),
            "interceptor_headers": [name.decode() for name in front.interceptor_headers],
            "tool_search": front.tool_search,
            "pre_warm": front.wait,
        }
        broker = cls(found.backends, **{"approve": pins.approve, **said, **options})
        broker.configuration, broker.pins, caches = found, pins, ListCaches.at_home()
        broker.caches = None if caches is None else caches.of
        return broker

    # How it runs.

    @asynccontextmanager
    async def host(self, *, parking: Parking | None = None) -> AsyncIterator[Host]:
        """Run the broker, without any transport yet: backends are started, and waited for, but not for long."""
        load_structlog()
        lot = Parking(self.info.name) if parking is None else parking
        self.catalogue.seal = Seal(lot.ring, "cursor")  # workers share the ring: any of them goes on with a list
        offer = BrokerOffer(self.info, self.catalogue, self.revisions, transparent=self.transparent)
        own = OwnExtensions(self.info, self.extensions, offer.guard) if self.extensions else None
        offer.adopt(own)
        intercept(offer, self.interceptors)
        audience = BrokerAudience(offer.find_resource, transparent=self.transparent)
        offer.on_lists = audience.lists_changed
        plans: dict[str, BackendPlan] = {}
        name, reports = self.info.name.replace("/", "-"), ProgressTimer()
        actor = partial(BrokerActor, self.info, offer, audience, plans, self.pins, self._warn_unused)
        spec = tree.broker(name, lambda: lot, lambda: reports, actor)
        async with open_tree(spec) as root:
            self._offer, self._root = offer, root
            try:
                if own is not None:
                    own.begin(root)
                await self.placing.learn()
                await self._reload(self.specs)
                root.spawn(offer.tasks, name="tasks")
                if (watcher := self.placing.watcher(self._place_anew)) is not None:
                    root.spawn(watcher, name="placing", shutdown=0)
                if self.pins is not None:
                    root.spawn(Pinning(self.pins, self._control()), name="pins")
                if self.configuration is not None:  # it has nothing to finish
                    root.spawn(Reloader(self, self.configuration), name="configuration", shutdown=0)
                await self._wait_settled()
                self._host = Host(offer, root, lot, audience=audience, reports=reports)
                self._host.unused_rules = UnusedRules(partial(known_tools, offer))
                self._host.check_extensions = check_extension
                self._host.cap, self._host.passes = self._cap(), self._passes()
                self._host.search = ToolSearch() if self.tool_search else None
                self._paths = self._host.paths = BrokerPaths(self._host, offer, audience)
                self._paths.configure(self.profiles)
                yield self._host
            finally:
                self._offer = self._root = self._host = self._paths = None
                self._placed = {}

    @property
    def backends(self) -> Mapping[str, Backend]:
        """The running backends, by name."""
        return {} if self._offer is None else self._offer.backends

    @property
    def tree(self) -> Supervisor | None:
        """The supervision tree, while it runs."""
        return self._root

    def is_ready(self) -> bool:
        """Whether any backend is up, or all of them if `ready_when` says so; and each that is required."""
        backends = self.backends.values()
        if any(one.settings.required and not one.is_available for one in backends):
            return False
        return (all if self.ready_when == "all" else any)(one.is_available for one in backends)

    def join_workers(self) -> None:
        """It runs, and is one of several workers. What backends offer, each of them is told."""

    def behind(self) -> Behind:
        """The backends now, and with how much."""
        servers = tuple(_standing(backend, self.specs.get(name)) for name, backend in self.backends.items())
        return Behind(servers=servers, tools=self.catalogue.count_of(TOOLS), example=self._example)

    # How it changes while it runs.

    async def reload(self, backends: Sequence[BackendSpec], front: FrontSettings | None = None) -> None:
        """Go on with these backends: those that are new are started, those that are gone or changed are ended; the
        others keep their connections and do not notice. *front*: other settings of the broker itself.

        Raises `CannotServe` or `CannotConnect` for one that cannot be, and then nothing has changed.
        """
        async with self._reloading:
            interceptors = None if front is None else load_interceptors(front.interceptors)
            after = {spec.name: spec for spec in backends}
            if self._root is not None:
                await self._reload(after)
            self.specs = after
            if front is not None:
                self.interceptors = interceptors or ()
                self._adopt(front)
            if self._host is not None:
                self._host.cap, self._host.passes = self._cap(), self._passes()

    def _adopt(self, front: FrontSettings) -> None:
        self.transparent.replace(front.extensions, front.experimental)
        self.profiles = front.profiles
        self._interceptor_headers = front.interceptor_headers
        if self._host is not None and self.tool_search != front.tool_search:
            self._host.search = ToolSearch() if front.tool_search else None
            if self._offer is not None:
                for offer in (self._offer, *self._offer.narrowed.values()):
                    offer.tell_of(["tools"])
        self.tool_search = front.tool_search
        if self._offer is not None:
            intercept(self._offer, self.interceptors)
            self._offer.look_around()
        if self._paths is not None:
            self._paths.configure(self.profiles)

    async def _place_anew(self) -> None:
        async with self._reloading:
            await self._reload(self.specs)

    async def _reload(self, specs: Mapping[str, BackendSpec]) -> None:
        after: dict[str, Placed] = {}
        plans = {}
        for name, spec in specs.items():
            try:
                placed = self.placing.place(spec)
                if self._placed.get(name) != placed:
                    plans[name] = self._plan(name, placed)
            except CannotServe as error:
                if self.configuration is None or not self.configuration.skips_invalid:
                    raise
                log.warning("config_warning", warning=f"{name}: {skip_reason(error)}; the server is skipped")
            else:
                after[name] = placed
        await self._control().ask(Reload(tuple(after), plans), within=RELOAD)
        self._placed = after

    def _plan(self, name: str, placed: Placed) -> BackendPlan:
        reach = reach_for_all(name, placed, self.tape)
        personal = reach_for_callers(name, placed, self.logins, self.tape)
        cache = None if self.caches is None else self.caches(name, placed)
        return BackendPlan(name, placed.settings, reach, placed.withdraw, personal, cache)

    def _cap(self) -> float:
        """Seconds that any request may take: each backend has its own say within them."""
        return max((one.settings.cap for one in self.specs.values()), default=0.0) + MARGIN

    def _passes(self) -> tuple[bytes, ...]:
        """Headers of clients' requests that some backend gets, or an interceptor reads."""
        passed = {name.encode() for one in self.specs.values() for name in one.settings.pass_headers}
        return tuple(sorted({*passed, *self._interceptor_headers}))

    @property
    def wants_tokens(self) -> bool:
        """Whether a token of a caller must be kept with the caller: some backend gets another in exchange for it."""
        return any(one.auth is not None and one.auth.grant == "token_exchange" for one in self.specs.values())

    @property
    def wants_logins(self) -> bool:
        """Whether callers have to log in at some backend."""
        return any(one.auth is not None and one.auth.grant == "user" for one in self.specs.values())

    def _warn_unused(self) -> None:
        if self._host is not None:
            self._host.unused_rules.warn(self._host.rules)

    def _control(self) -> Address[News]:
        if self._root is None:
            raise RuntimeError("the broker is not running")
        return self._root.supervisor_of(tree.CONTROL).child(tree.BROKER)

    async def _wait_settled(self) -> None:
        with trio.move_on_after(self.pre_warm):
            with trio.move_on_after(WAIT_TOLD) as soon:
                await self._wait_each_settled()
            if soon.cancelled_caught:
                waited = [name for name, one in self.backends.items() if one.circuit.state is CircuitState.STARTING]
                log.info("waiting_for_servers", servers=", ".join(waited), at_most=self.pre_warm)
                await self._wait_each_settled()
        await self._control().ask(Flush(), within=RELOAD)  # what they offer is in the lists

    async def _wait_each_settled(self) -> None:
        for backend in list(self.backends.values()):
            await backend.wait_settled()


def _standing(backend: Backend, spec: BackendSpec | None) -> BackendStatus:
    why = ""
    if not backend.is_available:
        quiet = "no response yet" if backend.circuit.state is CircuitState.STARTING else ""
        words = (backend.why or quiet, telling(backend.said))
        why = ": ".join(" ".join(text.split())[:FEW_WORDS] for text in words if text.strip())
    elif problems := override_problems(backend.name, backend.listings):
        why = "; ".join(problem[:FEW_WORDS] for problem in problems)
    is_named = spec is not None and isinstance(spec.target, BackendTarget)  # a test may play one
    return BackendStatus(
        name=backend.name,
        state=backend.circuit.state.value,
        is_up=backend.is_available,
        why=why,
        transport=spec.transport if spec is not None and is_named else None,
    )
