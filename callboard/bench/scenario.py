"""`--scenario FILE.toml`: what a session does, step by step. Text in, value out: no I/O, no clock, no chance."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

import attrs

from callboard.bench.saved import MAX_DEPTH, NAME, references
from callboard.bench.steps import (
    ACTIONS,
    LISTED,
    LISTS,
    NO_ANSWERS,
    WITHIN,
    Answers,
    Await,
    Elicited,
    Listen,
    Repeat,
    RequestKind,
    Scenario,
    Script,
    Step,
    StepRequest,
    Think,
    walk,
)
from callboard.bench.times import HOW, read_time
from callboard.config.positions import NotWritten, SourceNode
from callboard.config.reader import Place, Table, nearest, quoted
from callboard.config.report import Mistake, Report
from callboard.config.toml import read_toml
from callboard.errors import CallboardError

MAX_STEPS: Final = 10_000
"""Most steps of one script, with all that is repeated in it. A longer one would never come to its end."""


class BadScenario(CallboardError):
    """A file that is no scenario. One line says where and why."""


def parse_scenario(text: str, file: Path) -> Scenario:
    """Raises `BadScenario`, with the file and the line."""
    report = Report(file, "a table")
    try:
        root = Place(read_toml(text), "", report)
    except NotWritten as error:
        told = Mistake(file=file, line=error.line, message=f"is not valid TOML: {error}")
        raise BadScenario(str(told)) from None
    found = _Reading(file.stem).scenario(Table.of(root))
    mistakes = report.mistakes
    if mistakes:
        more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
        raise BadScenario(f"{mistakes[0]}{more}")
    return found


FILE_KEYS: Final = ("name", "script", "steps", "session", "answer")
SCRIPT_KEYS: Final = ("name", "weight", "session", "answer", "steps")
STEP_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "call": ("args", "label", "cancel_after", "answer", "save"),
    "task": ("args", "label", "cancel_after", "answer", "save"),
    "read": ("label", "save"),
    "list": ("label", "save"),
    "prompt": ("args", "label", "save"),
    "think": (),
    "subscribe": (),
    "listen": (),
    "await": ("within", "label"),
    "repeat": ("steps",),
}
"""Kinds of steps, and the other keys that each may have."""


@attrs.frozen
class _Reading:
    """One file. What is wrong is told to its report, and something stands in for it."""

    name: str

    def scenario(self, table: Table) -> Scenario:
        _only(table, FILE_KEYS)
        answers = _answers(table)
        if "script" in table.members and "steps" in table.members:
            table.members["steps"].wrong("is outside of `[[script]]`; move it into one")
        place = table.members.get("script")
        if place is None:
            script = self._script(table, 0, answers, of_file=True)
            return Scenario(name=_text(table, "name", self.name), scripts=(script,))
        entries = _entries(place, "`[[script]]`, once or several times")
        scripts = tuple(self._script(one.table(), at, answers) for at, one in enumerate(entries))
        if not scripts:
            place.wrong("has no script")
        return Scenario(name=_text(table, "name", self.name), scripts=scripts)

    def _script(self, table: Table, number: int, answers: Answers, *, of_file: bool = False) -> Script:
        if not of_file:
            _only(table, SCRIPT_KEYS)
        place = table.members.get("steps")
        if place is None:
            table.place.wrong('has no `steps`: write steps = [{ call = "NAME" }]')
        steps = () if place is None else _steps(place)
        if place is not None and not any(isinstance(step, StepRequest | Await) for step in walk(steps)):
            place.wrong("sends no request: add a `call`, `task`, `read`, `list` or `prompt`")
        if place is not None and _length(steps) > MAX_STEPS:
            place.wrong(f"are more than {MAX_STEPS:,}, counting repetitions")
        if place is not None:
            _check_heard(place, steps)
            _check_saved(place, set())
        default = self.name if of_file else f"script {number + 1}"
        return Script(
            name=_text(table, "name", default),
            steps=steps,
            weight=_weight(table),
            per_session=_per_session(table),
            answers=answers if of_file else _answers(table).over(answers),
        )


def _check_heard(place: Place, steps: Sequence[Step]) -> None:
    heard = {topic for step in walk(steps) if isinstance(step, Listen) for topic in step.topics}
    for step in walk(steps):
        if isinstance(step, Await) and step.topic and step.topic not in heard:
            first = "listen" if step.topic in LISTS else "subscribe"
            topic = quoted(step.topic)
            place.wrong(f"wait for {topic}, but nothing subscribes to it: add {{ {first} = {topic} }}")


def _check_saved(place: Place, saved: set[str]) -> None:
    """Whether each `${name}` was saved by an earlier step. Adds the names of these steps to *saved*."""
    for step in _entries(place, "a list of steps") if place.node.items is not None else ():
        members = step.node.members or {}
        for key in ("args", "read"):
            if key in members:
                _check_references(step.member(key, members[key]), saved)
        if "steps" in members:
            _check_saved(step.member("steps", members["steps"]), saved)
        if "save" in members:
            node = members["save"]
            saved |= set(node.members) if node.members is not None else {str(node.value)}


def _check_references(place: Place, saved: set[str]) -> None:
    for name, node in (place.node.members or {}).items():
        _check_references(place.member(name, node), saved)
    for node in place.node.items or ():
        _check_references(Place(node, place.where, place.report), saved)
    for referred in references(place.node.value):
        if referred is not None and referred not in saved:
            hint = nearest(referred, saved) or "; write $${ for a plain ${"
            place.wrong(f"${{{referred}}} is not saved by an earlier step of this script{hint}")


def _saved(kind: str, table: Table) -> tuple[tuple[str, str], ...]:
    """The names and paths of `save`."""
    place = table.members.get("save")
    if place is None:
        return ()
    if "cancel_after" in table.members:
        place.wrong("needs a result, and cancel_after cancels the call: remove one of them")
    if place.node.members is None:
        if kind == "list":
            place.wrong('needs a path into the list, as { tool = "tools.0.name" }')
        found = {_named(place): ""}
    else:
        found = {name: _named(place.member(name, node)) for name, node in place.node.members.items()}
    for name, path in found.items():
        if name and not NAME.fullmatch(name):
            place.wrong(f"{quoted(name)} is not a name: expected letters, digits and _")
        if path.count(".") >= MAX_DEPTH:
            place.wrong(f"{quoted(path)} has more than {MAX_DEPTH} steps")
    return tuple(found.items())


def _length(steps: Sequence[Step]) -> int:
    return sum(step.times * _length(step.steps) if isinstance(step, Repeat) else 1 for step in steps)


def _steps(place: Place) -> tuple[Step, ...]:
    found = [_step(one) for one in _entries(place, "a list of steps")]
    return tuple(step for step in found if step is not None)


def _step(place: Place) -> Step | None:
    if place.node.members is None:
        place.wrong('must be a table, as { call = "NAME" }')
        return None
    table = Table.of(place)
    kinds = [key for key in table.members if key in STEP_KEYS]
    if len(kinds) != 1:
        known = ", ".join(STEP_KEYS)
        hint = "" if kinds else "".join(nearest(key, STEP_KEYS) for key in table.members)[:100]
        place.wrong(f"must have one of {known}{hint}" if not kinds else f"has several kinds: {' and '.join(kinds)}")
        return None
    kind = kinds[0]
    _only(table, (kind, *STEP_KEYS[kind]))
    value = table.members[kind]
    match kind:
        case "think":
            return _think(value)
        case "subscribe" | "listen":
            return Listen(_topics(value, are_lists=kind == "listen"))
        case "await":
            topic = _named(value)
            within = _time(table, "within", WITHIN)
            return Await(label=_text(table, "label", f"await {topic}"), topic=topic, within=within)
        case "repeat":
            if "steps" not in table.members:
                place.wrong("has no `steps` to repeat")
                return None
            return Repeat(table.count("repeat", 1), _steps(table.members["steps"]))
        case _:
            return _request(cast("RequestKind", kind), table)


def _request(kind: RequestKind, table: Table) -> StepRequest:
    name: str = _named(table.members[kind])
    if kind == "list" and name and name not in LISTED:
        table.members[kind].wrong(f"{quoted(name)} is not one of {', '.join(LISTED)}{nearest(name, LISTED)}")
    args = _args(table, of_strings=kind == "prompt")
    after = table.members.get("cancel_after")
    return StepRequest(
        label=_text(table, "label", f"{kind} {name}"),
        kind=kind,
        name=name,
        args=args,
        cancel_after=None if after is None else _time(table, "cancel_after", 1.0),
        answers=_answers(table),
        save=_saved(kind, table),
        refers=any(True for _ in references([args, name if kind == "read" else ""])),
    )


def _args(table: Table, *, of_strings: bool) -> dict[str, Any]:
    place = table.members.get("args")
    if place is None:
        return {}
    if place.node.members is None:
        place.wrong('must be a table, as { city = "Oslo" }')
        return {}
    for name, node in place.node.members.items():
        if of_strings and not isinstance(node.value, str):
            place.member(name, node).wrong("must be a string: arguments of prompts are strings")
        _plain(node, place.member(name, node))
    return {name: _plain(node) for name, node in place.node.members.items()}


def _plain(node: SourceNode, place: Place | None = None) -> Any:
    """The value, as JSON has it. What JSON has not is told, if there is a *place* to tell of."""
    if node.members is not None:
        return {
            key: _plain(one, None if place is None else place.member(key, one)) for key, one in node.members.items()
        }
    if node.items is not None:
        return [_plain(one, place and Place(one, place.where, place.report)) for one in node.items]
    if place is not None and not isinstance(node.value, str | int | float | bool):
        place.wrong("is a date or time, which JSON does not have: write it as a string")
    return node.value


def _think(place: Place) -> Think:
    if place.node.items is None:
        seconds = _seconds(place)
        return Think(seconds, seconds)
    ends = [_seconds(Place(node, place.where, place.report)) for node in place.node.items]
    if len(ends) != 2 or ends[0] > ends[1]:
        place.wrong('must be a time, or a range from a shorter to a longer one, as ["1s", "3s"]')
        return Think(0, 0)
    return Think(ends[0], ends[1])


def _topics(place: Place, *, are_lists: bool) -> tuple[str, ...]:
    nodes = [place.node] if place.node.items is None else place.node.items
    found = tuple(_named(Place(node, place.where, place.report)) for node in nodes)
    if not found:
        place.wrong("must not be empty")
    for topic in found if are_lists else ():
        if topic and topic not in LISTS:
            hint = "; for a resource write `subscribe`" if ":" in topic else nearest(topic, LISTS)
            place.wrong(f"{quoted(topic)} is not one of {', '.join(LISTS)}{hint}")
    return found


def _answers(table: Table) -> Answers:
    place = table.members.get("answer")
    if place is None:
        return NO_ANSWERS
    if place.node.members is None:
        place.wrong('must be a table, as { elicitation = "decline" }')
        return NO_ANSWERS
    given = Table.of(place)
    _only(given, ("elicitation", "sampling", "roots"))
    asked, roots = given.members.get("elicitation"), given.members.get("roots")
    return Answers(
        elicitation=() if asked is None else _elicited(asked),
        sampling=None if "sampling" not in given.members else _text(given, "sampling", ""),
        roots=None if roots is None else _roots(roots),
    )


def _roots(place: Place) -> tuple[str, ...]:
    nodes = place.node.items
    if nodes is None or not all(isinstance(node.value, str) and node.value.startswith("file://") for node in nodes):
        place.wrong('must be a list of file:// URIs, as ["file:///home/ada"]')
        return ()
    return tuple(str(node.value) for node in nodes)


def _elicited(place: Place) -> tuple[Elicited, ...]:
    if place.node.items is None:
        return (_one_elicited(place),)
    return tuple(_one_elicited(Place(node, place.where, place.report)) for node in place.node.items)


def _one_elicited(place: Place) -> Elicited:
    if place.node.members is None:
        chosen = next((action for action in ACTIONS if action == place.node.value), None)
        if chosen is None:
            place.wrong(f"must be one of {', '.join(ACTIONS)}, or a table with `action` and `content`")
        return Elicited(action=chosen or "decline", content={} if chosen == "accept" else None)
    table = Table.of(place)
    _only(table, ("action", "content", "after", "match", "weight"))
    content = table.members.get("content")
    action = table.choice("action", ACTIONS, "accept" if content is not None else None)
    if action is None:
        if "action" not in table.members:
            place.wrong(f"has no `action`: one of {', '.join(ACTIONS)}")
        action = "decline"
    if content is not None and action != "accept":
        content.wrong('is only allowed with action "accept"')
    if content is not None and content.node.members is None:
        content.wrong("must be a table, as { agreed = true }")
    given = {} if content is None or content.node.members is None else _plain(content.node)
    return Elicited(
        action=action,
        content=given if action == "accept" else None,
        after=_time(table, "after", 0.0),
        match=_text(table, "match", ""),
        weight=_weight(table),
    )


# Small things.


def _only(table: Table, known: Sequence[str]) -> None:
    for key, place in table.members.items():
        if key not in known:
            place.wrong(f"is unknown{nearest(key, known) or '; known: ' + ', '.join(known)}")


def _entries(place: Place, what: str) -> Sequence[Place]:
    if place.node.items is None:
        place.wrong(f"must be {what}")
        return ()
    return [Place(node, f"{place.where}[{at}]", place.report) for at, node in enumerate(place.node.items)]


def _named(place: Place) -> str:
    if not isinstance(place.node.value, str) or not place.node.value:
        place.wrong("must be a string")
        return ""
    return place.node.value


def _text(table: Table, key: str, default: str) -> str:
    place = table.members.get(key)
    return default if place is None else _named(place) or default


def _weight(table: Table) -> float:
    return table.seconds("weight", 1.0)  # a number of more than 0, like a time


def _per_session(table: Table) -> int:
    place = table.members.get("session")
    if place is None or place.node.value == "lasts":
        return 0
    if place.node.value == "each":
        return 1
    if isinstance(place.node.value, bool) or not isinstance(place.node.value, int) or place.node.value < 1:
        place.wrong('must be "lasts", "each" (a new session for each run), or the number of runs per session')
        return 0
    return place.node.value


def _time(table: Table, key: str, default: float) -> float:
    place = table.members.get(key)
    return default if place is None else _seconds(place)


def _seconds(place: Place) -> float:
    value = place.node.value
    found = read_time(value) if isinstance(value, str) else None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf"):
        found = float(value)
    if found is None:
        place.wrong(f"is not a time: {HOW}")
        return 0.0
    return found
