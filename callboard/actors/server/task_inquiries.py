"""What clients ask about hosted tasks, and what they are told when one begins."""

from collections.abc import Mapping
from typing import Any

import attrs
import msgspec
from msgspec import UNSET, Raw

from callboard.actors.frames import Outcome
from callboard.actors.server.exchange import Exchange, Handler
from callboard.actors.server.input_rounds import given_in
from callboard.actors.server.task import HostedTask, TaskInput
from callboard.actors.server.task_store import Guarded, TaskStore
from callboard.codecs.bridge.results import Forwarded
from callboard.codecs.bridge.tasks import related
from callboard.codecs.members import raw, read_members
from callboard.codecs.revisions import CallToolRequestParams, Model, read_result
from callboard.errors import InvalidParams
from callboard.supervisor.groups import own_nursery, sole


def created(outcome: Outcome | HostedTask) -> Outcome:
    """The answer to a call of the extension: a handle, if it became a task."""
    return _forwarded(outcome.told(result_type="task")) if isinstance(outcome, HostedTask) else outcome


def begun_legacy(store: TaskStore, exchange: Exchange, handler: Handler, guarded: Guarded) -> Outcome:
    """Begin a call as a task, and answer it, as 2025-11-25 has it. Raises `Overloaded` and `Draining`."""
    asked = exchange.params(CallToolRequestParams).task
    ttl = None if asked is UNSET or asked.ttl is UNSET else asked.ttl / 1000
    return _forwarded({"task": store.begin(exchange, handler, guarded, ttl).told_legacy()})


def task_id_of(exchange: Exchange) -> str:
    """The task that a request names. Raises `InvalidParams`."""
    try:
        return msgspec.json.decode(exchange.request.members["taskId"], type=str)
    except (KeyError, msgspec.MsgspecError):
        raise InvalidParams("params.taskId: expected a string") from None


@attrs.frozen(eq=False)
class TaskInquiries:
    """The methods of both protocols that are about a task."""

    store: TaskStore

    def _find(self, exchange: Exchange) -> HostedTask:
        return self.store.find(task_id_of(exchange), exchange)

    async def get(self, exchange: Exchange) -> Outcome:
        task = self._find(exchange)
        if not exchange.terms.revision.dialect.has_extensions:
            return _forwarded(task.told_legacy())
        task.is_fetched = task.is_final
        return _forwarded(task.told_whole())

    async def cancel(self, exchange: Exchange) -> Outcome:
        task = self._find(exchange)
        if exchange.terms.revision.dialect.has_extensions:
            task.cancel()
            return _forwarded({"resultType": "complete"})
        if task.is_final:
            raise InvalidParams(f"the task is {task.status} already")
        task.cancel()
        task.is_fetched = True
        return _forwarded(task.told_legacy())

    async def update(self, exchange: Exchange) -> Outcome:
        """Take the answers that a request brings. Raises `InvalidParams` for one of the wrong shape."""
        task, given, revision = self._find(exchange), given_in(exchange.request), exchange.terms.revision
        open_ = {one.key: one.question.method for one in task.open_inputs() if one.key in given}
        task.answer({key: read_result(revision, method, given[key]) for key, method in open_.items()})
        return _forwarded({"resultType": "complete"})

    async def result(self, exchange: Exchange) -> Outcome:
        """The outcome, once it is there (2025-11-25)."""
        task = self._find(exchange)
        task.ways[exchange.slot] = None
        try:
            await _wait_final(task, exchange)
        finally:
            task.ways.pop(exchange.slot, None)
        task.is_fetched = True
        if task.result is None:
            raise task.failure()
        return Forwarded(related(read_members(task.result), task.id))


async def _wait_final(task: HostedTask, exchange: Exchange) -> None:
    """Wait until it is final, and ask its client meanwhile what it wants to know."""
    async with own_nursery(takes_first=True) as nursery:
        while not task.is_final and not task.is_ended:
            for one in task.open_inputs():
                if not one.is_sent:
                    one.is_sent = True
                    nursery.start_soon(_ask_legacy, task, one, exchange)
            await task.wait_change()
        nursery.cancel_scope.cancel()


async def _ask_legacy(task: HostedTask, one: TaskInput, exchange: Exchange) -> None:
    answer: Model | Exception
    try:
        (answer,) = await exchange.ask([attrs.evolve(one.question, task=task.id)])
    except Exception as error:  # the client's refusal: for the handler that asked
        answer = sole(error)
    finally:
        one.is_sent = False
    task.answer({one.key: answer})


def _forwarded(members: Mapping[str, Any]) -> Forwarded:
    """A result, each member written."""
    return Forwarded({name: value if isinstance(value, Raw) else raw(value) for name, value in members.items()})
