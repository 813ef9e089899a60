"""Metrics in bounds: whatever clients and backends think of, series stay few; and reading them stays cheap."""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence

import attrs
import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from callboard import Server, connect
from callboard.actors.server.observer import CANCELLED
from callboard.broker import Broker
from callboard.codecs.revisions import METHODS, Revision
from callboard.errors import CODES, ServerRefused
from callboard.observe import metrics as metrics_module
from callboard.observe.journal import ERROR_TYPES, LONGEST_NAME, MOST_NAMES, MOST_SERIES, OTHER, UNKNOWN, Journal
from callboard.observe.metrics import Family, Sample, merged, render
from callboard.observe.view import ServerView
from tests.broker.back import Back
from tests.broker.front import backend, ways_in
from tests.observe.test_journal import TERMS, Ended, known

HOSTILE = 10_000
TRANSPORTS = ("http", "websocket")


def crowded() -> Journal:
    """A journal with as many series as there can be, and as many of backends."""
    journal = Journal(known)
    errors = ("", "tool_error", "-31002", "-32602", CANCELLED)
    for number, error, transport in itertools.product(range(MOST_NAMES), errors, TRANSPORTS):
        request = Ended(target=f"tool-{number}", began=time.perf_counter())
        request.admission.transport = transport
        journal.over(request, error)
    for server, number, error in itertools.product(range(50), range(10), ("", "tool_error", "-31001", "-31002")):
        journal.backend_over(f"back-{server}", "tools/call", f"tool-{number}", error, 0.01)
    return journal


def test_codes_that_a_backend_thinks_of_are_one_series() -> None:
    journal = Journal(known)
    for code in range(HOSTILE):
        journal.over(Ended(), str(code))
        journal.backend_over("back", "tools/call", "echo", str(code), 0.1)
    for code in CODES:
        journal.over(Ended(), str(code))
    assert {error for *_, error in journal.series} == {OTHER, *map(str, CODES)}
    assert [error for *_, error in journal.behind["back"].series] == [OTHER]
    assert journal.of_backend("back").count == journal.errors_of_backend("back") == HOSTILE
    assert journal.total().count == journal.errors() == HOSTILE + len(CODES)
    assert {one.error for one in journal.failed} <= ERROR_TYPES | {OTHER}


def test_every_combination_of_labels_is_bounded_and_every_request_counted() -> None:
    journal = Journal(known)
    feed = itertools.islice(
        itertools.product(Revision, TRANSPORTS, sorted(METHODS), ("a", "no-such"), sorted(ERROR_TYPES)), HOSTILE
    )
    count = 0
    for revision, transport, method, name, error in feed:
        request = Ended(method, name, attrs.evolve(TERMS, revision=revision))
        request.admission.transport = transport
        journal.over(request, error)
        journal.backend_over(f"back-{count}", method, name, error, 0.1)
        count += 1
    assert count == HOSTILE
    assert MOST_SERIES < len(journal.series) <= MOST_SERIES + len(ERROR_TYPES) + 1
    assert len(journal.behind) == MOST_NAMES + 1
    assert sum(len(one.series) for one in journal.behind.values()) <= MOST_SERIES + MOST_NAMES * len(ERROR_TYPES)
    assert journal.total().count == sum(one.count for one in journal.series.values()) == HOSTILE
    assert sum(one.whole.count for one in journal.behind.values()) == HOSTILE


def test_names_without_end_are_one_name() -> None:
    journal = Journal(known)
    for number in range(HOSTILE):
        journal.over(Ended(target=f"tool-{number}"))
        journal.over(Ended(target=f"no-{number}"))
        journal.over(Ended(f"made/up-{number}", f"tool-{number}"))
        journal.backend_over("back", "tools/call", f"tool-{number}", "", 0.1)
    journal.over(Ended(target="x" * (LONGEST_NAME + 1)))
    names = {name for _, name, *_ in journal.series}
    assert len(names) == MOST_NAMES + 3
    assert {UNKNOWN, OTHER, ""} < names
    assert len(journal._quick) <= 2 * MOST_SERIES
    assert len(journal.behind["back"].series) == MOST_NAMES + 1


def test_nothing_of_a_name_that_there_is_not_is_kept() -> None:
    """It may be as long as a message."""
    journal = Journal(known)
    for _ in range(10):
        journal.over(Ended("x" * 100_000, "no-" + "y" * 100_000), "-32601")
    assert len(repr(journal)) < 20_000


async def test_a_backend_that_answers_any_code_adds_one_series() -> None:
    back = Back()
    broker = Broker([backend(back.ways)])
    async with broker.host() as host, trio.open_nursery() as nursery:
        view = ServerView(host, broker)
        view.begin()

        async def answer() -> None:
            for code in itertools.count(1):
                line, request = await back.hear()
                await line.refuse(request, code)

        nursery.start_soon(answer)
        async with connect(ways_in(host)) as client:
            for code in range(1, 50):
                with pytest.raises(ServerRefused) as refused:
                    await client.call("book")
                assert refused.value.error_code == code
        errors = {
            sample.labels["error_type"]
            for family in text_string_to_metric_families(b"".join(await view.metrics()).decode())
            for sample in family.samples
            if "error_type" in sample.labels
        }
        nursery.cancel_scope.cancel()
    assert errors == {OTHER}


def test_totals_cost_the_same_however_many_series_there_are() -> None:
    journal = crowded()
    assert len(journal.series) == sum(len(one.series) for one in journal.behind.values()) == MOST_SERIES
    began = time.thread_time()
    for _ in range(10):
        assert journal.total().count == MOST_SERIES
        assert journal.errors() == 0.6 * MOST_SERIES
        assert len(list(journal.by_name())) == MOST_NAMES
        assert sum(journal.of_backend(f"back-{number}").count for number in range(50)) == MOST_SERIES
    assert (time.thread_time() - began) / 10 < 0.005  # 0.2 ms; it was 20


async def test_metrics_of_many_series_are_made_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step makes or writes more than a hundred samples."""
    server = Server("app")
    steps: list[int] = []

    def written(made: Callable[..., Iterator[str]]) -> object:
        def lines(family: Family, samples: Sequence[Sample], *, is_open: bool) -> Iterator[str]:
            steps.append(len(samples))
            return made(family, samples, is_open=is_open)

        return lines

    monkeypatch.setattr(metrics_module, "_histogram_lines", written(metrics_module._histogram_lines))
    async with server.host() as host, trio.open_nursery() as nursery:
        view = ServerView(host, server)
        view.journal = crowded()
        longest = turns = 0

        async def look() -> None:
            nonlocal longest, turns
            while True:
                before = len(steps)
                await trio.lowlevel.checkpoint()
                turns += 1
                longest = max(longest, len(steps) - before)

        nursery.start_soon(look)
        families = await view.families()
        made = turns
        text = b"".join(await render(families))
        assert b"".join(await render(await merged([families]))) == text
        nursery.cancel_scope.cancel()
    assert made >= 2 * MOST_SERIES / metrics_module.AT_ONCE
    assert max(steps) <= metrics_module.AT_ONCE
    assert longest <= 2
    counts = [line for line in text.splitlines() if line.startswith(b"mcp_server_operation_duration_seconds_count")]
    assert len(counts) == sum(int(line.rpartition(b" ")[2]) for line in counts) == MOST_SERIES
