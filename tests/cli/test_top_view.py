"""The screen of `top`: whatever a server says, in windows of any size."""

from typing import Any

import pytest
from rich.cells import cell_len

from callboard.cli.top_state import MAX_FILTER, TopState
from callboard.cli.top_tables import TABS, TopTab
from callboard.cli.top_text import duration, fitted, rate, size, span, sparkline, word
from callboard.cli.top_view import as_text, screen
from tests.cli.top_views import CLEAR, nonsense, server, spoilt, view

WINDOWS = [(120, 40), (80, 24), (40, 10), (20, 5), (7, 3), (1, 1), (300, 2)]


def shown(found: dict[str, Any], *keys: str) -> TopState:
    state = TopState("http://127.0.0.1:8001")
    state.hear(found)
    for key in keys:
        state.press(key)
    return state


def text(state: TopState, width: int = 120, height: int = 40) -> str:
    return "\n".join(line.plain for line in screen(state, width, height))


@pytest.mark.parametrize(
    "found", [view(), spoilt(view()), spoilt(view(), "界" * 300), nonsense(view()), {"server": {}}], ids=range(5)
)
@pytest.mark.parametrize("tab", TABS, ids=lambda tab: tab.name)
def test_a_screen_fills_its_window_exactly_and_has_no_control_characters(found: dict[str, Any], tab: TopTab) -> None:
    for keys in ((), ("enter",), (">", "i", "end"), ("?", "pgdn"), ("/", "x")):
        state = shown(found, tab.key, *keys)
        for width, height in WINDOWS:
            lines = screen(state, width, height)
            assert len(lines) == height
            assert {cell_len(line.plain) for line in lines} == {width}
            assert all(line.plain.isprintable() for line in lines)


@pytest.mark.parametrize("found", [spoilt(view()), nonsense(view())], ids=["spoilt", "nonsense"])
def test_text_for_a_pipe_has_lines_and_no_control_characters(found: dict[str, Any]) -> None:
    for only in (None, *TABS):
        assert as_text(found, f"unix:/{CLEAR}", only).replace("\n", "").isprintable()
        narrow = as_text(found, f"unix:/{CLEAR}", only, 80).splitlines()
        assert max(cell_len(line) for line in narrow) <= 80


def test_the_header_says_what_operators_ask_first() -> None:
    first, second, third, *_ = text(shown(view())).splitlines()
    assert first.startswith("callboard 1.2.3  ready  up 1h 1m")
    assert second.startswith("requests 42/s █  errors 0/s ▁  p50 1 ms  p99 8 ms")
    assert third.startswith("clients 12  servers 1/2  in flight 3  parked 1  lag 400 us  memory 80 MiB  cpu 12%")


def test_workers_that_do_not_answer_are_counted() -> None:
    found = view()
    found["server"]["workers"] = [{"name": "worker-1", "answers": True}, {"name": "worker-2", "answers": False}]
    assert "workers 1/2" in text(shown(found))


def test_a_tiny_window_keeps_what_matters_most() -> None:
    told = text(shown(view()), 40, 10)
    for words in ("ready", "requests 42/s", "servers 1/2", "tickets", "down", "Connection refu"):
        assert words in told


def test_servers_that_are_not_up_come_first_with_why_and_the_next_try() -> None:
    rows = text(shown(view())).splitlines()[5:7]
    assert rows[0].startswith("tickets")
    assert "Connection refused (next try in 12s)" in rows[0]
    assert rows[1].startswith("weather")


def test_requests_run_then_are_slow_then_failed() -> None:
    told = text(shown(view(), "r"))
    places = [told.index(words) for words in ("running:", "hang", "running 3/9", "slowest:", "slow_one", "failed:")]
    assert places == sorted(places)
    assert "tool_error" in told


def test_a_column_sorts_numbers_from_the_highest_and_what_is_missing_last() -> None:
    state = shown(view(), "o")
    while (column := state.sort_column()) is None or column.title != "p99":
        state.press(">")
    assert [row["name"] for row in state.rows()] == ["echo", "broken", "unused"]
    state.press("i")
    assert [row["name"] for row in state.rows()] == ["broken", "echo", "unused"]
    for _ in range(3):
        state.press(">")
    assert state.sort_column() is None, "behind the last column is the server's own order again"
    state.press("<")
    column = state.sort_column()
    assert column is not None
    assert column.title == "pin"


def test_a_filter_is_typed_kept_and_cleared() -> None:
    state = shown(view(), "o", "/", *"BROKq", "backspace")
    assert "/BROK" in text(state)
    state.press("enter")
    assert [row["name"] for row in state.rows()] == ["broken"]
    assert "filter 'BROK'" in text(state)
    state.press("esc")
    assert len(state.rows()) == 3
    for _ in range(2 * MAX_FILTER):
        state.press("/")
        state.press("x")
    assert len(state.look.wanted) == MAX_FILTER
    assert "nothing matches" in text(state)


