"""A checker that finds nothing is worth nothing: each kind of fault, planted into a history, is found."""

from typing import Any

import pytest

from benchmarks.nemesis_history import Checker, Verdict


def fact(what: str, at: float, **more: Any) -> dict[str, Any]:
    return {"what": what, "at": at, **more}


GOOD = [
    fact("state", 0, descriptors=10, memory=1000),
    fact("ask", 1, key="k0", backend="b0", tool="echo"),
    fact("ran", 2, key="k0", by="b0"),
    fact("reported", 3, key="k0", value=1),
    fact("end", 4, key="k0", outcome="result", of="k0", by="b0"),
    fact("ask", 5, key="k1", backend="b1", tool="read", is_read=True),
    fact("read", 6, key="k1", by="b1"),
    fact("read", 7, key="k1", by="b1"),
    fact("end", 8, key="k1", outcome="result", of="k1", by="b1"),
    fact("ask", 9, key="k2", backend="b0", tool="hold"),
    fact("ran", 10, key="k2", by="b0"),
    fact("death", 11, backend="b0"),
    fact("end", 11.25, key="k2", outcome=-31001),
    fact("state", 12, descriptors=10, memory=1040),
]


def judge(*more: dict[str, Any], without: tuple[str, float] = ("", 0)) -> Verdict:
    kept = [one for one in GOOD if (one["what"], one["at"]) != without]
    return Checker({"memory": 50}).check([*kept, *more])


def test_a_good_history_has_no_faults() -> None:
    verdict = judge()
    assert not verdict.faults
    assert (verdict.admitted, verdict.outcomes) == (3, {"result": 2, "-31001": 1})
    assert (verdict.deaths, verdict.after_death) == (1, [0.25])


@pytest.mark.parametrize(
    ("planted", "without", "found"),
    [
        ([], ("end", 4), "hung"),
        ([fact("end", 4.5, key="k0", outcome=-31001)], ("", 0), "doubled"),
        ([fact("stray", 4.5, key="k0")], ("", 0), "doubled"),
        ([fact("end", 4.5, key="k0", outcome="result", of="k1", by="b0")], ("end", 4), "misrouted"),
        ([fact("end", 4.5, key="k0", outcome="result", of="k0", by="b1")], ("end", 4), "misrouted"),
        ([fact("ran", 2.5, key="k0", by="b1")], ("ran", 2), "misrouted"),
        ([fact("reported", 3.5, key="k0", value=1)], ("", 0), "reordered"),
        ([fact("reported", 4.5, key="k0", value=2)], ("", 0), "reordered"),
        ([fact("ran", 2.5, key="k0", by="b0")], ("", 0), "repeated"),
        ([fact("read", 7.5, key="k1", by="b1")], ("", 0), "repeated"),
        ([], ("ran", 2), "repeated"),
        ([fact("state", 13, descriptors=11, memory=1000)], ("", 0), "leaked"),
        ([fact("state", 13, descriptors=10, memory=1051)], ("", 0), "leaked"),
    ],
)
def test_each_fault_is_found(planted: list[dict[str, Any]], without: tuple[str, float], found: str) -> None:
    assert list(judge(*planted, without=without).faults) == [found]


def test_deaths_that_nobody_felt_are_told_as_well() -> None:
    line = judge(without=("end", 11.25)).line()
    assert "1 hung" in line
    assert "errors after 1 deaths: none" in line
