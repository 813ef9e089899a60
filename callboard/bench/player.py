"""A session that plays scripts: it asks, listens, and answers the server's questions as it was told to."""

import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import attrs
import trio
from trio.lowlevel import ParkingLot

from callboard.actors.changes import ListChanged
from callboard.bench.saved import filled, filled_uri, picked, text_of
from callboard.bench.seats import Open
from callboard.bench.steps import LISTS, NO_ANSWERS, Answers, Elicited, Listen, Scenario, StepRequest
from callboard.bench.task import follow
from callboard.bench.work import Act
from callboard.client.client import Client, Common, connect
from callboard.client.routes import Target
from callboard.client.subscriptions import Change, ChangeStream
from callboard.codecs.revisions import ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult, Model, write
from callboard.errors import CallboardError


@attrs.define(eq=False)
class ScriptedAnswerer:
    """Answers what the server asks, as the script that is played just now has it."""

    chance: random.Random
    current: Answers = NO_ANSWERS

    def options(self, options: Common, given: Sequence[Answers]) -> Common:
        """Options of the connection: only capabilities that some script answers are declared."""
        found = Common(**options)
        if any(one.elicitation for one in given):
            found["elicitation"] = self._elicited
        if any(one.sampling is not None for one in given):
            found["sampling"] = lambda _: self.current.sampling or ""
        if any(one.roots is not None for one in given):
            found["roots"] = lambda: self.current.roots or ()
        return found

    async def _elicited(self, params: ElicitRequestFormParams | ElicitRequestURLParams) -> ElicitResult:
        fitting = [one for one in self.current.elicitation if one.match in params.message]
        if not fitting:
            await trio.lowlevel.checkpoint()
            return ElicitResult(action="decline")
        chosen = self.chance.choices(fitting, [one.weight for one in fitting])[0]
        await trio.sleep(chosen.after)
        return _result(chosen, has_form=isinstance(params, ElicitRequestFormParams))


def _result(chosen: Elicited, *, has_form: bool) -> ElicitResult:
    if chosen.content is None or not has_form:
        return ElicitResult(action=chosen.action)
    return ElicitResult(action=chosen.action, content=chosen.content)


@attrs.define(eq=False)
class Player:
    """One session. It plays one script at a time."""

    client: Client
    answerer: ScriptedAnswerer
    _nursery: trio.Nursery
    _stack: AsyncExitStack
    _heard: Counter[str] = attrs.field(factory=Counter, init=False)
    """Changes that no step has waited for yet, by what they are about."""
    _topics: set[str] = attrs.field(factory=set, init=False)
    _failure: CallboardError | None = attrs.field(default=None, init=False)
    _woken: ParkingLot = attrs.field(factory=ParkingLot, init=False)

    @property
    def is_lost(self) -> bool:
        return self.client.is_lost

    async def ask(self, request: StepRequest, answers: Answers, values: dict[str, Any]) -> None:
        """Make a request with the *values* that earlier ones have saved, and save its own. Raises `ToolFailed`,
        `NotSaved`, `NoTasks`, and what the client raises."""
        self.answerer.current = request.answers.over(answers)
        for name, _ in request.save:
            values.pop(name, None)  # that of an earlier round is not this one's
        result = await self._ask(request, values)
        if request.save:
            written = write(self.client.revision, result)
            values.update({name: picked(written, path) for name, path in request.save})

    async def _ask(self, request: StepRequest, values: Mapping[str, Any]) -> Model:
        name = filled_uri(request.name, values) if request.refers and request.kind == "read" else request.name
        args = filled(request.args, values) if request.refers else request.args
        if request.kind == "prompt":
            return await self.client.prompt_with(name, {key: text_of(value) for key, value in args.items()})
        if request.kind == "list":
            return await self.client.list_anew(name)
        if request.kind == "task":
            return await follow(self.client, name, args)
        return await Act(kind=request.kind, name=name, arguments=args).do(self.client)

    async def listen(self, step: Listen) -> None:
        """From now on, and once only. Raises what the client raises."""
        topics = [topic for topic in step.topics if topic not in self._topics]
        if not topics:
            return
        listening = self.client.listen(
            tools="tools" in topics,
            prompts="prompts" in topics,
            lists="resources" in topics,
            resources=[topic for topic in topics if topic not in LISTS],
        )
        await self._stack.enter_async_context(listening)
        self._topics.update(topics)
        self._nursery.start_soon(self._hear, listening, topics)

    async def wait_news(self, topic: str) -> None:
        """Wait until there is news. Raises why there will be none any more."""
        while not self._heard[topic]:
            if self._failure is not None:
                raise self._failure
            await self._woken.park()
        self._heard[topic] = 0

    async def _hear(self, listening: ChangeStream, topics: Sequence[str]) -> None:
        try:
            async for change in listening:
                self._heard.update(about(change, topics))
                self._woken.unpark_all()
        except CallboardError as error:
            self._failure = error
            self._woken.unpark_all()


def about(change: Change, topics: Sequence[str]) -> Sequence[str]:
    """The topic of *topics* that a change belongs to. A server may name a part of a subscribed resource."""
    if isinstance(change, ListChanged):
        return [change.name]
    uris = [topic for topic in topics if topic not in LISTS]
    return [uri for uri in uris if change.uri.startswith(uri.rstrip("/"))] or uris


def players(
    target: Target, options: Common, scenario: Scenario, on_open: Callable[[Client], None], seed: int = 0
) -> Open[Player]:
    """Sessions at *target* that can play *scenario*; *on_open* is given each client."""
    numbers = itertools.count()

    @asynccontextmanager
    async def open_player() -> AsyncIterator[Player]:
        answerer = ScriptedAnswerer(random.Random(f"{seed}/answers/{next(numbers)}"))  # noqa: S311
        async with (
            connect(target, **answerer.options(options, scenario.answers)) as client,
            AsyncExitStack() as stack,
            trio.open_nursery() as nursery,
        ):
            on_open(client)
            yield Player(client, answerer, nursery, stack)
            nursery.cancel_scope.cancel()

    return open_player
