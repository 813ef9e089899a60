"""Requests of four kinds in flight at one `callboard run`, over all transports at once, and the event that meets them.

A scene is one process, one event and one era. All scenes are played at once: they mostly wait.
"""

import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Literal, TypeAlias, get_args

import attrs
import trio

from callboard.actors.server.drain import FAREWELL
from callboard.errors import DRAINING, INVALID_PARAMS, TIMED_OUT
from tests.figures import BUSY
from tests.fork_server import forked
from tests.process import started
from tests.serve.lines import ERAS, TRANSPORTS, Era, Json, Line, Lines, Transport
from tests.shared import APPS

Kind: TypeAlias = Literal["plain", "ctx", "sync", "parked"]
Event: TypeAlias = Literal["SIGTERM", "disconnect", "cancelled", "deadline"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
EVENTS: Final[tuple[Event, ...]] = get_args(Event)
NEIGHBOUR: Final = "neighbour"
NETWORK: Final[tuple[Transport, ...]] = ("http", "websocket")

APP: Final = APPS / "waiting.py"
DRAIN_TIME: Final = 1.0

SOON: Final = 5.0
"""Seconds for each thing that a scene waits for. What does not come is missing in the history, and a test says so."""

SCENE: Final = 14.0
"""Seconds for all of them, without the end of the process."""

END: Final = max(DRAIN_TIME, FAREWELL)
"""Seconds from the signal to the end of the process, at most."""

_ERRORS: Final = {DRAINING: "draining", TIMED_OUT: "timed out", INVALID_PARAMS: "refused"}


def label_of(kind: str, transport: Transport) -> str:
    return f"{kind}-{transport}"


@attrs.define(eq=False)
class History:
    """What became of the requests, as their clients and their handlers saw it."""

    lines: Lines
    abandoned: set[str] = attrs.field(factory=set, init=False)
    """Calls in threads that were over while the thread still ran, by label."""
    going_on: set[str] = attrs.field(factory=set, init=False)
    """Calls that were still in flight when their client had left, by label."""
    status: int | None = attrs.field(default=None, init=False)
    seconds: float = attrs.field(default=0.0, init=False)
    """From the signal to the end of the process."""
    words: str = attrs.field(default="", init=False)
    """All that the process said on standard error."""
    faults: list[str] = attrs.field(factory=list, init=False)
    """What clients could not make sense of, and what they could not do."""

    def outcome(self, kind: Kind, transport: Transport) -> str:
        """What the client got under the id of its request, and how the handler ended."""
        return f"{self._answers(kind, transport)}; {self._ends(kind, transport)}"

    def _answers(self, kind: Kind, transport: Transport) -> str:
        line, label = self.lines.of(transport), label_of(kind, transport)
        rounds = [[_word(answer, label) for answer in line.answers(key)] for key in (kind, f"{kind}-retried")]
        return ", then ".join(" and ".join(answers) for answers in rounds if answers) or "no answer"

    def _ends(self, kind: Kind, transport: Transport) -> str:
        label = label_of(kind, transport)
        ends = [event for event in ("cancelled", "finished") if self.is_noted(label, event)]
        if kind == "sync" and (label in self.abandoned or not ends):
            return "abandoned"
        if label in self.going_on and ends == ["finished"]:
            return "goes on"
        return " and ".join(ends) or "never ended"

    def is_noted(self, label: str, event: str) -> bool:
        return f"call {label} {event}\n" in self.words


def _word(answer: Json, label: str) -> str:
    if "error" in answer:
        code = answer["error"]["code"]
        return _ERRORS.get(code, f"error {code}")
    result = answer["result"]
    if result.get("resultType") == "input_required":
        return "input_required"
    return "result" if result["content"][0]["text"] == label else f"another result: {result}"


Scenes: TypeAlias = Mapping[tuple[Event, Era], History]


async def all_played() -> Scenes:
    found: dict[tuple[Event, Era], History] = {}

    async def play(event: Event, era: Era) -> None:
        found[event, era] = await played(event, era)

    async with trio.open_nursery() as nursery:
        for event in EVENTS:
            for era in ERAS:
                nursery.start_soon(play, event, era)
    return found


async def played(event: Event, era: Era) -> History:
    """Have requests of each kind in flight, let *event* happen, and note all up to the end of the process.

    A scene that goes wrong goes to its end: so a fault in one cell of the table is seen in that cell.
    """
    target = f"{APP}:{'capped' if event == 'deadline' else 'server'}"
    flags = ("--stdio", "--http", "0", "--ws", "0", "--json", "--drain-time", f"{DRAIN_TIME:g}")
    async with started(*forked(), "run", target, *flags) as process, trio.open_nursery() as nursery:
        lines = await Lines.opened(process, era, nursery)
        history = History(lines)
        with trio.move_on_after(SCENE):
            try:
                await _SCENES[event](history)
            except Exception as error:  # of a client whose connection is gone
                history.faults.append(repr(error))
        asked = time.monotonic()
        if event != "disconnect":  # that ended standard input, and so the process
            process.signal(signal.SIGTERM)
        with trio.move_on_after(END * BUSY):
            history.status = await process.wait()
        history.seconds = time.monotonic() - asked
        if history.status is None:
            process.signal(signal.SIGKILL)
    history.words = process.words
    history.faults += [fault for transport in TRANSPORTS for fault in lines.of(transport).faults]
    return history


# The events.


async def _sigterm(history: History) -> None:
    await _begin(history, TRANSPORTS)


async def _disconnect(history: History) -> None:
    """Over the network first: the end of standard input is the end of the process."""
    lines = history.lines
    await _begin(history, NETWORK)
    for transport in NETWORK:
        await lines.of(transport).drop()
    if lines.http.era == "modern":
        await _wait_noted(lines, [(kind, transport) for kind in ("plain", "ctx") for transport in NETWORK], "cancelled")
        await _wait_running(history, 0)
    else:
        await _wait_noticed(lines)
        history.going_on = {label_of(kind, "http") for kind in KINDS if await _is_in_flight(lines.http, kind)}
    for transport in NETWORK:
        with soon():
            await lines.of(transport).come_back()
            await _go_on(lines.of(transport), transport)
    await _release(lines, [label_of(kind, transport) for kind in KINDS for transport in NETWORK])
    await _wait_noted(lines, [("sync", transport) for transport in NETWORK], "finished")
    if lines.http.era == "legacy":
        await _wait_noted(lines, [(kind, transport) for kind in KINDS for transport in NETWORK], "finished")
        await _wait_answers(lines, [(kind, "websocket") for kind in KINDS])
    await _begin(history, ["stdio"])
    await lines.stdio.drop()


async def _cancelled(history: History) -> None:
    lines = history.lines
    await _begin(history, TRANSPORTS)
    for transport in TRANSPORTS:
        await _ask(lines, transport, "ctx", NEIGHBOUR)
    for transport in TRANSPORTS:
        for kind in KINDS:
            await lines.of(transport).cancel(kind)
    await _wait_noted(lines, [(kind, transport) for kind in ("plain", "ctx") for transport in TRANSPORTS], "cancelled")
    if lines.http.era == "legacy":
        await _wait_noted(lines, [("parked", transport) for transport in TRANSPORTS], "cancelled")
    await _wait_running(history, len(TRANSPORTS))
    if lines.http.era == "modern":
        for transport in TRANSPORTS:
            with soon():
                await _go_on(lines.of(transport), transport)
    neighbours = [label_of(NEIGHBOUR, transport) for transport in TRANSPORTS]
    await _release(lines, [*neighbours, *(label_of("sync", transport) for transport in TRANSPORTS)])
    await _wait_noted(lines, [("sync", transport) for transport in TRANSPORTS], "finished")
    await _wait_answers(lines, [(NEIGHBOUR, transport) for transport in TRANSPORTS])


async def _deadline(history: History) -> None:
    """There is nothing to do but to wait. A modern call that is parked has a deadline of its own."""
    lines = history.lines
    await _begin(history, TRANSPORTS)
    await _wait_answers(lines, [(kind, transport) for kind in KINDS for transport in TRANSPORTS])
    history.abandoned = {label_of("sync", transport) for transport in TRANSPORTS if lines.of(transport).answers("sync")}
    await _wait_noted(
        lines, [(kind, transport) for kind in KINDS for transport in TRANSPORTS if kind != "sync"], "cancelled"
    )
    if lines.http.era == "modern":
        for transport in TRANSPORTS:
            with soon():
                await lines.of(transport).retry("parked", label_of("parked", transport))
    await _release(lines, [label_of("sync", transport) for transport in TRANSPORTS])
    await _wait_noted(lines, [("sync", transport) for transport in TRANSPORTS], "finished")


_SCENES: Final[Mapping[Event, Callable[[History], Awaitable[None]]]] = {
    "SIGTERM": _sigterm,
    "disconnect": _disconnect,
    "cancelled": _cancelled,
    "deadline": _deadline,
}


# The steps.


def soon() -> trio.CancelScope:
    return trio.move_on_after(SOON)


async def _begin(history: History, transports: Iterable[Transport]) -> None:
    """Have one request of each kind in flight. A plain one is first: on stdio the task that reads may run only one."""
    for transport in transports:
        for kind in KINDS:
            await _ask(history.lines, transport, kind, kind)
        line = history.lines.of(transport)
        with soon():
            await (line.wait_answer("parked") if line.era == "modern" else line.wait_question())


async def _ask(lines: Lines, transport: Transport, kind: Kind, id: str) -> None:
    """Call a tool, and wait until its handler runs."""
    label = label_of(id, transport)
    await lines.of(transport).ask("tools/call", id=id, name=kind, arguments={"label": label})
    with soon():
        await lines.process.wait_said(f"call {label} started\n".encode())


async def _go_on(line: Line, transport: Transport) -> None:
    """Bring what a parked call waits for."""
    if line.era == "modern":
        await line.retry("parked", label_of("parked", transport))
    else:
        await line.answer_question()


async def _release(lines: Lines, labels: Iterable[str]) -> None:
    released = await lines.control.ask("tools/call", name="release", arguments={"labels": list(labels)})
    with soon():
        await lines.control.wait_answer(released)


async def _wait_answers(lines: Lines, calls: Iterable[tuple[str, Transport]]) -> None:
    with soon():
        for key, transport in calls:
            await lines.of(transport).wait_answer(key)


async def _wait_noted(lines: Lines, calls: Iterable[tuple[str, Transport]], event: str) -> None:
    with soon():
        for kind, transport in calls:
            await lines.process.wait_said(f"call {label_of(kind, transport)} {event}\n".encode())


async def _wait_noticed(lines: Lines) -> None:
    """Wait until the server can be expected to know that connections were closed: until it has ended a modern call
    whose connection was closed after them."""
    await lines.control.ask("tools/call", name="plain", arguments={"label": "noticed"})
    with soon():
        await lines.process.wait_said(b"call noticed started\n")
        await lines.control.drop()
        await lines.process.wait_said(b"call noticed cancelled\n")


async def _wait_running(history: History, count: int) -> None:
    """Wait until no more than *count* calls are in flight; then those in threads are over, which still run."""
    lines = history.lines
    with soon():
        while True:
            read = await lines.control.ask("resources/read", uri="waiting://running")
            if int((await lines.control.wait_answer(read))["result"]["contents"][0]["text"]) <= count:
                break
            await trio.sleep(0.02)  # no event tells when another process has ended a call
        for transport in TRANSPORTS:
            label = label_of("sync", transport)
            if f"call {label} started" in lines.process.words and f"call {label} finished" not in lines.process.words:
                history.abandoned.add(label)


async def _is_in_flight(line: Line, id: str) -> bool:
    """Whether a session refuses another request with this id, because the first is in flight."""
    before = len(line.heard)
    await line.ask("ping", id=id)
    with soon():
        answer = await line.wait_heard(lambda message: message in line.heard[before:] and "method" not in message)
        line.heard.remove(answer)
        return "error" in answer and "id" not in answer
    return False
