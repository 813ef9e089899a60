"""What a peer can make a server hold: for each thing its bounds, as the code has them, and the answer beyond them.

`memory.py` measures the worst case of each; `docs/limits.py` writes both into the reference. Imports nothing but
callboard, so that the page can be made without what benchmarks need.
"""

import importlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import attrs

from callboard.transports.limits import DEFAULTS

MIB: Final = 1 << 20
STRANGER_MIB: Final = 256
"""What a client without a token may take of a default server, in all (PROMISES 26)."""
BACKEND_MIB: Final = 128
"""What one backend may take of a broker, in all."""
SHARE: Final = 0.75
"""The part of all that one address may hold (see `actors/shares.py`)."""
FOUND: Final = Path(__file__).resolve().parents[1] / "docs" / "reference" / "memory.json"

HEAD: Final = """
## What a peer can make grow

The bounds are read from the code. The worst case was measured by `python -m benchmarks.memory`, which drives each
against a process of its own with default limits and reads its resident memory: the peak, and what is left when the
peer has gone. All clients come from one address without a token, which may hold three quarters of what is counted in
all.
"""
COLUMNS: Final = """
| thing | for one peer | in all | measured: peak, and after | when reached |
|---|---|---|---|---|"""


@attrs.frozen
class Thing:
    """One thing that can grow. *each* and *whole* name its bounds: dotted names, or plain words."""

    key: str
    name: str
    each: str
    whole: str
    answer: str
    counted: str = ""
    """The bound of those that are counted, for one address: what one weighs makes it a bound in bytes."""


def limit(dotted: str) -> Any:
    """A constant of callboard by its dotted name, or a setting by `settings.NAME`."""
    module, _, name = dotted.rpartition(".")
    return (
        getattr(DEFAULTS, name)
        if module == "settings"
        else getattr(importlib.import_module(f"callboard.{module}"), name)
    )


def text_of(bound: str) -> str:
    """The bound in words: `{a.b.C}` becomes its value, and `{a.b.C!b}` its value in bytes."""
    parts = bound.split("{")
    done = [parts[0]]
    for part in parts[1:]:
        name, _, rest = part.partition("}")
        dotted, _, unit = name.partition("!")
        value = limit(dotted)
        done.append((in_bytes(value) if unit else f"{value:,g}" if isinstance(value, float) else f"{value:,}") + rest)
    return "".join(done)


def in_bytes(value: float) -> str:
    for unit, size in (("MiB", MIB), ("KiB", 1024)):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g} B"


STRANGER: Final = (
    Thing(
        "heads",
        "heads of requests that do not end",
        "{settings.max_header!b}, {settings.header_time} s",
        "{settings.max_connections} connections; {settings.max_body_bytes!b}, with bodies, each byte counted twice",
        "431, 408, 429, 503; closed",
    ),
    Thing(
        "bodies",
        "bodies that are being read",
        "{settings.max_frame!b}, {settings.body_time} s",
        "{settings.max_body_bytes!b}",
        "413, 408, 429, 503",
    ),
    Thing(
        "requests",
        "requests in flight",
        "{settings.max_in_flight_each}",
        "{settings.max_in_flight}; {settings.max_body_bytes!b} of large ones",
        "429, 503 with -31003",
    ),
    Thing("failures", "large requests that fail, one after the other", "one at a time", "none is kept", "its error"),
    Thing(
        "sessions",
        "legacy sessions",
        "{settings.max_sessions_each}, {settings.session_idle} s",
        "{settings.max_sessions}",
        "429, 503",
        "settings.max_sessions",
    ),
    Thing(
        "events",
        "events kept for clients that left",
        "{settings.max_events}, {settings.max_event_bytes!b}",
        "{settings.max_kept_bytes!b}",
        "the oldest are forgotten: 400 to a client that wants them",
    ),
    Thing(
        "outboxes",
        "answers that are not read",
        "{actors.server.session.OUTBOX_SIZE}, {actors.server.session.OUTBOX_BYTES!b}, {settings.write_time} s",
        "{settings.max_in_flight} requests",
        "cut off",
    ),
    Thing(
        "replay",
        "answers kept for a dropped WebSocket",
        "{settings.max_events}, {settings.max_event_bytes!b}, {settings.grace} s",
        "{settings.max_kept_bytes!b}, with those of the row above",
        "404: a new session",
    ),
    Thing(
        "followed",
        "resources that are followed",
        "{actors.server.host.MAX_FOLLOWED} a subscription, {codecs.uri_template.match.MAX_URI!b} a URI",
        "{actors.changes.MAX_FOLLOWED_BYTES!b}, a quarter of it for a principal",
        "-32602, 429, 503",
    ),
    Thing(
        "parked",
        "calls that wait for their client's input",
        "{settings.max_parked_each}, {actors.server.parking.MAX_PARKED_BYTES_EACH!b}, {codecs.state.STATE_TTL} s",
        "{settings.max_parked}, {actors.server.parking.MAX_PARKED_BYTES!b}",
        "429, 503",
    ),
    Thing(
        "spent",
        "rounds that were answered",
        "{actors.server.parking.MAX_SPENT_EACH}, {codecs.state.STATE_TTL} s",
        "{actors.server.parking.MAX_SPENT}",
        "429, 503",
        "actors.server.parking.MAX_SPENT",
    ),
    Thing(
        "streams",
        "`subscriptions/listen` streams",
        "{settings.max_in_flight_each}",
        "{settings.max_in_flight}",
        "429, 503",
        "settings.max_in_flight",
    ),
    Thing(
        "sockets",
        "WebSocket sessions",
        "{settings.max_sessions_each}",
        "{settings.max_sessions}, {settings.max_connections} connections",
        "429, 503",
        "settings.max_sessions",
    ),
    Thing(
        "memos",
        "heads and `_meta` that are remembered",
        "none",
        "{codecs.http.head_memory.MOST_REMEMBERED} heads of {codecs.http.head_memory.MAX_REMEMBERED!b}",
        "it begins anew",
    ),
    Thing(
        "letters",
        "dead letters and log lines",
        "none",
        "{supervisor.dead_letters.REMEMBERED}, without payload",
        "the oldest are forgotten, and stay counted",
    ),
)

