"""What is believed of a generator: its own reports as they were, and nothing that could harm the reader."""

import base64
import struct
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.bench.reports import (
    MAX_COUNT,
    MAX_HISTOGRAM,
    BadReport,
    Counted,
    CountedTally,
    Failed,
    Met,
    read_report,
    tally_of,
)
from callboard.bench.tally import DIGITS, LONGEST, MAX_EXAMPLE, MAX_KIND, MAX_KINDS, Tally

latencies = st.lists(st.tuples(st.floats(1e-6, 700), st.integers(0, 20)), max_size=50)


def travelled(tally: Tally, last: int = 20) -> Tally:
    counted = msgspec.convert(tally.as_json(), CountedTally)
    line = msgspec.json.encode(Counted(tally=counted, in_flight=1, cpu=0.5, pids=[]))
    report = read_report(line)
    assert isinstance(report, Counted)
    return tally_of(report.tally, last)


@given(latencies, st.dictionaries(st.sampled_from(["a", "b -32000"]), st.integers(1, 5)))
def test_a_tally_arrives_as_it_was_sent(taken: list[tuple[float, int]], errors: dict[str, int]) -> None:
    tally = Tally()
    for latency, second in taken:
        tally.succeeded(latency, second)
    for kind, count in errors.items():
        for _ in range(count):
            tally.broke(kind, 3, text="why")
    tally.late = 2
    tally.early[4] = 3
    tally.counts["sessions_lost"] = 4
    found = travelled(tally)
    assert found.as_json() == tally.as_json()
    assert found.count == tally.count
    assert found.percentiles() == pytest.approx(tally.percentiles(), nan_ok=True)
    assert (found.latencies.max_value, found.latencies.min_value) == pytest.approx(
        (tally.latencies.max_value, tally.latencies.min_value), rel=0.002
    )


def packed(inner: bytes, *, digits: int = DIGITS, highest: int = LONGEST, length: int | None = None) -> str:
    """A histogram of which a sender chooses everything."""
    header = struct.pack(
        ">IIIIQQd", 0x1C849303 | 0x10, len(inner) if length is None else length, 0, digits, 1, highest, 1
    )
    body = zlib.compress(header + inner)
    return base64.b64encode(struct.pack(">II", 0x1C849304 | 0x10, len(body)) + body).decode()


def report(**changed: Any) -> bytes:
    tally: dict[str, Any] = {**Tally().as_json(), **changed}
    return msgspec.json.encode({"type": "counted", "tally": tally, "in_flight": 0, "cpu": 0, "pids": []})


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[" * 100_000,
        b'{"type": "done", "seconds": -1}',
        b'{"type": "counted", "tally": {}, "in_flight": 0, "cpu": 0, "pids": []}',
        report(late=-1),
        report(late=MAX_COUNT + 1),
        report(errors={"a": 10**30}),
        report(errors={"a": "many"}),
        report(errors={str(number): 1 for number in range(MAX_KINDS + 2)}),
        report(failed={"21": 1}),
        report(failed={"-1": 1}),
        report(failed={"9" * 5000: 1}),
        report(failed={f"{number:04}": 1 for number in range(100)}),
        report(seconds={"99999999": Tally().as_json()["latencies"]}),
        report(seconds={"1": Tally().as_json()["latencies"]}),  # with the digits of the whole
        report(latencies=""),
        report(latencies="%%%"),
        report(latencies="\ud7ff"),
        report(latencies=packed(b"", digits=5)),
        report(latencies=packed(b"", highest=1 << 62)),
        report(latencies=packed(b"\x02", length=7)),
        report(latencies=packed(b"\x80" * 9 + b"\x01")),
        report(latencies=packed(b"\x80")),
        report(latencies=packed(b"\xfe\xff\xff\xff\xff\xff\x7f")),  # more than any can count
        report(latencies=packed(b"\xff\xff\xff\xff\xff\x7f\x02")),  # zeros, and then one beyond the end
        report(latencies=packed(b"\x02" * 100_000)),
        report(latencies=packed(bytes(MAX_HISTOGRAM))),  # unpacked, it is larger
    ],
)
def test_what_no_generator_sends_is_refused(line: bytes) -> None:
    def believed() -> Tally:
        found = read_report(line)
        assert isinstance(found, Counted)
        return tally_of(found.tally, 20)

    with pytest.raises(BadReport):
        believed()


def test_texts_are_short_and_printable() -> None:
    hostile = "\x1b[2J\n" + "x" * 10_000
    found = read_report(report(errors={hostile: 1}, examples={hostile: hostile}, counts={"leaks": 1, "nonsense": 5}))
    assert isinstance(found, Counted)
    tally = tally_of(found.tally, 20)
    [(kind, text)] = tally.examples.items()
    assert (len(kind), len(text), tally.errors[kind]) == (MAX_KIND, MAX_EXAMPLE, 1)
    assert kind.isprintable()
    assert text.isprintable()
    assert tally.counts == {"leaks": 1}
    met = read_report(msgspec.json.encode(Met(revision=hostile, server=hostile, is_fast=True, pids=[1])))
    failed = read_report(msgspec.json.encode(Failed(code=99, text=hostile, said=[hostile] * 1000)))
    assert isinstance(met, Met)
    assert isinstance(failed, Failed)
    assert len(failed.said) == 10
    for shown in (met.revision, met.server, failed.text, *failed.said):
        assert shown.isprintable()
        assert len(shown) < 1000
