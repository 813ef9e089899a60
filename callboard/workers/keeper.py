"""The keeper: a process that owns the backends which all workers share, so that each of them runs once.

For each it runs a broker of that backend alone, and serves it to the workers as a modern server: so whatever a worker
does with a modern backend, it does with a kept one, and the keeper speaks to the backend in the words of its era.
"""

import secrets
from collections.abc import Sequence
from itertools import count
from typing import Final, Never
from weakref import WeakValueDictionary

import attrs
import msgspec
import trio

from callboard import tree
from callboard.actors.broker.audience import BrokerAudience
from callboard.actors.broker.backend import Backend
from callboard.actors.broker.policy import NO_FILTER, BackendSettings
from callboard.actors.client.negotiate import Agreed
from callboard.actors.lifecycle import NOT_NEEDED
from callboard.actors.server.client_requests import SessionKey
from callboard.actors.server.drain import drain
from callboard.actors.server.parking import Parking
from callboard.broker.broker import Broker
from callboard.broker.placing import Here, Placed
from callboard.codecs.bridge.overrides import NO_OVERRIDES
from callboard.codecs.caller import caller_of_key
from callboard.codecs.envelope import Notification
from callboard.codecs.http.access import EVERYONE
from callboard.codecs.http.head import Head
from callboard.codecs.members import write_members
from callboard.codecs.revisions import MODERN
from callboard.config import BackendSpec, OpenApiTarget, PythonTarget, Remote
from callboard.config.front import FrontSettings
from callboard.config.loading import loaded, skip_reason
from callboard.errors import CannotServe
from callboard.supervisor import Actor, Fact, Supervisor, get_logger
from callboard.transports.limits import Settings
from callboard.transports.server.http.endpoint import Endpoint
from callboard.workers.kept import CANCELLED, SESSION, KeptList, KeptState, Withdrawal

LOOKED_EVERY: Final = 0.2
"""Seconds after which it is looked again whether a server at a URL has been reached: only then is its era known."""

ANSWERED_WITHIN: Final = 1.0
"""Seconds in which requests are answered whose backend was taken out of the configuration."""

MOST: Final = 1_000_000
"""Requests of one client that the keeper lets be in flight. The workers count them, and have let them through."""

MAX_NAMES: Final = 64
"""Earlier incarnations of a backend that are remembered."""

IDLE: Final = 3600.0
"""Seconds for which a worker's idle connection is kept."""

log = get_logger("callboard.workers")

_read_withdrawal: Final = msgspec.json.Decoder(Withdrawal).decode


def bare(settings: BackendSettings) -> BackendSettings:
    """The settings that are the keeper's: names, filters, overrides and pins are the workers'."""
    return attrs.evolve(settings, prefix="", tools=NO_FILTER, rename={}, override=NO_OVERRIDES, pin=False)


def is_kept(spec: BackendSpec) -> bool | None:
    """Whether the keeper has a backend; None if that depends on what is found at its URL. One with tokens of its own is
    kept in any case: they are refreshed once, and not by each worker."""
    if spec.settings.local:
        return False
    return None if isinstance(spec.target, Remote) and spec.auth is None else True


def keeper_settings(settings: Settings) -> Settings:
    """The limits of the keeper: what is fair, the workers have seen to."""
    idle = max(IDLE, settings.keep_alive)
    return attrs.evolve(settings, max_in_flight=MOST, max_in_flight_each=MOST, keep_alive=idle)


