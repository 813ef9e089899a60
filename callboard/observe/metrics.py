"""Metrics as values: families of samples; those of several processes as one; and the text that Prometheus reads.

Not by `prometheus_client`: what workers count must be added up in their parent, and its histograms lock and hash their
labels for every request. Its parser reads what is written here, in the tests.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, TypeAlias

import msgspec
import trio

from callboard.observe.durations import BOUNDS, Durations

Labels: TypeAlias = dict[str, str]

TEXT: Final = b"text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS: Final = b"application/openmetrics-text; version=1.0.0; charset=utf-8"

PIECE: Final = 64 * 1024
"""Characters that are encoded, and written, together: those of a few samples more."""

AT_ONCE: Final = 100
"""Samples that are made or written before others get a turn: some 20 lines each, of a histogram."""


class Sample(msgspec.Struct, array_like=True):
    """One value, or the counts of a histogram up to each of its family's bounds and beyond, and their sum."""

    labels: Labels
    value: float = 0.0
    counts: list[int] = []


class Family(msgspec.Struct):
    """One metric."""

    name: str
    kind: Literal["counter", "gauge", "histogram", "info"]
    help: str
    samples: list[Sample]
    bounds: list[float] = []
    merge: Literal["sum", "max"] = "sum"
    """How samples of several processes become one."""


Families: TypeAlias = list[Family]


async def histogram(name: str, help_: str, bounds: Sequence[float], some: Iterable[tuple[Labels, Durations]]) -> Family:
    """A family of durations, counted up to *bounds*, which are a part of ours without gaps. Made in steps, between
    which *some* must not change."""
    first = BOUNDS.index(bounds[0]) + 1
    beyond = first + len(bounds) - 1
    family = Family(name, "histogram", help_, [], list(bounds))
    for number, (labels, took) in enumerate(some, 1):
        counts = took.counts
        below, above = sum(counts[:first]), sum(counts[beyond:])
        family.samples.append(Sample(labels, took.total, [below, *counts[first:beyond], above]))
        if number % AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
    return family


# What several processes say.


async def merged(some: Iterable[Families]) -> Families:
    """The families of several processes as one: samples of the same labels are added up. Made in steps."""
    found: dict[str, Family] = {}
    values: dict[str, dict[tuple[tuple[str, str], ...], Sample]] = {}
    for family in (one for families in some for one in families):
        found.setdefault(family.name, family)
        known = values.setdefault(family.name, {})
        for number, sample in enumerate(family.samples, 1):
            key = tuple(sorted(sample.labels.items()))
            if key not in known:
                known[key] = Sample(sample.labels, sample.value, list(sample.counts))
            else:
                _join(known[key], sample, family.merge)
            if number % AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
    for name, family in found.items():
        family.samples = list(values[name].values())
    return list(found.values())


def _join(ours: Sample, theirs: Sample, how: Literal["sum", "max"]) -> None:
    if how == "max":
        ours.value = max(ours.value, theirs.value)
    else:
        ours.value += theirs.value
        ours.counts = [one + other for one, other in zip(ours.counts, theirs.counts, strict=True)]


# Prometheus' text, and OpenMetrics'.


def media_type(accept: bytes | None) -> bytes:
    """The form that a client takes which accepts that."""
    return OPEN_METRICS if b"application/openmetrics-text" in (accept or b"").lower() else TEXT


async def render(families: Iterable[Family], form: bytes = TEXT) -> list[bytes]:
    """As Prometheus reads it, in pieces, at least one. Made in steps, and never copied as a whole."""
    is_open = form == OPEN_METRICS
    pieces, text = [], ""
    for family in families:
        if family.samples:
            text += _head(family, is_open=is_open)
        for at in range(0, len(family.samples), AT_ONCE):
            some = family.samples[at : at + AT_ONCE]
            lines = _histogram_lines(family, some, is_open=is_open) if family.bounds else _lines(family, some)
            text += "".join(lines)
            if len(text) >= PIECE:
                pieces.append(text.encode(errors="replace"))
                text = ""
            await trio.lowlevel.checkpoint()
    if is_open:
        text += "# EOF\n"
    return [*pieces, text.encode(errors="replace")] if text or not pieces else pieces  # none of them is empty


def _head(family: Family, *, is_open: bool) -> str:
    name, kind = family.name, family.kind
    if is_open:
        name = name.removesuffix("_total" if kind == "counter" else "_info" if kind == "info" else "")
    elif kind == "info":
        kind = "gauge"
    return f"# HELP {name} {family.help}\n# TYPE {name} {kind}\n"


def _lines(family: Family, samples: Iterable[Sample]) -> Iterator[str]:
    for sample in samples:
        yield f"{family.name}{_braced(_written(sample.labels))} {_number(sample.value)}\n"


def _histogram_lines(family: Family, samples: Iterable[Sample], *, is_open: bool) -> Iterator[str]:
    name, bounds = family.name, [*map(repr if is_open else _number, map(float, family.bounds)), "+Inf"]
    for sample in samples:
        labels, below = _written(sample.labels), 0
        start = f'{name}_bucket{{{labels}{"," if labels else ""}le="'
        for bound, count in zip(bounds, sample.counts, strict=True):
            below += count
            yield f'{start}{bound}"}} {below}\n'
        given = _braced(labels)
        yield f"{name}_sum{given} {_number(sample.value)}\n{name}_count{given} {below}\n"


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _written(labels: Labels) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
