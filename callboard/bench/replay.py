"""`--scenario FILE.jsonl`: a recorded session played again: its requests, with the pauses that its client made.

What a recording does not say is left out: answers to questions, and secrets, of which `***` is sent.
"""

import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

import attrs

from callboard.bench.scenario import MAX_STEPS, BadScenario
from callboard.bench.steps import LISTS, Listen, Scenario, Script, Step, StepRequest, Think
from callboard.codecs.recording import RecordedMessage, read_lines
from callboard.errors import PeerError

MAX_SCRIPTS: Final = 256
"""Most sessions that are played again: each is a script of its own. Further ones are left out."""

LONGEST_PAUSE: Final = 60.0
"""Seconds: a client that was left alone over night is not waited for."""

SHORTEST_PAUSE: Final = 0.001
"""Seconds: less than that is the time that the client itself took."""

_ALONE: Final = re.compile(r"m-[0-9]+")
"""Names of modern requests over HTTP, which are recorded each alone: they have no session."""
_STATELESS: Final = "modern requests"
"""The script of all of those together, in their order."""

_CALLS: Final[Mapping[str, tuple[Literal["call", "read", "prompt"], str]]] = {
    "tools/call": ("call", "name"),
    "resources/read": ("read", "uri"),
    "prompts/get": ("prompt", "name"),
}
_LISTS: Final = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "templates",
}
_HEARD: Final = {f"{name}ListChanged": name for name in LISTS}


def replay_of(data: bytes, file: Path, server: str | None) -> Scenario:
    """A script for each session of *server* in a recording; without a name, of the only one. Raises `BadScenario`."""
    sessions: dict[tuple[str, str], _Session] = {}
    try:
        for _, recorded in read_lines(data):
            key = recorded.server, _STATELESS if _ALONE.fullmatch(recorded.session) else recorded.session
            if key not in sessions:
                sessions[key] = _Session()
            sessions[key].take(recorded)
    except PeerError as error:
        raise BadScenario(f"{file}: is not a recording: {error}") from None
    chosen = _chosen({name for name, _ in sessions}, file, server)
    played = [(name, one) for (of, name), one in sessions.items() if of == chosen and one.has_requests]
    if not played:
        raise BadScenario(f"{file}: has no request of a client to {chosen!r}: there is nothing to play again")
    scripts = (Script(name=name or "session", steps=tuple(one.steps)) for name, one in played[:MAX_SCRIPTS])
    return Scenario(name=file.stem, scripts=tuple(scripts))


def _chosen(servers: Iterable[str], file: Path, server: str | None) -> str:
    known = sorted(servers)
    if server is None and len(known) > 1:
        named = ", ".join(name or "''" for name in known[:10])
        raise BadScenario(f"{file}: has several servers ({named}): name one, as {file}#{known[-1]}")
    if server is not None and server not in known:
        raise BadScenario(f"{file}: has no server {server!r}; it has {', '.join(known[:10]) or 'none'}")
    return (known[0] if known else "") if server is None else server


@attrs.define(eq=False)
class _Session:
    """The steps of one session, as they are read line by line."""

    steps: list[Step] = attrs.field(factory=list)
    has_requests: bool = False
    _waiting: set[object] = attrs.field(factory=set)  # ids of requests without an answer yet
    _idle_since: float = math.nan

    def take(self, recorded: RecordedMessage) -> None:
        message, at = recorded.message, _seconds(recorded.time)
        if recorded.direction == "from_server":
            self._answered(recorded, at)
            return
        step = _step(message)
        if step is None or len(self.steps) + 2 > MAX_STEPS:
            return
        pause = min(at - self._idle_since, LONGEST_PAUSE)
        if not self._waiting and self.steps and pause >= SHORTEST_PAUSE:  # else it was sent beside another one
            self.steps.append(Think(pause, pause))
        self.steps.append(step)
        if isinstance(step, StepRequest):
            self.has_requests = True
            self._waiting.add((recorded.session, _hashable(message.get("id"))))

    def _answered(self, recorded: RecordedMessage, at: float) -> None:
        which = recorded.session, _hashable(recorded.message.get("id"))
        if "method" not in recorded.message and which in self._waiting:
            self._waiting.discard(which)
            self._idle_since = at


def _step(message: Mapping[str, Any]) -> Step | None:
    """The request as a step; None for what a session does by itself, such as its handshake."""
    method, params = message.get("method"), message.get("params")
    given: Mapping[str, Any] = params if isinstance(params, Mapping) else {}
    if "id" not in message or not isinstance(method, str):
        return None
    if method in _LISTS:
        return StepRequest(label=f"list {_LISTS[method]}", kind="list", name=_LISTS[method])
    if method == "subscriptions/listen":
        wanted = given.get("notifications")
        topics = tuple(_HEARD[name] for name in _HEARD if isinstance(wanted, Mapping) and wanted.get(name) is True)
        return Listen(topics) if topics else None
    if method not in _CALLS:
        return None
    kind, member = _CALLS[method]
    name, arguments = given.get(member), given.get("arguments")
    if not isinstance(name, str) or "inputResponses" in given:  # a retry: the client of the load test makes its own
        return None
    args = dict(arguments) if isinstance(arguments, Mapping) else {}
    return StepRequest(label=f"{kind} {name}", kind=kind, name=name, args=args)


def _seconds(time: str) -> float:
    try:
        return datetime.fromisoformat(time).timestamp()
    except ValueError:
        return math.nan


def _hashable(of: object) -> object:
    return of if isinstance(of, str | int) else None
