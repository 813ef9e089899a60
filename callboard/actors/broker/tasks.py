"""Tasks of 2025-11-25: those of clients that know them, and those that the broker sees through for clients that do not.

A task lives at the backend, on the connection where it began. Its client knows it by an id of ours, which is worth
useless to any other client. BRIDGING.md, section 14.
"""

import math
import secrets
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Set
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any, Final, Never

import attrs
import trio
from msgspec import UNSET
from trio.lowlevel import ParkingLot

from callboard import tree
from callboard.actors.broker.backend import LONG, Backend
from callboard.actors.broker.connection import BackendConnection
from callboard.actors.broker.forward import Forward, ForwardTarget
from callboard.actors.broker.leases import Lease
from callboard.actors.client.conversation import Patience
from callboard.actors.outlet import FrameKind, Outbound
from callboard.actors.rules import CallerView
from callboard.actors.server.exchange import Exchange, Handler
from callboard.actors.server.reply_slot import ReplySlot
from callboard.actors.terms import Terms
from callboard.actors.undo import undo_unless_done
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
    unrelated,
)
from callboard.codecs.caller import ANYBODY
from callboard.codecs.envelope import ErrorResponse, Request, ResultResponse
from callboard.codecs.members import Members, write_members
from callboard.codecs.revisions import Model, TaskMetadata, TaskRequestParams, declares, read
from callboard.codecs.revisions.revision import R4
from callboard.codecs.routing import Route
from callboard.errors import (
    CannotConnect,
    InvalidParams,
    MissingCapability,
    Overloaded,
    RequestFailed,
    RequestTimedOut,
    SupervisorClosed,
)
from callboard.supervisor import Actor, Fact

MAX_TASKS: Final = 1024
"""Most tasks of all clients that are known at once. Each may hold a connection open."""

MAX_TASKS_EACH: Final = 64
"""Most tasks of one principal, or of one session of an anonymous client: what one client may have in flight."""

MAX_TTL: Final = 86_400.0
"""Longest time that a task is known, in seconds. A backend may keep its tasks for ever; a broker does not."""

POLL: Final = 1.0
"""Default polling interval of a task in seconds, if the backend gives none."""

SHORTEST_POLL, LONGEST_POLL = 0.1, 30.0
"""Bounds of that, in seconds; a backend's wish is clipped to them."""

FAREWELL: Final = 10.0
"""Seconds for a backend to cancel a task that is no longer wanted."""

_NAMES: Final = count(1)
_UNKNOWN: Final = "Unknown task"  # one text, whether it never was, is no more, or is another client's


@attrs.define(eq=False)
class BrokeredTask:
    """A task that a client knows. It keeps its connection open until its outcome was fetched."""

    id: str
    there: str
    whose: Hashable
    principal: str
    shown: str
    """The tool, as clients know it."""
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
class Tasks(Actor[Never]):
    """The tasks that clients know, until they expire."""

    mailbox = None

    most: int = MAX_TASKS
    most_each: int = MAX_TASKS_EACH
    _held: dict[str, BrokeredTask] = attrs.field(factory=dict, init=False)
    _begun: Counter[Hashable] = attrs.field(factory=Counter, init=False)  # calls that may become tasks, by whose
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
        return dict.fromkeys(TASK_METHODS, self._ask_about)

    async def _ask_about(self, exchange: Exchange) -> Model | Forwarded:
        held = self._find(exchange.params(TaskRequestParams).task_id, exchange)
        to = ForwardTarget(backend=held.backend)
        inquiry = _Inquiry(exchange.request, exchange.terms, exchange.route, to, exchange)
        inquiry.held = held
        return await inquiry.run()

    def _find(self, task_id: str, exchange: Exchange) -> BrokeredTask:
        """Raises `InvalidParams` for one that this principal does not have, or may not know of any more."""
        rules, terms = exchange.engine.rules, exchange.terms
        held = self._held.get(task_id)
        is_known = held is not None and not (held.is_fetched and held.connection.is_over)
        if held is None or not is_known or held.principal != terms.principal or held.expires <= trio.current_time():
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
    ) -> Forward:
        """A call of a backend that runs tasks: as one, if it is to be one."""
        params = request.members
        if terms.revision.dialect.has_tasks and "task" in params:
            read(terms.revision, TaskMetadata, params["task"], at="params.task")
            deferral = _Deferral(request, terms, route, to, exchange)
            deferral.tasks = self
            return deferral
        kind = _Drive if to.must_defer else Forward
        return kind(request, terms, route, to, exchange)

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
            _whose(forwarding),
            forwarding.terms.principal,
            forwarding.route.name or "",
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

    tasks: Tasks

    async def run(self) -> Model | Forwarded:
        with self.tasks.room(_whose(self)):
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
            self.task, self.may_ask = self.held.there, bool(connection.key.signature)
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
        return _until_final(self) if self.request.method == "tasks/result" else super().patience()