@attrs.define(eq=False)
class KeptPlan:
    """One backend of the keeper's, however often its actor is started."""

    spec: BackendSpec
    """With the settings that are the keeper's."""
    placed: Placed
    incarnation: str
    """Changes when workers must meet it anew. Requests for an earlier one are answered all the same."""
    names: set[str] = attrs.field(factory=set, init=False)
    actor: "KeptBackend | None" = attrs.field(default=None, init=False)
    is_left: bool = attrs.field(default=False, init=False)
    """Whether it was found to be a modern server: then each worker connects to it."""
    settled: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when it is up, or has failed once."""

    def rename(self, incarnation: str) -> None:
        if len(self.names) < MAX_NAMES:
            self.names.add(self.incarnation)
        self.incarnation = incarnation


@attrs.define(eq=False)
class BackendKeeper:
    """All backends that are kept, by what the configuration says now."""

    root: Supervisor
    settings: Settings
    skips_invalid: bool = False
    """Whether a server that cannot be loaded is left out; it is an error otherwise."""
    closing: trio.Event = attrs.field(factory=trio.Event, init=False)
    _run: str = attrs.field(factory=lambda: secrets.token_hex(4), init=False)
    _numbers: "count[int]" = attrs.field(factory=lambda: count(1), init=False)
    _plans: dict[str, KeptPlan] = attrs.field(factory=dict, init=False)
    _skipped: dict[str, str] = attrs.field(factory=dict, init=False)
    _token: str = attrs.field(default="", init=False)
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)
    _reloading: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self._token = self._new_name()

    # What it keeps.

    async def reload(self, backends: Sequence[BackendSpec], front: FrontSettings | None = None) -> None:
        """Go on with these; those for which only the workers' settings changed do not notice. Raises `CannotServe`, and
        then nothing has changed."""
        async with self._reloading:
            wanted = {spec.name: _kept_spec(spec) for spec in backends if is_kept(spec) is not False}
            for spec in wanted.values():
                _check_awake(spec)
            new, skipped = self._new_plans(wanted)
            self._skipped = skipped
            over = [plan for name, plan in self._plans.items() if name in new or name in skipped or name not in wanted]
            for plan in over:
                del self._plans[plan.spec.name]
            self.told()
            async with trio.open_nursery() as nursery:
                for plan in over:
                    if plan.actor is not None and not plan.is_left:
                        nursery.start_soon(plan.actor.address.stop)
            for plan in new.values():
                await self._start(plan)
            self.told()

    def _new_plans(self, wanted: dict[str, BackendSpec]) -> tuple[dict[str, KeptPlan], dict[str, str]]:
        """Plans for what is new or another one, and why others are left out. Raises `CannotServe`."""
        new, skipped = {}, {}
        for name, spec in wanted.items():
            if name in self._plans and self._plans[name].spec == spec:
                continue
            try:
                new[name] = KeptPlan(spec, _placed(spec), self._new_name())
            except CannotServe as error:
                if not self.skips_invalid:
                    raise
                skipped[name] = skip_reason(error)
        return new, skipped

    async def _start(self, plan: KeptPlan) -> None:
        self._plans[plan.spec.name] = plan
        name = f"{plan.spec.name.replace('/', '-')}-{plan.incarnation}"
        await self.root.supervisor_of(tree.BACKENDS).add(tree.kept(name, lambda: KeptBackend(plan, self)))

    def _new_name(self) -> str:
        return f"{self._run}-{next(self._numbers)}"

    async def wait_settled(self) -> None:
        """Wait until each is up, or has failed once."""
        for plan in list(self._plans.values()):
            await plan.settled.wait()

    # What workers ask.

    def told(self) -> None:
        """The list is another one now."""
        self._token = self._new_name()
        self._changed.set()
        self._changed = trio.Event()

    def rename(self, plan: KeptPlan) -> None:
        """A backend is another one than it was, although nothing was configured anew."""
        plan.rename(self._new_name())
        self.told()

    def listed(self) -> KeptList:
        return KeptList(
            self._token,
            {name: None if plan.is_left else plan.incarnation for name, plan in self._plans.items()},
            self._skipped,
        )

    async def wait_other(self, token: str, within: float) -> KeptList:
        """The list, when it has another token than this one, or that time has passed."""
        with trio.move_on_after(within):
            while self._token == token and not self.closing.is_set():
                await self._changed.wait()
        return self.listed()

    def find(self, name: str, incarnation: str = "") -> "KeptBackend | None":
        """The backend of this name, if it is that *incarnation*, or any."""
        plan = self._plans.get(name)
        if plan is None or plan.is_left:
            return None
        is_it = not incarnation or incarnation == plan.incarnation or incarnation in plan.names
        return plan.actor if is_it else None

    def act(self, action: str, name: str) -> bool:
        """Do what the operator wants to a backend. Whether it is one that is kept here."""
        kept = self.find(name)
        backend = None if kept is None else kept.backend
        return backend is not None and backend.act(action)

    def close(self) -> None:
        """Let go of workers that wait for news."""
        self.closing.set()
        self.told()


def _kept_spec(spec: BackendSpec) -> BackendSpec:
    return attrs.evolve(spec, settings=bare(spec.settings))


def _check_awake(spec: BackendSpec) -> None:
    """Raises `CannotServe` for a server that would sleep: when it is started for a call, the call goes on before the
    workers have seen what it lists now, and could be of a tool that changed."""
    if spec.settings.start == "lazy" or spec.settings.idle_stop is not None:
        raise CannotServe(
            f"{spec.name}: with --workers, `start` and `idle_stop` need `local` = true: a process for each worker"
        )


def _placed(spec: BackendSpec) -> Placed:
    target = loaded(spec.target) if isinstance(spec.target, PythonTarget | OpenApiTarget) else spec.target
    return Placed(spec.settings, target, spec.auth)


@attrs.frozen
class Loaded(Here):
    """The one backend of such a broker: its code is loaded already."""

    placed: Placed

    def place(self, spec: BackendSpec) -> Placed:
        return self.placed


@attrs.define(eq=False)
class KeptBackend(Actor[Never]):
    """One backend: a broker for it alone, and the endpoint that workers ask."""

    mailbox = None

    plan: KeptPlan
    keeper: BackendKeeper
    broker: Broker = attrs.field(init=False)
    endpoint: Endpoint | None = attrs.field(default=None, init=False)
    _agreed: Agreed | None = attrs.field(default=None, init=False)
    _sessions: "WeakValueDictionary[bytes, SessionKey]" = attrs.field(factory=WeakValueDictionary, init=False)

    def __attrs_post_init__(self) -> None:
        self.plan.actor = self
        spec = self.plan.spec
        # The workers know what crosses, and have let nothing else through.
        self.broker = Broker(
            [spec], name=spec.name, revisions=MODERN, pre_warm=0.0, extensions=("*",), experimental=("*",)
        )
        self.broker.placing = Loaded(self.plan.placed)

    async def run(self) -> None:
        limits = self.keeper.settings
        parking = Parking(self.plan.spec.name, most=limits.max_parked, most_each=limits.max_parked_each)
        async with self.broker.host(parking=parking) as host:
            endpoint = Endpoint(host, EVERYONE, limits)
            endpoint.modern.session_of = self._session
            if isinstance(host.audience, BrokerAudience):
                host.audience.tells_all, host.audience.on_up = True, self._came_up
            host.root.spawn(endpoint.pulse, name="keep-alive", shutdown=0)
            self.endpoint = endpoint
            try:
                async with self.cancel_on_stop():
                    await self._serve()
            finally:
                self.endpoint = None
            await self.broker.reload(())  # what is under way is answered: that its server is gone
            await drain(host, within=ANSWERED_WITHIN, spread=0.0)

    async def _serve(self) -> None:
        """Returns if the backend is found to be one that workers connect to themselves."""
        plan, is_open = self.plan, is_kept(self.plan.spec) is None
        if (backend := self.backend) is not None:
            await backend.wait_settled()
        if not is_open or self._is_modern() is None:
            plan.settled.set()
        while is_open and self._is_modern() is None:  # noqa: ASYNC110 -- no event tells
            await trio.sleep(LOOKED_EVERY)
        if is_open and self._is_modern():
            log.info("backend_left_to_workers", backend=plan.spec.name)
            plan.is_left = True
            self.keeper.told()
            plan.settled.set()
            return
        plan.settled.set()
        await trio.sleep_forever()

    def _came_up(self, backend: Backend) -> None:
        """If it can do other things than it could, workers must meet it anew: they are told so only then."""
        before, self._agreed = self._agreed, backend.agreed
        if before is not None and before != backend.agreed:
            self.keeper.rename(self.plan)

    def _is_modern(self) -> bool | None:
        """Whether the server is a modern one; None as long as it was never reached."""
        agreed = None if self.backend is None else self.backend.agreed
        return None if agreed is None else agreed.revision.dialect.terms_per_request

    def facts(self) -> dict[str, Fact]:
        backend = self.backend
        return {"state": "starting" if backend is None else backend.circuit.state.value}

    # What workers ask.

    @property
    def backend(self) -> Backend | None:
        return self.broker.backends.get(self.plan.spec.name)

    async def state(self, within: float) -> KeptState:
        """How it stands with it. One that is being started is waited for."""
        backend = self.backend
        with trio.move_on_after(within):
            if backend is not None:
                await backend.wait_settled()
        if backend is not None and backend.is_up:
            return KeptState(self.plan.incarnation)
        brief, why = ("it is being started", "") if backend is None else (backend.reason, backend.why)
        return KeptState(brief=brief, why=why or brief)

    def hear(self, principal: str, told: Notification) -> None:
        """A worker tells that a client will not answer what it was asked, or passes on what an extension has."""
        if self.endpoint is None:
            return
        if told.method != CANCELLED:  # of an extension: the worker knows that it crosses
            self.endpoint.modern.hear(told, caller_of_key(principal))
            return
        try:
            said = _read_withdrawal(write_members(told.members))
        except msgspec.MsgspecError:
            return
        self.endpoint.host.parking.withdraw(said.method, said.state, principal, said.reason or NOT_NEEDED)

    def _session(self, head: Head) -> SessionKey | None:
        """Stands for a legacy session of a worker's. It lives as long as a connection does that is the session's."""
        name = head.get(SESSION)
        if name is None:
            return None
        found = self._sessions.get(name)
        if found is None:
            found = self._sessions[name] = SessionKey()
        return found
