"""The broker: many servers behind one endpoint, for clients of every revision."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence, Set
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import trio

from callboard import tree
from callboard._version import __version__
from callboard.actors.broker.audience import BrokerAudience
from callboard.actors.broker.backend import Backend
from callboard.actors.broker.catalogue import Catalogue
from callboard.actors.broker.circuit import CircuitState
from callboard.actors.broker.connection import Begin, Reach
from callboard.actors.broker.listing import Listing
from callboard.actors.broker.merging import Approve
from callboard.actors.broker.offer import BrokerOffer
from callboard.actors.broker.policy import BackendSettings
from callboard.actors.broker.tasks import check_extension
from callboard.actors.client.caller import Caller
from callboard.actors.client.negotiate import Agreed
from callboard.actors.server.host import Host
from callboard.actors.server.parking import Parking
from callboard.broker.pins import Pinning, Pins
from callboard.broker.reload import Reloader
from callboard.client.connect import Connector
from callboard.client.routes import ClientAccess, ways_to
from callboard.codecs.bridge.askable import Signature
from callboard.codecs.bridge.definitions import TOOLS
from callboard.codecs.revisions import ALL, Implementation, Revision
from callboard.config import BackendSpec, Configuration, PythonTarget, read_configuration
from callboard.errors import Draining
from callboard.server.load import load_server
from callboard.server.served import BackendStatus, Behind, Served
from callboard.supervisor import (
    Supervisor,
    get_logger,
    open_tree,
)

log = get_logger("callboard.broker")

PRE_WARM: Final = 10.0
"""Seconds that the doors stay closed for backends to come up. A slower one is in the lists when it is there."""

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
    ) -> None:
        """*example* is a call that the operator may try: a tool, and arguments as `callboard call` takes them."""
        self.info = Implementation(name=name, version=version)
        self.revisions = frozenset(revisions)
        self.specs: dict[str, BackendSpec] = {spec.name: spec for spec in backends}
        self.catalogue = Catalogue(approve)
        self.configuration: Configuration | None = None
        self.pins: Pins | None = None
        self._pre_warm = pre_warm
        self._example = example
        self._company: BrokerOffer | None = None
        self._listeners = BrokerAudience(self._find)
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
        async with open_tree(tree.broker(self.info.name.replace("/", "-"), lambda: lot)) as root:
            company = self._company = BrokerOffer(
                self.info, self.catalogue, self._listeners.lists_changed, self.revisions
            )
            self._root = root
            try:
                await self._arrange({name: _reach(spec) for name, spec in self.specs.items()})
                root.spawn(company.tasks, name="tasks")
                if self.pins is not None:
                    root.spawn(Pinning(self.pins, self._review), name="pins")
                if self.configuration is not None:  # it has nothing to finish
                    root.spawn(Reloader(self, self.configuration), name="configuration", shutdown=0)
                await self._wait_settled()
                self._host = Host(company, root, lot, audience=self._listeners, check_extensions=check_extension)
                self._host.cap = self._cap()
                yield self._host
            finally:
                self._company = self._root = self._host = None

    @property
    def backends(self) -> Mapping[str, Backend]:
        """Those that run now, by their names."""
        return {} if self._company is None else self._company.backends

    @property
    def tree(self) -> Supervisor | None:
        """The supervision tree, while it runs."""
        return self._root

    def is_ready(self) -> bool:
        """Whether any backend is up."""
        return any(backend.is_up for backend in self.backends.values())

    def behind(self) -> Behind:
        """The backends now, and with how much."""
        servers = tuple(_standing(backend) for backend in self.backends.values())
        return Behind(servers=servers, tools=self.catalogue.count_of(TOOLS), example=self._example)

    # How it changes while it runs.

    async def reload(self, backends: Sequence[BackendSpec]) -> None:
        """Go on with these backends: those that are new are started, those that are gone or changed are ended; the
        others keep their connections and do not notice.

        Raises `CannotServe` or `CannotConnect` for one that cannot be, and then nothing has changed.
        """
        before, after = self.specs, {spec.name: spec for spec in backends}
        ways = {name: _reach(spec) for name, spec in after.items() if before.get(name) != spec}
        self.specs = after
        if self._root is None or self._company is None:
            return
        self._order()  # what is gone is in no list from here on: it is not looked up while it ends
        async with trio.open_nursery() as nursery:
            for name, spec in before.items():
                if after.get(name) != spec:
                    nursery.start_soon(self._stop, name)
        await self._arrange(ways)
        if self._host is not None:
            self._host.cap = self._cap()

    def _cap(self) -> float:
        """Seconds that any request may take: each backend has its own say within them."""
        return max((one.settings.cap for one in self.specs.values()), default=0.0) + MARGIN

    async def _arrange(self, ways: Mapping[str, Reach]) -> None:
        """Start the backends that are reached so, and let the catalogue have all of them."""
        company = self._running()
        expected = {*company.backends, *ways}  # the first may list what it has before the last is started
        company.tell_of(self.catalogue.arrange([name for name in self.specs if name in expected], self._settings()))
        for name, reach in ways.items():
            await self._start(self.specs[name], reach)
        self._order()

    def _order(self) -> None:
        """Have those that are there in the order of the configuration."""
        company = self._running()
        company.backends = {name: company.backends[name] for name in self.specs if name in company.backends}
        changed = self.catalogue.arrange(company.backends, self._settings())
        company.look_around()
        company.tell_of(changed)

    def _settings(self) -> dict[str, BackendSettings]:
        return {name: spec.settings for name, spec in self.specs.items()}

    async def _start(self, spec: BackendSpec, reach: Reach) -> None:
        """Start a backend. If its actor crashes, all that belongs to it is started anew; no other one notices."""
        backends = self._running_tree().supervisor_of(tree.BACKENDS)
        group = await backends.add(tree.backend(_path(spec.name)))
        await group.add(tree.backend_actor(partial(self._backend, spec, reach, group)))

    async def _stop(self, name: str) -> None:
        try:
            address = self._running_tree().supervisor_of(tree.BACKENDS).child(_path(name))
        except LookupError:
            return  # it has ended by itself
        await address.stop()

    def _backend(self, spec: BackendSpec, reach: Reach, group: Supervisor) -> Backend:
        """A backend that is about to run: it takes the place of the one before, if there was one."""
        backend = Backend(
            spec.name,
            spec.settings,
            reach,
            self.info,
            group,
            on_listing=self._listed,
            on_view=self._shown,
            on_state=self._changed,
            on_updated=lambda uri, followed, who: self._listeners.updated(backend, uri, followed, who),
            wait_change=self._listeners.fan_out.wait_source,
        )
        if (before := self.backends.get(spec.name)) is not None:
            self._listeners.replace(before, backend)
            self.catalogue.forget_others(spec.name)
        self._running().backends[spec.name] = backend  # before it has anything to say
        return backend

    def _listed(self, name: str, listing: Listing, said: Set[str]) -> None:
        if self._company is not None:
            self._company.put(name, listing, said)

    def _shown(self, name: str, signature: Signature, listing: Listing, tells: bool) -> None:
        if self._company is not None:
            self._company.put_for(signature, name, listing, tells=tells)

    def _changed(self, name: str) -> None:
        """A backend is up, or is not any more."""
        if self._company is not None and name in self._company.backends:
            self.catalogue.mark(name, is_stale=not self._company.backends[name].is_up)
            self._company.look_around()

    def _review(self) -> None:
        """The operator has approved of something."""
        if self._company is not None:
            self._company.tell_of(self.catalogue.review())

    async def _wait_settled(self) -> None:
        with trio.move_on_after(self._pre_warm):
            with trio.move_on_after(WAIT_TOLD) as soon:
                await self._wait_each_settled()
            if soon.cancelled_caught:
                waited = [name for name, one in self.backends.items() if one.circuit.state is CircuitState.STARTING]
                log.info("waiting_for_servers", servers=", ".join(waited), at_most=self._pre_warm)
                await self._wait_each_settled()

    async def _wait_each_settled(self) -> None:
        for backend in list(self.backends.values()):
            await backend.wait_settled()

    def _running(self) -> BrokerOffer:
        if self._company is None:
            raise RuntimeError("the broker does not run")
        return self._company

    def _running_tree(self) -> Supervisor:
        if self._root is None:
            raise RuntimeError("the broker does not run")
        return self._root

    def _find(self, uri: str) -> tuple[Backend, str]:
        if self._company is None:
            raise Draining
        return self._company.find_resource(uri)


def _standing(backend: Backend) -> BackendStatus:
    why = ""
    if not backend.is_up:
        words = (backend.why, _telling(backend.said))
        why = ": ".join(" ".join(text.split())[:FEW_WORDS] for text in words if text.strip())
    return BackendStatus(name=backend.name, state=backend.circuit.state.value, is_up=backend.is_up, why=why)


def _telling(said: Sequence[str]) -> str:
    """The line of a server's last words that says what went wrong: the last that looks like it, or the last one."""
    lines = [line for line in said if line.strip()]
    return next((line for line in reversed(lines) if _TROUBLE.search(line)), lines[-1] if lines else "")


def _path(name: str) -> str:
    return name.replace("/", "-")


def _reach(spec: BackendSpec) -> Reach:
    """How a backend is reached, each time that a connection is opened."""
    target = load_server(str(spec.target)) if isinstance(spec.target, PythonTarget) else spec.target
    from callboard.config.auth import oauth_for  # it takes time to load

    auth = None if spec.auth is None else oauth_for(spec.auth)
    ways = ways_to(target, ClientAccess(auth=auth, on_stderr=partial(_says, spec.name)))

    @asynccontextmanager
    async def reach(begin: Begin) -> AsyncIterator[tuple[Caller, Agreed]]:
        async with AsyncExitStack() as stack:
            yield await Connector(ways, begin, stack).meet(spec.settings.revision)

    return reach


def _says(backend: str, line: str) -> None:
    log.debug("backend_says", backend=backend, text=line)
