"""What a generator of load tells the one that started it, line by line, and how much of that is believed.

A generator may run on another machine. It can report wrong figures, but not harm its reader: lines, counts, texts and
histograms have limits, and a histogram is unpacked here and not by its library, which allocates what a header says.
"""

import base64
import re
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from callboard.bench.figures import FIGURES
from callboard.bench.tally import (
    DIGITS,
    DIGITS_OF_A_SECOND,
    LONGEST,
    MAX_EXAMPLE,
    MAX_KIND,
    MAX_KINDS,
    Tally,
    histogram,
)
from callboard.errors import PeerError
from callboard.supervisor.printable import clean

MAX_REPORT: Final = 2 * 1024 * 1024
"""Bytes of one report. A second's takes some kilobytes; with 200 kinds of errors and their examples some hundred."""

MAX_HISTOGRAM: Final = 256 * 1024
"""Bytes of an unpacked histogram: its 21,000 counts take at most nine each, and most take a bit."""

MAX_COUNT: Final = 1 << 40
"""Most of anything that one report may count: more than a generator can do, and sums of it fit into 64 bits."""

MAX_SAID: Final = 10
"""Lines of a failure, and of standard error, that are kept."""

MAX_WORDS: Final = 500
"""Characters of each of these, and of names."""

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Second: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,9}$")]


class BadReport(ValueError):
    """A message that no generator of this version sends."""


class Hello(msgspec.Struct, tag="hello"):
    """A generator is there, and waits for its order."""

    version: str


class Met(msgspec.Struct, tag="met"):
    """All sessions are open, and each request was tried."""

    revision: str
    server: str
    is_fast: bool
    pids: list[int]


class CountedTally(msgspec.Struct):
    """A tally, as it travels."""

    latencies: str
    seconds: dict[Second, str]
    errors: dict[str, Count]
    examples: dict[str, str]
    late: Count
    early: dict[Second, Count]
    failed: dict[Second, Count]
    counts: dict[str, Count]
    refused: dict[Second, Count] = msgspec.field(default_factory=dict)


class Counted(msgspec.Struct, tag="counted"):
    """Counts since the last report."""

    tally: CountedTally
    in_flight: Count
    cpu: Annotated[float, msgspec.Meta(ge=0, le=1e6)]
    pids: list[int]


class Failed(msgspec.Struct, tag="failed"):
    """It cannot be done. *code* is the exit code that a command would have."""

    code: int
    text: str
    said: list[str]


class Done(msgspec.Struct, tag="done"):
    """The last report: for how many seconds was counted."""

    seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0


Report: TypeAlias = Hello | Met | Counted | Failed | Done
_read: Final[Callable[[bytes], Report]] = msgspec.json.Decoder(Report).decode


def read_report(line: bytes | PeerError) -> Report:
    """The report in a line. Raises `BadReport`, also for a line that is too long."""
    if not isinstance(line, bytes):
        raise BadReport
    try:
        report = _read(line)
    except (msgspec.MsgspecError, RecursionError):
        raise BadReport from None
    match report:
        case Hello():
            report.version = words(report.version)
        case Met():
            report.revision, report.server = words(report.revision), words(report.server)
        case Failed():
            report.text, report.said = words(report.text), [words(one) for one in report.said[:MAX_SAID]]
    return report


def words(text: str) -> str:
    """A text of a generator, for a screen."""
    return clean(" ".join(text[:MAX_WORDS].split()))


def tally_of(written: CountedTally, last: int) -> Tally:
    """What was counted, in the seconds up to *last*. Raises `BadReport`."""
    found = Tally(latencies=_histogram(written.latencies, DIGITS), late=written.late)
    if len(written.errors) > MAX_KINDS + 1:
        raise BadReport
    for second, counted in _seconds(written.seconds, last):
        found.seconds[second] = _histogram(counted, DIGITS_OF_A_SECOND)
    found.failed.update(_seconds(written.failed, last))
    found.early.update(dict(_seconds(written.early, last)))
    found.refused.update(dict(_seconds(written.refused, last)))
    for kind, count in written.errors.items():
        name = words(kind)[:MAX_KIND]
        found.errors[name] += count
        if kind in written.examples:
            found.examples.setdefault(name, words(written.examples[kind])[:MAX_EXAMPLE])
    found.counts = Counter({name: count for name, count in written.counts.items() if name in FIGURES})
    return found


def _seconds(written: Mapping[str, Any], last: int) -> Iterator[tuple[int, Any]]:
    if len(written) > last + 1:
        raise BadReport
    for second, counted in written.items():
        if int(second) > last:
            raise BadReport
        yield int(second), counted


_OUTER: Final = struct.Struct(">II")
"""Cookie and length of what is compressed."""

_INNER: Final = struct.Struct(">IIIIQQd")
"""Cookie, length, offset, digits, lowest, highest, ratio: as HdrHistogram's format V2 has them."""

_NUMBER: Final = re.compile(rb"[\x80-\xff]{0,6}[\x00-\x7f]")
"""A count of up to 48 bits, in pieces of seven."""


def _histogram(text: str, digits: int) -> Any:
    found = histogram(digits)
    try:
        data = base64.b64decode(text, validate=True)
        unpacking = zlib.decompressobj()
        inner = unpacking.decompress(data[_OUTER.size :], MAX_HISTOGRAM)
        if not unpacking.eof:
            raise BadReport
        _, length, _, given, lowest, highest, _ = _INNER.unpack_from(inner)
    except (ValueError, struct.error, zlib.error):
        raise BadReport from None
    if (given, lowest, highest) != (digits, 1, LONGEST) or length != len(inner) - _INNER.size:
        raise BadReport
    _fill(found, _numbers(inner[_INNER.size :]))
    return found


def _numbers(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        number = _NUMBER.match(data, at)
        if number is None:
            raise BadReport
        value = 0
        for shift, byte in enumerate(number[0]):
            value |= (byte & 0x7F) << 7 * shift
        yield (value >> 1) ^ -(value & 1)
        at = number.end()


def _fill(counted: Any, numbers: Iterable[int]) -> None:
    """Counts, and of zeros how many there are, as a negative number."""
    at, total, first, last = 0, 0, -1, -1
    for number in numbers:
        if number < 0:
            at -= number
            continue
        if at >= counted.counts_len or number > MAX_COUNT:
            raise BadReport
        if number:
            counted.counts[at] = number
            first, last, total = at if first < 0 else first, at, total + number
        at += 1
    if total:
        counted.total_count = total
        counted.min_value = counted.get_value_from_index(first)
        counted.max_value = counted.get_highest_equivalent_value(counted.get_value_from_index(last))
