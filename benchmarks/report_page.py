"""The page of benchmarks, docs/benchmarks.md, from what each benchmark found. No time, no clock, nothing is run."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from benchmarks.report_section import Section, Target, table
from benchmarks.report_sections import MAKERS

TITLES: Final = {
    "hosting": "Hosting tools over HTTP",
    "shapes": "The same tool, written in six ways",
    "websocket": "WebSocket beside HTTP",
    "payload": "Large payloads",
    "memory": "Memory of an idle session",
    "client": "Calling as a client",
    "broker": "Brokering",
    "workers": "Several workers",
    "nodes": "Several nodes",
    "observing": "What metrics cost",
    "guarding": "What tokens and rules cost",
    "stages": "Where the time goes",
    "growth": "How cost grows",
    "listeners": "Ten thousand that listen",
    "crowd": "A hundred thousand that listen",
    "generator": "`callboard bench` itself",
    "agreement": "`callboard bench` beside wrk",
    "codec": "Messages: decode, route, encode",
    "actors": "Actors, beside bare Trio",
    "sessions": "Sessions in memory",
}

WORDS: Final = {
    "hosting": """Every server offers the same tools, has one core, and is called by wrk from another.
[design/hosting-speed](design/hosting-speed.md) says who is who, and how it is measured.""",
    "shapes": """An echo of 16 letters at 32 connections, one core. *By CPU*: the calls that callboard answers for the
same CPU time. The third is a stream; peers give structured content for a pydantic model.""",
    "websocket": """CPU of the server for one call of the short echo. Beside it what people write by hand: the library
`websockets` on asyncio, with `json` for the messages, which checks nothing. Calls over WebSocket are those of
`callboard bench`, with prepared frames.""",
    "payload": """CPU of the server for one call at 2 connections, with a request and an answer of that size. Brokered:
that of `callboard serve` alone. npm sdk is called in legacy sessions, since it speaks no other revision.""",
    "memory": "A new process for each round; 1,000 handshakes, after 100 that are not counted.",
    "client": """The same servers, called by callboard's client and the official one, each on a core of its own.
*By CPU*: the calls that a client makes for the same CPU time of its own.
[design/client-speed](design/client-speed.md) has more.""",
    "broker": "Proxies in front of the same servers. A proxy has one core; servers and wrk share the other.",
    "stages": """Samples of CPU time under load (servers: 32 connections), each counted for the innermost part of
callboard that was at work. This is where time would have to be saved for targets that are not reached.""",
    "workers": """One worker beside two, and a request that another worker answers; CPU of all workers together. The
generator shares the two cores with them, so calls per second say little. *Half forwarded*: legacy sessions, of which
every second call reaches the other worker.""",
    "nodes": """A request that a worker of another node answers, beside one at its home: two nodes on this machine,
which speak by TLS over loopback.""",
    "observing": """The same server with an admin address, so that every request is counted, and without one. *For the
same CPU*: an echo at 32 connections. Every round has new processes, which take turns twenty times a second.""",
    "guarding": """The same call without a token, with a token of a file, with a JWT that was seen before, and under a
thousand rules of which one is about the tool.""",
    "growth": """A call among many that it has nothing to do with, and with more to carry. *Sessions* are legacy ones
over HTTP, without a connection. *Backends* are one HTTP server, listed so many times.
[test_growth](../tests/test_growth.py) asserts on counted operations that a call does not pay for others.""",
    "listeners": "One change is published to all of them, five times; each must get it once.",
    "crowd": """Idle peers on all workers of one server, half of them `subscriptions/listen` streams, half WebSocket
