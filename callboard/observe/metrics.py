"""Metrics as values: families of samples; those of several processes as one; and Prometheus' text of them.

Not by `prometheus_client`: what workers count must be added up in their parent, and its histograms lock and hash their
labels for every request. Its parser reads what is written here, in the tests.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from callboard.observe.durations import BOUNDS, Durations

Labels: TypeAlias = dict[str, str]


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


def histogram(name: str, help_: str, bounds: Sequence[float], some: Iterable[tuple[Labels, Durations]]) -> Family:
    """A family of durations, counted up to *bounds*, which are some of ours."""
    samples = [Sample(labels, took.total, _counts(took, bounds)) for labels, took in some]
    return Family(name, "histogram", help_, samples, list(bounds))


def _counts(took: Durations, bounds: Sequence[float]) -> list[int]:
    found, below = [], 0
    wanted = set(bounds)
    for bound, count in zip(BOUNDS, took.counts, strict=False):
        below += count
        if bound in wanted:
            found.append(below)
            below = 0
    return [*found, below + took.counts[-1]]


# What several processes say.


def merged(some: Iterable[Families]) -> Families:
    """The families of several processes as one: samples of the same labels are added up."""
    found: dict[str, Family] = {}
    values: dict[str, dict[tuple[tuple[str, str], ...], Sample]] = {}
    for family in (one for families in some for one in families):
        found.setdefault(family.name, family)
        known = values.setdefault(family.name, {})
        for sample in family.samples:
            key = tuple(sorted(sample.labels.items()))
            if key not in known:
                known[key] = Sample(sample.labels, sample.value, list(sample.counts))
            else:
                _join(known[key], sample, family.merge)
    for name, family in found.items():
        family.samples = list(values[name].values())
    return list(found.values())


def _join(ours: Sample, theirs: Sample, how: Literal["sum", "max"]) -> None:
    if how == "max":
        ours.value = max(ours.value, theirs.value)
    else:
        ours.value += theirs.value
        ours.counts = [one + other for one, other in zip(ours.counts, theirs.counts, strict=True)]


# Prometheus' text.


def render(families: Iterable[Family]) -> bytes:
    """As Prometheus reads it (text format 0.0.4)."""
    return "".join(line for family in families if family.samples for line in _lines(family)).encode()


def _lines(family: Family) -> Iterator[str]:
    kind = "gauge" if family.kind == "info" else family.kind
    yield f"# HELP {family.name} {family.help}\n# TYPE {family.name} {kind}\n"
    for sample in family.samples:
        if family.kind == "histogram":
            yield from _histogram_lines(family, sample)
        else:
            yield f"{family.name}{_written(sample.labels)} {_number(sample.value)}\n"


def _histogram_lines(family: Family, sample: Sample) -> Iterator[str]:
    below = 0
    for bound, count in zip([*map(_number, family.bounds), "+Inf"], sample.counts, strict=True):
        below += count
        yield f"{family.name}_bucket{_written({**sample.labels, 'le': bound})} {below}\n"
    yield f"{family.name}_sum{_written(sample.labels)} {_number(sample.value)}\n"
    yield f"{family.name}_count{_written(sample.labels)} {below}\n"


def _written(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
