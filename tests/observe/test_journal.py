"""The journal: every request counted once, in bounds, whatever clients call their tools."""

from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.server.observer import CANCELLED
from callboard.actors.server.spans import FrontSpan
from callboard.actors.terms import Terms
from callboard.codecs.caller import caller_named
from callboard.codecs.revisions import LATEST, ClientCapabilities
from callboard.observe import journal as journal_module
from callboard.observe.durations import BOUNDS, Durations
from callboard.observe.journal import KEPT, MOST_NAMES, OTHER, UNKNOWN, Journal

TERMS = Terms(revision=LATEST, capabilities=ClientCapabilities(), caller=caller_named("ada"))


@attrs.define
class Source:
    transport: str = "http"
    used_at: float = 0.0


@attrs.define
class Ended:
    method: str = "tools/call"
    target: str | None = "echo"
    terms: Terms = TERMS
    began: float = 0.0
    behind: float = 0.0
    trace: FrontSpan | None = None
    admission: Source = attrs.field(factory=Source)
    request_id: int | str = 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(journal_module, "perf_counter", lambda: now[0])
    return now


def known(_: str, name: str) -> str | None:
    return None if name.startswith("no-") else ""


def test_requests_are_counted_by_method_name_and_error(clock: list[float]) -> None:
    journal = Journal(known)
    for took, error in ((0.003, ""), (0.004, ""), (0.5, "tool_error"), (1.5, CANCELLED)):
        request = Ended(began=clock[0] - took)
        journal.over(request, error)
        assert request.admission.used_at == clock[0]
    journal.over(Ended("tools/list", None, began=clock[0] - 0.001))
    assert (journal.total().count, journal.errors()) == (5, 1)
    ((method, name, took_, failed),) = journal.by_name()
    assert (method, name, took_.count, failed) == ("tools/call", "echo", 4, 2)
    assert [one.error for one in journal.failed] == ["tool_error", CANCELLED]
    assert [round(one.seconds, 3) for one in journal.slowest] == [1.5, 0.5, 0.004, 0.003, 0.001]


def test_names_that_clients_think_of_take_no_room(clock: list[float]) -> None:
    journal = Journal(known)
    for number in range(5_000):
        journal.over(Ended(target=f"no-{number}", began=clock[0]), "-32602")
    assert {name for _, name, *_ in journal.series} == {UNKNOWN}
    assert len(journal.series) == len(journal._quick) + 1 == 1  # what it remembers of them
    for number in range(MOST_NAMES + 100):
        journal.over(Ended(target=f"tool-{number}", began=clock[0]))
    assert len(journal.series) == MOST_NAMES + 2
    assert next(some.count for (_, name, *_), some in journal.series.items() if name == OTHER) == 100


def test_methods_that_clients_think_of_take_no_room(clock: list[float]) -> None:
    journal = Journal(known)
    for number in range(5_000):
        journal.over(Ended(f"no/{number}", None, began=clock[0]), "-32601")
    journal.over(Ended("x" * 100_000, None, began=clock[0]), "-32601")
    assert {method for method, *_ in journal.series} == {UNKNOWN}
    assert not journal._quick
    assert {one.method for one in (*journal.failed, *journal.slowest)} == {UNKNOWN}


def test_only_the_slowest_are_remembered(clock: list[float]) -> None:
    journal = Journal(known)
    for number in range(1_000):
        journal.over(Ended(began=clock[0] - number / 1000))
    slowest = [round(one.seconds, 3) for one in journal.slowest]
    assert slowest == [number / 1000 for number in range(999, 999 - KEPT, -1)]


def test_overhead_is_what_the_backend_did_not_take(clock: list[float]) -> None:
    journal = Journal(lambda *_: "back")
    journal.backend_over("back", "tools/call", "echo", "", 0.01)
    journal.over(Ended(began=clock[0] - 0.0103, behind=0.01))
    assert journal.overhead.count == 1
    assert journal.overhead.quantile(1.0) == pytest.approx(0.0003)
    assert journal.of_backend("back").count == 1


@given(st.lists(st.floats(0, 400), min_size=1, max_size=200), st.floats(0.01, 1))
def test_a_quantile_lies_between_the_bounds_of_the_true_one(seconds: Sequence[float], share: float) -> None:
    durations = Durations()
    for one in seconds:
        durations.add(one)
    found = durations.quantile(share)
    true = sorted(seconds)[max(0, -(-int(share * len(seconds) * 1e9) // 10**9) - 1)]
    low = max((bound for bound in BOUNDS if bound < true), default=0.0)
    high = min((bound for bound in BOUNDS if bound >= true), default=BOUNDS[-1])
    assert found is not None
    assert low <= found <= high or found == BOUNDS[-1]
    assert found <= max(seconds) or not any(seconds)


def test_the_p99_of_one_call_is_what_it_took(clock: list[float]) -> None:
    journal = Journal(lambda *_: "back")
    before = journal.total()
    journal.backend_over("back", "tools/call", "echo", "", 3.01)
    journal.over(Ended(began=clock[0] - 3.01))
    for took in (journal.of_backend("back"), journal.total(), Durations.sum([before, journal.total()])):
        assert took.quantile(0.99) == pytest.approx(3.01)
    assert journal.total().since(Durations().counts).quantile(0.5) == pytest.approx(3.01, rel=0.2)