sessions. Figures are of all processes of the server together; pages that they share count once. A worker needs a
descriptor for each peer: where a process may have 65,536 of them, two workers do. `python -m benchmarks.report --only
crowd` runs it; `make bench` leaves it out.""",
    "generator": "How many calls it makes from one core, to a peer that does next to nothing.",
    "agreement": "The same server and requests, in turn. wrk's correction for coordinated omission is done to both.",
    "codec": "What a broker does with a `tools/call`. callboard checks all it promises; `json` checks next to nothing.",
    "actors": "What supervision costs.",
    "sessions": "A supervisor, a writer, a reader and both ends of a connection, without sockets.",
}

UNJUDGED: Final = ("stages", "sessions")
"""Sections that have no target of their own."""

EXTRA: Final = ("crowd",)
"""What `make bench` leaves out, and keeps if it was run."""

INTRODUCTION: Final = """`make bench` writes this page: every figure was measured on one machine, and is a median of the
rounds (lowest to highest). Contenders take turns, and a ratio is taken within a round: a noisy machine slows all of a
round alike. Peers are installed from PyPI and npm, each into an environment of its own."""

WARNING: Final = """> **Not to be quoted.** Some of these figures are from a run that only shows that everything works
> (`--tiny`): a single short round, on a machine that was busy with other things."""

REPEATING: Final = """It took {minutes:.0f} minutes here, and some more for installing peers on first use. It wants two
cores that do nothing else, and wrk (`apt install wrk`); servers for Node.js are left out where there is no npm.
`python -m benchmarks.report --only hosting` runs one benchmark again and keeps the figures of the others;
`--from .cache/bench` writes the page again from kept figures. Each section names the command that gave its own."""


@attrs.frozen
class Kept:
    """What one benchmark left: its figures, or that there are none."""

    name: str
    about: Mapping[str, Any]
    data: Any = None

    @property
    def is_whole(self) -> bool:
        return self.data is not None


@attrs.frozen
class Page:
    """The text, the plots by the names of their files, whether every benchmark was there, and what was judged."""

    text: str
    plots: Mapping[str, str]
    is_whole: bool
    targets: Sequence[Target]


def page(kept: Mapping[str, Kept]) -> Page:
    sections = {name: _section(kept.get(source), make) for name, (source, make) in MAKERS.items()}
    plots = {name: svg for section in sections.values() if section for name, svg in section.plots.items()}
    missing = [name for name, section in sections.items() if section is None and (name in kept or name not in EXTRA)]
    blocks = ["# Benchmarks", *_introduction(kept), "## Targets", *_targets(sections), *_machine(kept)]
    for name, section in sections.items():
        source = MAKERS[name][0]
        blocks += [f"## {TITLES[name]}", WORDS[name], *_body(name, section, kept.get(source))]
    blocks += ["## How to repeat it", *_repeating(kept)]
    targets = [target for section in sections.values() if section for target in section.targets]
    return Page("\n\n".join(blocks) + "\n", plots, not missing, targets)


def _section(kept: Kept | None, make: Any) -> Section | None:
    if kept is None or not kept.is_whole:
        return None
    made: Section = make(kept.data)
    return made


def _introduction(kept: Mapping[str, Kept]) -> list[str]:
    blocks = [INTRODUCTION]
    if any(one.about.get("form") == "tiny" for one in kept.values()):
        blocks.append(WARNING)
    commits = sorted({one.about["commit"] for one in kept.values() if one.about.get("commit")})
    if len(commits) > 1:
        blocks.append(f"> The figures are of several commits: {', '.join(commits)}. Each section says which.")
    return blocks


def _targets(sections: Mapping[str, Section | None]) -> list[str]:
    rows, missed = [], list[Target]()
    for name, section in sections.items():
        if section is None:
            rows += [[TITLES[name], "", "", "**not measured**"]] if name not in UNJUDGED else []
            continue
        rows += [target.row() for target in section.targets]
        missed += [target for target in section.targets if not target.is_reached]
    count = sum(len(section.targets) for section in sections.values() if section)
    words = [table(["target", "wanted", "found", "reached"], rows)]
    if missed:
        words.append(
            f"{count - len(missed)} of {count} are reached. For the others, the table by stage below "
            "([where the time goes](#where-the-time-goes)) says what a call is made of."
        )
    return words


def _machine(kept: Mapping[str, Kept]) -> list[str]:
    about = next((one.about for one in kept.values() if one.about.get("machine")), {})
    rows = [[name, value] for name, value in {**about.get("machine", {}), **about.get("versions", {})}.items()]
    return ["## The machine, and versions", table(["what", "which"], rows)] if rows else []


def _body(name: str, section: Section | None, kept: Kept | None) -> list[str]:
    if section is None:
        return [f"**There are no figures**: {kept.about['failed'] if kept else 'this benchmark was not run'}."]
    assert kept is not None
    plots = [f"![{plot}](benchmarks/{plot}.svg)" for plot in section.plots]
    blocks = [*plots, *section.blocks]
    if MAKERS[name][0] == name:
        about = kept.about
        blocks.append(f"`{about['command']}`, commit {about['commit']}, {about['date']}, {about['seconds']:.0f} s.")
    return blocks


def _repeating(kept: Mapping[str, Kept]) -> Sequence[str]:
    seconds = sum(one.about.get("seconds", 0.0) for one in kept.values())
    return ["    make bench", REPEATING.format(minutes=seconds / 60)]
