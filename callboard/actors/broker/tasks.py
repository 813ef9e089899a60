"""Tasks of clients: of 2025-11-25 at a backend that has them too, and the broker's own for all other combinations.

A task of 2025-11-25 lives at the backend, on the connection where it began. Its client knows it by an id of ours, which
is useless to any other client. The broker's own is a call that it drives (`task_drive`). BRIDGING.md, section 14.
"""

import math
import secrets
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any, Final, Never, TypeAlias, cast

import attrs
import trio
from msgspec import UNSET
from trio.lowlevel import ParkingLot

from callboard.actors.broker.backend import Backend
from callboard.actors.broker.connection import BackendConnection
from callboard.actors.broker.forward import Forward, ForwardTarget
from callboard.actors.broker.leases import Lease
from callboard.actors.broker.task_drive import LegacyDrive, drive_extension, until_final
from callboard.actors.client.conversation import Patience
from callboard.actors.frames import Outcome
from callboard.actors.outlet import FrameKind, Outbound
from callboard.actors.rules import CallerView
from callboard.actors.server.exchange import Exchange, Handler
from callboard.actors.server.extensions import AddedMethod, added_row, has_declared
from callboard.actors.server.reply_slot import ReplySlot
from callboard.actors.server.task_inquiries import TaskInquiries, begun_legacy, created
from callboard.actors.server.task_store import Guarded, TaskStore
from callboard.actors.terms import Terms
from callboard.codecs.bridge.errors import front_error
from callboard.codecs.bridge.params import carried_meta
from callboard.codecs.bridge.results import Crossing, Forwarded, front_result
from callboard.codecs.bridge.tasks import (
    EXTENSION,
    OF_THE_EXTENSION,
    TASK_METHODS,
    TaskStanding,
    front_created,
    front_refusal,
    front_task,
    needs_extension,
    related,
    runs_tasks,
    standing_of,
)
from callboard.codecs.caller import ANYBODY
from callboard.codecs.envelope import ErrorResponse, Request, ResultResponse
from callboard.codecs.members import Members, write_members
from callboard.codecs.revisions import Model, TaskMetadata, TaskRequestParams, read
from callboard.codecs.revisions.revision import R4, R5
from callboard.codecs.routing import Route
from callboard.codecs.tasks import POLL
from callboard.errors import (
    InvalidParams,
    MissingCapability,
    Overloaded,
)
from callboard.supervisor import Actor, Fact

MAX_TASKS: Final = 1024
"""Most tasks of all clients that are known at once. Each may hold a connection open."""

MAX_TASKS_EACH: Final = 64
"""Most tasks of one principal, or of one session of an anonymous client: what one client may have in flight."""

MAX_TTL: Final = 86_400.0
"""Longest time that a task is known, in seconds. A backend may keep its tasks for ever; a broker does not."""

OWN_TTL: Final = 3600.0
"""Seconds that a task of the broker's own is kept, if its backend does not want less."""

_UNKNOWN: Final = "Unknown task"  # one text, whether it never was, is no more, or is another client's


Through: TypeAlias = Callable[[Handler], Handler]
"""Puts interceptors around a handler."""


@attrs.define(eq=False)
class BrokeredTask:
    """A task that a client knows. It keeps its connection open until its outcome was fetched."""

    id: str
    there: str
    whose: Hashable
    principal: str
    shown: str
    """The tool, as rules name it."""
    backend: Backend
    connection: BackendConnection
    ttl: int  # milliseconds
    expires: float
    is_fetched: bool = attrs.field(default=False, init=False)
    ways: dict[ReplySlot, None] = attrs.field(factory=dict, init=False)
    """The outlet to its client: a lasting connection, or a response that is waited for."""
    _use: Lease = attrs.field(factory=Lease, init=False)

    def begin(self) -> None:
        self.connection.tasks[self.there] = self
        self.connection.begin(self._use)

    def fetched(self) -> None:
        """There is nothing more to wait for. It stays known for a while, if the connection does."""
        if not self.is_fetched:
            self.is_fetched = True
            self.backend.give_back(self.connection, self._use)

    def end(self) -> None:
        self.fetched()
        if self.connection.tasks.get(self.there) is self:
            del self.connection.tasks[self.there]

    @property
    def is_spent(self) -> bool:
        """Whether it may be forgotten before its time."""
        return self.is_fetched or self.connection.is_over

    def hear(self, params: Members) -> None:
        """Tell the client where it stands: a courtesy, which it must not count on."""
        slot = next(reversed(self.ways), None)
        if slot is None or not slot.terms.revision.dialect.has_tasks:
            return
        told = {"method": "notifications/tasks/status", "params": front_task(params, self.id, self.ttl)}
        frame = write_members({"jsonrpc": "2.0", **told})
        slot.outlet.send_nowait(Outbound(frame, FrameKind.CHANGE, ("task", self.id)))