BACKEND: Final = (
    Thing(
        "lists",
        "lists and their pages",
        "{actors.broker.listing.MAX_LISTS!b}, {actors.broker.listing.MAX_ENTRIES} entries a list",
        "as many backends as the operator names",
        "the rest is left out, and logged",
    ),
    Thing("definitions", "one definition", "{codecs.bridge.guard.MAX_DEFINITION!b}", "", "left out, and logged"),
    Thing(
        "results",
        "results that a client does not read",
        "{codecs.lines.MAX_ANSWER!b}",
        "{actors.broker.policy.MAX_IN_FLIGHT} requests a backend",
        "-32603; the client is cut off",
    ),
    Thing(
        "notifications",
        "a flood of notifications",
        "{transports.lines.IN_A_ROW} in a row, {actors.server.session.OUTBOX_BYTES!b} a client",
        "",
        "the oldest are dropped, and counted",
    ),
    Thing(
        "stderr",
        "a flood on stderr",
        "{transports.client.process.TAIL} lines of {transports.client.process.MAX_LINE} characters",
        "",
        "the rest is left out, and counted",
    ),
    Thing(
        "questions",
        "questions to clients",
        "{actors.client.answerer.MAX_QUESTIONS}, {actors.client.answerer.MAX_QUESTION_BYTES!b}",
        "",
        "refused",
    ),
    Thing(
        "updates",
        "updates of resources for a client that has left",
        "{actors.server.session.OUTBOX_SIZE}, {actors.server.session.OUTBOX_BYTES!b} a client",
        "",
        "dropped and counted; the client is told that more has changed",
    ),
    Thing("giant", "a line that does not end", "{codecs.lines.MAX_FRAME!b}", "", "skipped; the backend is restarted"),
)


def lines(found: dict[str, Any]) -> list[str]:
    """The table, with what was *found* about each thing."""
    told = [HEAD]
    for title, most, things in (
        ("by strangers", STRANGER_MIB, STRANGER),
        ("by one backend", BACKEND_MIB, BACKEND),
    ):
        told += [f"### Made to grow {title}: {most} MiB in all", COLUMNS, *_rows(things, found), ""]
        told += [together] if (together := _together(found.get(title.split()[-1]), most)) else []
    return told


def _together(measured: dict[str, Any] | None, most: int) -> str:
    return "" if measured is None else f"The worst together: {_measured(measured)}. At most {most} MiB are wanted.\n"


def _rows(things: Iterable[Thing], found: dict[str, Any]) -> Iterable[str]:
    for thing in things:
        measured = found.get(thing.key)
        said = "not measured" if measured is None else _measured(measured) + _all_of(thing, measured)
        yield f"| {thing.name} | {text_of(thing.each)} | {text_of(thing.whole)} | {said} | {thing.answer} |"


def _all_of(thing: Thing, measured: dict[str, Any]) -> str:
    """What all that one address may have would weigh."""
    if not thing.counted or not measured.get("each"):
        return ""
    most = SHARE * limit(thing.counted)
    return f"; {measured['each']:g} KiB each, so {most * measured['each'] / 1024:.0f} MiB for {most:,.0f}"


def _measured(one: dict[str, Any]) -> str:
    return f"{one['peak']:.0f} MiB, {one['left']:.0f} MiB: {one['did']}"


def read() -> dict[str, Any]:
    """What was found last, by the keys of the things."""
    return dict(json.loads(FOUND.read_text())) if FOUND.exists() else {}
