"""What `status` says of a view: what is up, and if not, why."""

from typing import Any

from callboard.cli.status import MOST_DOWN, lines, summarized
from callboard.cli.top_tables import server_state
from callboard.serve.standing import standing
from tests.cli.top_views import down, nonsense, server, spoilt, view


def told(found: dict[str, Any]) -> str:
    return "\n".join(line.plain for line in lines(summarized(found, "http://127.0.0.1:8001")))


def healthy(**more: Any) -> dict[str, Any]:
    found = view(servers=[server("weather")], **more)
    found["totals"] |= {"servers": 1, "servers_up": 1}
    return found


def is_ok(found: dict[str, Any]) -> bool:
    return bool(summarized(found, "")["ok"])


def test_it_is_fine_only_if_it_is_ready_and_all_servers_and_workers_are_up() -> None:
    assert is_ok(healthy())
    assert not is_ok(view())
    for state in ("not ready", "draining", None):
        found = healthy()
        found["server"]["state"] = state
        assert not is_ok(found)
    workers = [("serving", True, True), ("serving", False, False), ("restarting", False, False), ("hangs", True, False)]
    for state, answers, is_fine in workers:
        found = healthy()
        found["server"]["workers"] = [{"name": "worker-1", "state": state, "answers": answers, "pid": 7}]
        assert is_ok(found) == is_fine
        assert ("worker-1" in told(found)) != is_fine
    hidden = healthy()
    hidden["totals"]["servers"] = 500  # more than a table has rows
    assert not is_ok(hidden)


def test_why_a_server_is_not_up_is_said_with_its_next_try_and_restarts() -> None:
    said = told(view())
    assert "callboard 1.2.3 is ready, up 1h 1m, at http://127.0.0.1:8001" in said
    assert "servers: 1 of 2 up" in said
    assert "  tickets  down  Connection refused (next try in 12s), 3 restarts" in said
    assert "weather" not in said


def test_restarts_of_servers_that_are_up_are_said() -> None:
    found = view(servers=[server("weather", restarts=3), server("notes"), down("tickets", "no")])
    assert "  restarts: weather 3\n" in told(found)
    assert summarized(found, "")["restarts"] == {"weather": 3, "tickets": 3}
    assert "restarts:" not in told(view())


def test_a_server_that_sleeps_is_fine_and_named() -> None:
    found = view(servers=[server("weather"), server("notes", state="asleep"), server("books", state="waking")])
    found["totals"] |= {"servers": 3, "servers_up": 3}
    assert is_ok(found)
    assert "servers: 3 of 3 up, asleep: notes" in told(found)
    assert [server_state(row) for row in found["servers"]] == ["up", "asleep", "waking"]
    assert standing(found).splitlines() == ["3 of 3 servers are up", "- notes: asleep"]


def test_what_a_server_said_before_it_ended_is_told() -> None:
    row = down("tickets", "the server exited with 1")
    row["said"] = ["starting", "FATAL: missing API_KEY\x1b[2J", "bye"]
    found = view(servers=[row])
    assert "  tickets  down  the server exited with 1: FATAL: missing API_KEY" in told(found)
    assert "\x1b" not in told(found)
    assert summarized(found, "")["down"][0]["said"][0] == "starting"
    row["said"] = "nonsense"
    assert "the server exited with 1 (next try in 12s)" in told(found)


def test_it_fits_one_screen_however_many_servers_are_down() -> None:
    found = view(servers=[down(f"server-{number}", "no") for number in range(200)])
    said = told(found).splitlines()
    assert len(said) < MOST_DOWN + 10
    assert f"  ... and {200 - MOST_DOWN} more" in said


def test_withheld_tools_and_nodes_are_named() -> None:
    found = view(servers=[server("weather", withheld=2)])
    found["server"]["nodes"] = [{"name": "north", "is_here": True}, {"name": "south", "is_leaving": True}]
    said = told(found)
    assert "weather: 2 definitions wait for approval" in said
    assert "nodes: north, south (leaving)" in said


def test_a_node_whose_workers_are_all_starting_says_so() -> None:
    found = view(totals={}, latest={}, servers=[])
    assert told(found).endswith("no worker answers yet")


def test_nothing_that_a_view_says_can_command_a_terminal() -> None:
    for found in (spoilt(view()), nonsense(view())):
        assert told(found).replace("\n", "").isprintable()
        assert not is_ok(found)