@attrs.define(eq=False)
class BrokeredTasks(Actor[Never]):
    """The tasks that clients know, until they expire."""

    mailbox = None

    most: int = MAX_TASKS
    most_each: int = MAX_TASKS_EACH
    store: TaskStore = attrs.field(factory=lambda: TaskStore(OWN_TTL, POLL), init=False)
    """The broker's own tasks."""
    _held: dict[str, BrokeredTask] = attrs.field(factory=dict, init=False)
    _begun: Counter[Hashable] = attrs.field(factory=Counter, init=False)  # calls that may become tasks, by their client
    _changed: ParkingLot = attrs.field(factory=ParkingLot, init=False)

    async def run(self) -> None:
        async with self.cancel_on_stop():
            while True:
                with trio.move_on_at(min((held.expires for held in self._held.values()), default=math.inf)):
                    await self._changed.park()
                now = trio.current_time()
                for held in [held for held in self._held.values() if held.expires <= now]:
                    self._forget(held)

    def facts(self) -> Mapping[str, Fact]:
        waiting = sum(not held.is_spent for held in self._held.values())
        return {"tasks": len(self._held), "waiting": waiting}

    # What is asked about them.

    def handlers(self) -> Mapping[str, Handler]:
        """For clients of 2025-11-25: their tasks are at their backends or the broker's own."""
        return dict.fromkeys(TASK_METHODS, self._ask_about)

    def added(self) -> Mapping[str, AddedMethod]:
        """For modern clients: their tasks are all the broker's own."""
        own = TaskInquiries(self.store)
        rows = {"tasks/get": own.get, "tasks/update": own.update, "tasks/cancel": own.cancel}
        return {
            name: AddedMethod(row=added_row(name, extension=EXTENSION, revisions=frozenset({R5})), handler=handler)
            for name, handler in rows.items()
        }

    async def _ask_about(self, exchange: Exchange) -> Outcome:
        task_id = exchange.params(TaskRequestParams).task_id
        if self.store.knows(task_id):
            own = TaskInquiries(self.store)
            handlers = {"tasks/get": own.get, "tasks/cancel": own.cancel, "tasks/result": own.result}
            return await handlers[exchange.request.method](exchange)
        held = self._find(task_id, exchange)
        to = ForwardTarget(backend=held.backend)
        inquiry = _Inquiry(exchange.request, exchange.terms, exchange.route, to, exchange)
        inquiry.held = held
        return await inquiry.run()

    def _find(self, task_id: str, exchange: Exchange) -> BrokeredTask:
        """Raises `InvalidParams` for one that this client does not have, or may not know of any more."""
        rules, terms = exchange.engine.rules, exchange.terms
        held = self._held.get(task_id)
        is_known = held is not None and not (held.is_fetched and held.connection.is_over)
        if held is None or not is_known or held.whose != _whose(terms, exchange) or held.expires <= trio.current_time():
            raise InvalidParams(_UNKNOWN)
        if rules is not None and CallerView(rules, terms.caller).refuses("tool", held.backend.name, held.shown):
            raise InvalidParams(_UNKNOWN)
        return held

    # How they begin and end.

    def forwarding(
        self,
        request: Request,
        terms: Terms,
        route: Route,
        to: ForwardTarget,
        exchange: Exchange,
        through: Through | None = None,
    ) -> Forward:
        """A call of a backend that runs tasks: as one, if it is to be one. Interceptors are put around the call itself
        by *through* where the client gets its result by a task of the broker's own."""
        params, dialect, backend = request.members, terms.revision.dialect, to.backend
        call = request, terms, route, to, exchange
        if dialect.has_tasks and "task" in params and (backend.runs_tasks or backend.has_task_extension):
            read(terms.revision, TaskMetadata, params["task"], at="params.task")
            if not backend.runs_tasks:
                return self._hold(_BegunCall(*call), drive_extension(is_declared=True))
            deferral = _Deferral(*call)
            deferral.tasks = self
            return deferral
        kind: Callable[..., Forward] = LegacyDrive if to.must_defer else Forward
        if dialect.has_extensions and has_declared(terms.capabilities, EXTENSION):
            if backend.has_task_extension:
                return self._hold(_HeldCall(*call), drive_extension(is_declared=True), through)
            if to.must_defer or backend.settings.task_after is not None:
                return self._hold(_HeldCall(*call), kind, through)
        elif backend.has_task_extension and (backend.settings.drive_tasks or not dialect.has_extensions):
            kind = drive_extension(is_declared=False)
        return kind(*call)

    def _hold(self, call: "_HeldCall", drive: Callable[..., Forward], through: Through | None = None) -> Forward:
        after = call.to.backend.settings.task_after
        call.store, call.drive, call.after = self.store, drive, math.inf if after is None else after
        call.through = through
        return call

    @contextmanager
    def room(self, whose: Hashable) -> Iterator[None]:
        """Room for one more while it begins. Raises `Overloaded`."""
        mine = [held for held in self._held.values() if held.whose == whose]
        self._make_room(mine, self.most_each - self._begun[whose], for_all=False)
        self._make_room(list(self._held.values()), self.most - self._begun.total(), for_all=True)
        self._begun[whose] += 1
        try:
            yield
        finally:
            self._begun[whose] -= 1
            if not self._begun[whose]:
                del self._begun[whose]

    def _make_room(self, among: list[BrokeredTask], most: int, *, for_all: bool) -> None:
        too_many = max(len(among) + 1 - most, 0)
        spent = [held for held in among if held.is_spent][:too_many]
        if len(spent) < too_many:
            raise Overloaded("too many tasks", for_all=for_all)
        for held in spent:
            self._forget(held)

    def hold(self, forwarding: Forward, connection: BackendConnection, standing: TaskStanding) -> BrokeredTask:
        """Another task, from now on."""
        seconds = MAX_TTL if standing.ttl is None else min(max(standing.ttl / 1000, 0.0), MAX_TTL)
        held = BrokeredTask(
            secrets.token_urlsafe(18),
            standing.task_id,
            _whose(forwarding.terms, forwarding.exchange),
            forwarding.terms.principal,
            forwarding.to.guarded or forwarding.route.name or "",
            forwarding.to.backend,
            connection,
            int(seconds * 1000),
            trio.current_time() + seconds,
        )
        exchange = forwarding.exchange
        if exchange is not None and exchange.slot.is_shared:
            held.ways[exchange.slot] = None
        held.begin()
        self._held[held.id] = held
        self._changed.unpark_all()
        return held

    def forget_all_of(self, principals: Set[str]) -> int:
        """Forget the tasks of *principals*. Returns how many there were."""
        found = [held for held in self._held.values() if held.principal in principals]
        for held in found:
            self._forget(held)
        return len(found)

    def _forget(self, held: BrokeredTask) -> None:
        del self._held[held.id]
        held.end()


