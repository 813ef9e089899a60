"""The broker: many servers behind one endpoint, for clients of every revision."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import trio

from callboard import tree
from callboard._version import __version__
from callboard.actors.broker.audience import BrokerAudience
from callboard.actors.broker.backend import Backend
from callboard.actors.broker.broker import BackendPlan, BrokerActor, Flush, News, Reload
from callboard.actors.broker.catalogue import Catalogue
from callboard.actors.broker.circuit import CircuitState
from callboard.actors.broker.merging import Approve
from callboard.actors.broker.offer import BrokerOffer
from callboard.actors.broker.tasks import check_extension
from callboard.actors.server.host import Host
from callboard.actors.server.parking import Parking
from callboard.actors.server.progress import ProgressTimer
from callboard.broker.pins import Pinning, Pins
from callboard.broker.placing import Here, Placed, Placing
from callboard.broker.reach import reach_for_all, reach_for_callers
from callboard.broker.reload import Reloader
from callboard.codecs.bridge.definitions import TOOLS
from callboard.codecs.revisions import ALL, Implementation, Revision
from callboard.codecs.seal import Seal
from callboard.config import BackendSpec, Configuration, PythonTarget, Remote, read_configuration
from callboard.server.served import BackendStatus, Behind, Served
from callboard.supervisor import Address, Supervisor, get_logger, open_tree
from callboard.transports.client.process import Command

if TYPE_CHECKING:
    from callboard.oauth.login_desk import LoginDesk

log = get_logger("callboard.broker")

PRE_WARM: Final = 10.0
"""Seconds that the listeners wait for backends to come up. A slower backend is listed when it is up."""

RELOAD: Final = 60.0
"""Seconds that the broker may take to end and start backends. Each of them has a few to end in."""

MARGIN: Final = 5.0
"""Seconds that a request has beyond what its backend may take."""

FEW_WORDS: Final = 160
"""Characters of the reason why a backend is not up, where all of them are counted up."""

WAIT_TOLD: Final = 1.0
"""Seconds of waiting for backends at the start after which the log says for which ones."""

_TROUBLE: Final = re.compile(
    r"error|fatal|exception|missing|cannot|could not|fail|not found|denied|invalid", re.IGNORECASE
)


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
        pre_warm: float = PRE_WARM,
        example: str | None = None,
        ready_when: Literal["any", "all"] = "any",
    ) -> None:
        """*example* is a call that the operator may try: a tool, and arguments as `callboard call` takes them. It is
        ready when *any* backend is up, or *all*."""
        self.info = Implementation(name=name, version=version)
        self.revisions = frozenset(revisions)
        self.specs: dict[str, BackendSpec] = {spec.name: spec for spec in backends}
        self.catalogue = Catalogue(approve)
        self.configuration: Configuration | None = None
        self.pins: Pins | None = None
        self.placing: Placing = Here()
        self.logins: LoginDesk | None = None
        self._placed: Mapping[str, Placed] = {}
        self._reloading = trio.Lock()
        self.ready_when = ready_when
        self._pre_warm = pre_warm
        self._example = example
        self._offer: BrokerOffer | None = None
        self._root: Supervisor | None = None
        self._host: Host | None = None

    @classmethod
    def of_file(cls, file: Path, **options: Any) -> Self:
        """A broker for the servers of *file*, which it keeps an eye on. Raises `BadConfiguration`."""
        found = read_configuration(file)
        for warning in found.warnings:
            log.warning("config_warning", warning=str(warning))
        pins = Pins.beside(file)
        broker = cls(found.backends, **{"approve": pins.approve, **options})
        broker.configuration, broker.pins = found, pins
        return broker

    # How it runs.

    @asynccontextmanager
    async def host(self, *, parking: Parking | None = None) -> AsyncIterator[Host]:
        """Run the broker, without any transport yet: backends are started, and waited for, but not for long."""
        lot = Parking(self.info.name) if parking is None else parking
        self.catalogue.seal = Seal(lot.ring, "cursor")  # workers share the ring: any of them goes on with a list
        offer = BrokerOffer(self.info, self.catalogue, self.revisions)
        audience = BrokerAudience(offer.find_resource)
        offer.on_lists = audience.lists_changed
        plans: dict[str, BackendPlan] = {}
        name, reports = self.info.name.replace("/", "-"), ProgressTimer()
        actor = partial(BrokerActor, self.info, offer, audience, plans)
        spec = tree.broker(name, lambda: lot, lambda: reports, actor)
        async with open_tree(spec) as root:
            self._offer, self._root = offer, root
            try:
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
                self._host.check_extensions = check_extension
                self._host.cap, self._host.passes = self._cap(), self._passes()
                yield self._host
            finally:
                self._offer = self._root = self._host = None
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
        if any(one.settings.required and not one.is_up for one in backends):
            return False
        return (all if self.ready_when == "all" else any)(one.is_up for one in backends)

    def join_workers(self) -> None:
        """It runs, and is one of several workers. What backends offer, each of them is told."""

    def behind(self) -> Behind:
        """The backends now, and with how much."""
        servers = tuple(_standing(backend, self.specs.get(name)) for name, backend in self.backends.items())
        return Behind(servers=servers, tools=self.catalogue.count_of(TOOLS), example=self._example)

    # How it changes while it runs.

    async def reload(self, backends: Sequence[BackendSpec]) -> None:
        """Go on with these backends: those that are new are started, those that are gone or changed are ended; the
        others keep their connections and do not notice.

        Raises `CannotServe` or `CannotConnect` for one that cannot be, and then nothing has changed.
        """
        async with self._reloading:
            after = {spec.name: spec for spec in backends}
            if self._root is not None:
                await self._reload(after)
            self.specs = after
            if self._host is not None:
                self._host.cap, self._host.passes = self._cap(), self._passes()

    async def _place_anew(self) -> None:
        async with self._reloading:
            await self._reload(self.specs)

    async def _reload(self, specs: Mapping[str, BackendSpec]) -> None:
        before, after = self._placed, {name: self.placing.place(spec) for name, spec in specs.items()}
        plans = {name: _plan(name, placed, self.logins) for name, placed in after.items() if before.get(name) != placed}
        await self._control().ask(Reload(tuple(after), plans), within=RELOAD)
        self._placed = after

    def _cap(self) -> float:
        """Seconds that any request may take: each backend has its own say within them."""
        return max((one.settings.cap for one in self.specs.values()), default=0.0) + MARGIN

    def _passes(self) -> tuple[bytes, ...]:
        """Headers of clients' requests that some backend gets."""
        return tuple(sorted({name.encode() for one in self.specs.values() for name in one.settings.pass_headers}))

    @property
    def wants_tokens(self) -> bool:
        """Whether a token of a caller must be kept with the caller: some backend gets another in exchange for it."""
        return any(one.auth is not None and one.auth.grant == "token_exchange" for one in self.specs.values())

    @property
    def wants_logins(self) -> bool:
        """Whether callers have to log in at some backend."""
        return any(one.auth is not None and one.auth.grant == "user" for one in self.specs.values())

    def _control(self) -> Address[News]:
        if self._root is None:
            raise RuntimeError("the broker is not running")
        return self._root.supervisor_of(tree.CONTROL).child(tree.BROKER)

    async def _wait_settled(self) -> None:
        with trio.move_on_after(self._pre_warm):
            with trio.move_on_after(WAIT_TOLD) as soon:
                await self._wait_each_settled()
            if soon.cancelled_caught:
                waited = [name for name, one in self.backends.items() if one.circuit.state is CircuitState.STARTING]
                log.info("waiting_for_servers", servers=", ".join(waited), at_most=self._pre_warm)
                await self._wait_each_settled()
        await self._control().ask(Flush(), within=RELOAD)  # what they offer is in the lists

    async def _wait_each_settled(self) -> None:
        for backend in list(self.backends.values()):
            await backend.wait_settled()


def _standing(backend: Backend, spec: BackendSpec | None) -> BackendStatus:
    why = ""
    if not backend.is_up:
        words = (backend.why, _telling(backend.said))
        why = ": ".join(" ".join(text.split())[:FEW_WORDS] for text in words if text.strip())
    is_named = spec is not None and isinstance(spec.target, Command | Remote | PythonTarget)  # a test may play one
    return BackendStatus(
        name=backend.name,
        state=backend.circuit.state.value,
        is_up=backend.is_up,
        why=why,
        transport=spec.transport if spec is not None and is_named else None,
    )


def _telling(said: Sequence[str]) -> str:
    """The line of a server's last words that says what went wrong: the last that looks like it, or the last one."""
    lines = [line for line in said if line.strip()]
    return next((line for line in reversed(lines) if _TROUBLE.search(line)), lines[-1] if lines else "")


def _plan(name: str, placed: Placed, logins: "LoginDesk | None") -> BackendPlan:
    reach, personal = reach_for_all(name, placed), reach_for_callers(name, placed, logins)
    return BackendPlan(name, placed.settings, reach, placed.withdraw, personal)