# A client that knows none: the broker sees the task through, and the client waits for its call.


class _Drive(Forward):
    """A call that its backend takes only as a task, and its client only as a call."""

    __slots__ = ()

    async def ask(self, body: dict[str, Any]) -> ResultResponse | ErrorResponse:
        backend = self.to.backend
        if not _runs(self.connection):
            return await super().ask(body)
        created = await super().ask({**body, "task": {"ttl": int(backend.settings.cap * 1000)}})
        if isinstance(created, ErrorResponse) or "task" not in created.result:
            return created
        standing = standing_of(created.result["task"])
        self.task = standing.task_id
        withdraw = partial(_withdraw, backend, self.connection, standing.task_id, may_ask=self.may_ask)
        with undo_unless_done(withdraw):
            answer = await self._see_through(standing)
        return unrelated(answer)

    async def _see_through(self, standing: TaskStanding) -> ResultResponse | ErrorResponse:
        cap = self.to.backend.settings.cap
        about, late = {"taskId": standing.task_id}, trio.current_time() + cap
        while standing.status == "working":
            await trio.sleep(_pause(standing))
            if trio.current_time() >= late:
                raise RequestTimedOut(after=cap)
            answer = await self.connection.send("tasks/get", dict(about), Lease(), self.patience())
            if isinstance(answer, ErrorResponse):
                return answer
            standing = standing_of(answer.result)
        return await self.connection.send("tasks/result", dict(about), self, _until_final(self))


@attrs.define(eq=False)
class _Withdrawal(Actor[Never]):
    """Cancels a task that no request waits for any more. Until that is done, its questions go to no other client."""

    mailbox = None

    backend: Backend
    connection: BackendConnection
    task: str
    use: Lease

    async def run(self) -> None:
        try:
            patience = Patience(timeout=FAREWELL, cap=FAREWELL)
            await self.connection.send("tasks/cancel", {"taskId": self.task}, Lease(), patience)
        except (RequestFailed, CannotConnect):
            pass  # it will expire
        finally:
            self.backend.give_back(self.connection, self.use)


def _withdraw(backend: Backend, connection: BackendConnection, task: str, *, may_ask: bool) -> None:
    """Never waits: its caller may be cancelled."""
    if connection.is_lost or not declares(connection.agreed.capabilities, "tasks.cancel"):
        return
    use = Lease(may_ask=may_ask)
    connection.begin(use)
    try:
        backend.group.supervisor_of(tree.ANSWERS).spawn(
            _Withdrawal(backend, connection, task, use), name=f"t-{next(_NAMES)}"
        )
    except SupervisorClosed:  # the backend ends, and its tasks with it
        backend.give_back(connection, use)


def _until_final(forward: Forward) -> Patience:
    """The silence of a backend that is asked for an outcome means nothing: it works."""
    cap = forward.to.backend.settings.cap
    return Patience(timeout=cap, cap=LONG if forward.may_ask else cap)


def _pause(standing: TaskStanding) -> float:
    wanted = POLL if standing.poll_interval is None else standing.poll_interval / 1000
    return min(max(wanted, SHORTEST_POLL), LONGEST_POLL)


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


def _whose(forwarding: Forward) -> Hashable:
    """The key by which tasks are counted. Anonymous clients are not one client."""
    principal, exchange = forwarding.terms.principal, forwarding.exchange
    session = None if exchange is None else exchange.session
    return principal if principal != ANYBODY or session is None else session