# A client that knows tasks: the call becomes one, which is the client's to look after.


class _Deferral(Forward):
    """A call that its client wants to run as a task."""

    __slots__ = ("tasks",)

    tasks: BrokeredTasks

    async def run(self) -> Model | Forwarded:
        with self.tasks.room(_whose(self.terms, self.exchange)):
            return await super().run()

    async def ask(self, body: dict[str, Any]) -> ResultResponse | ErrorResponse:
        if _runs(self.connection):
            body = {**body, "task": self.request.members.get("task", {})}
        return await super().ask(body)

    def complete(self, result: Members, method: str | None = None) -> Model | Forwarded:
        if "task" not in result or not _runs(self.connection):
            return super().complete(result, method)
        held = self.tasks.hold(self, self.connection, standing_of(result["task"]))
        return super().complete(front_created(result, held.id, held.ttl), "tasks/get")


class _Inquiry(Forward):
    """A request about a task. It goes where the task is."""

    __slots__ = ("held",)

    held: BrokeredTask

    def take_nowait(self) -> BackendConnection:
        connection = self.held.connection
        if self.request.method == "tasks/result":
            self.task, self.may_ask = self.held.there, connection.key.can_be_asked
        connection.begin(self)
        return connection

    async def converse(self) -> Model | Forwarded:
        exchange, held, method = self.exchange, self.held, self.request.method
        if exchange is None or method != "tasks/result":
            return await self._ask_about(method)
        held.ways[exchange.slot] = None
        try:
            await self.connection.want_level(exchange)
            return await self._ask_about(method)
        finally:
            held.ways.pop(exchange.slot, None)

    async def _ask_about(self, method: str) -> Model | Forwarded:
        held, meta = self.held, self.traced(carried_meta(self.route.meta))
        answer = await self.ask({"taskId": held.there, **({"_meta": meta} if meta else {})})
        self.connection.timeouts = 0
        if method == "tasks/result":
            held.fetched()
        if isinstance(answer, ErrorResponse):
            refusal = front_refusal(answer, held.there, held.id)
            raise front_error(self.terms.revision, self.connection.revision, method, refusal)
        if method == "tasks/result":
            crossing = Crossing(R4, self.connection.revision, held.backend.name, held.backend.settings.trusted)
            return front_result(crossing, "tools/call", related(answer.result, held.id))
        if standing_of(answer.result).status == "cancelled":
            held.fetched()
        return Forwarded(front_task(answer.result, held.id, held.ttl))

    def patience(self) -> Patience:
        return until_final(self) if self.request.method == "tasks/result" else super().patience()