def test_the_selected_row_is_followed_when_others_come_and_go() -> None:
    state = shown(view(servers=[server("b"), server("d")]), "down")
    screen(state, 80, 24)
    state.hear(view(servers=[server("a"), server("b"), server("c"), server("d")]))
    screen(state, 80, 24)
    assert state.rows()[state.look.selected]["name"] == "d"
    state.hear(view(servers=[server("a")]))
    assert "a " in text(state)
    assert state.look.selected == 0


def test_enter_shows_all_about_a_row_and_escape_leaves_it() -> None:
    state = shown(view(), "enter")
    told = text(state)
    assert "next_try" in told
    assert "max_connections" in told
    state.press("esc")
    assert "next_try" not in text(state)


def test_a_paused_screen_stays_as_it_is_and_then_catches_up() -> None:
    state = shown(view(), "p")
    later = view(servers=[server("later")])
    state.hear(later)
    assert "PAUSED" in text(state)
    assert "later" not in text(state)
    state.press("p")
    assert "later" in text(state)


def test_a_lost_connection_is_said_and_the_last_view_stays() -> None:
    state = shown(view())
    state.problem = f"next try in 5 s: gone {CLEAR}"
    told = text(state)
    assert "LOST, reconnecting" in told
    assert "next try in 5 s" in told
    assert "tickets" in told
    state.hear(view())
    assert "LOST" not in text(state)


def test_the_tree_folds_and_says_how_much_it_hides() -> None:
    state = shown(view(), "t")
    told = text(state)
    for words in ("├ backends", "│ └ ... and 9,000 more", "└ sampler", "3/64"):
        assert words in told
    state.press("left")
    assert "sampler" not in text(state)
    assert "[+2] callboard" in text(state)
    state.press("right")
    assert "sampler" in text(state)
    for key in ("/", *"sampl", "enter"):
        state.press(key)
    assert [row["name"] for row in state.rows()] == ["callboard", "sampler"]


def test_a_deep_tree_and_a_wide_one_are_drawn() -> None:
    node: dict[str, Any] = {"name": "leaf"}
    for _ in range(300):
        node = {"name": "x", "children": [node]}
    wide = {"name": "root", "children": [{"name": "y", "children": [{"name": "z"}] * 300}] * 300}
    for tree in (node, wide):
        state = shown(view(tree=tree), "t", "end", "pgup")
        assert len(screen(state, 40, 10)) == 10


def test_every_key_of_the_help_does_something_and_q_ends() -> None:
    for tab in TABS:
        assert shown(view(), tab.key).tab is tab
    assert "pause, and go on" in text(shown(view(), "?"))
    assert "pause, and go on" not in text(shown(view(), "?", "esc"))
    assert not shown(view(), "?", "q").is_over, "it closes the help"
    assert shown(view(), "q").is_over
    assert not shown(view(), "/", "q").is_over, "it is a letter of the filter"


def test_history_comes_first_and_grows_by_a_point_with_each_view() -> None:
    state = shown(view(history={"requests": [0.0, 1.0, 2.0], "odd": "text"}))
    state.hear(view(point={"requests": 4.0}))
    assert list(state.history["requests"]) == [0.0, 1.0, 2.0, 4.0]
    for _ in range(1000):
        state.hear(view())
    assert len(state.history["requests"]) == 600


def test_figures_are_written_as_people_read_them() -> None:
    assert [duration(one) for one in (None, 0, 2e-6, 0.00099999, 0.0123, 0.9999, 2.5, 75, True)] == [
        *("-", "0 s", "2 us", "1 ms", "12.3 ms", "1.00 s", "2.50 s", "1m 15s", "-"),
    ]
    assert [span(one) for one in (0, 59.9, 60, 3661, 90_000, -5, "x")] == [
        "0s",
        "59s",
        "1m 0s",
        "1h 1m",
        "1d 1h",
        "0s",
        "-",
    ]
    assert [size(one) for one in (0, 1023, 2048, 80 * 2**20, 5 * 2**30)] == [
        "0 B",
        "1023 B",
        "2 KiB",
        "80 MiB",
        "5 GiB",
    ]
    assert [rate(one) for one in (None, 0, 0.25, 12.3, 12_345)] == ["-/s", "0/s", "0.2/s", "12/s", "12,345/s"]
    assert sparkline([0, 1, None, 4, 8], 5) == "▁▂ ▅█"
    assert sparkline([float("nan"), "x", 3], 5) == "    █"
    assert sparkline([1, 2], 0) == ""
    assert [fitted("界界", wide) for wide in (5, 4, 3, 2, 1)] == ["界界 ", "界界", "界…", " …", " "]
    assert word(CLEAR).isprintable()
    assert word(None) == "-"