# A client that can have a task of the broker's own.


class _HeldCall(Forward):
    """A call of a client with the extension of tasks: it becomes a task of the broker's when the backend makes one of
    it, or after so many seconds if the operator wants that."""

    __slots__ = ("after", "drive", "store", "through")

    store: TaskStore
    drive: Callable[..., Forward]
    after: float
    through: Through | None

    async def run(self) -> Model | Forwarded:
        assert self.exchange is not None  # noqa: S101  # a call has one
        outcome = await self.store.run(self.exchange, self._drive, self._guarded, self.after)
        return cast("Model | Forwarded", created(outcome))

    @property
    def _guarded(self) -> Guarded:
        return self.to.backend.name, self.to.guarded or self.route.name or ""

    async def _drive(self, inner: Exchange) -> Outcome:
        return await (self._driven if self.through is None else self.through(self._driven))(inner)

    async def _driven(self, inner: Exchange) -> Outcome:
        find_again = self.to.find_again  # interceptors may have waited, and the tool may be another now
        to = self.to if find_again is None else find_again(self.to)
        return await self.drive(self.request, inner.terms, self.route, to, inner).run()


class _BegunCall(_HeldCall):
    """A call that a client of 2025-11-25 wants to run as a task, of a modern backend: it is one at once, and the broker
    has it."""

    __slots__ = ()

    async def run(self) -> Model | Forwarded:
        assert self.exchange is not None  # noqa: S101  # a call has one
        begun = begun_legacy(self.store, self.exchange, self._drive, self._guarded)
        return cast("Model | Forwarded", begun)


def sees_through(forwarding: Forward) -> bool:
    """Whether interceptors stand inside of a call: outside they would see the handle of a task, and not its result."""
    return isinstance(forwarding, _HeldCall) and forwarding.through is not None


def check_extension(request: Request, terms: Terms) -> None:
    """Raises `MissingCapability` for what belongs to the tasks extension, from a modern client that does not declare
    it. One that does hears that there is no such method here."""
    if request.method not in OF_THE_EXTENSION or not needs_extension(request.method, request.members):
        return
    extensions = terms.capabilities.extensions
    if extensions is UNSET or EXTENSION not in extensions:
        raise MissingCapability(f"the extension {EXTENSION}", {"extensions": {EXTENSION: {}}})


def _runs(connection: BackendConnection) -> bool:
    return runs_tasks(connection.revision, connection.agreed.capabilities)


def _whose(terms: Terms, exchange: Exchange | None) -> Hashable:
    """The client that a task is counted for, and that may ask about it. Anonymous clients are not one client."""
    session = None if exchange is None else exchange.session
    return terms.principal if terms.principal != ANYBODY or session is None else session
