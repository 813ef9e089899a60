"""Every report says when, where and by what command it was made, and no secret."""

import csv
import io
import json
from datetime import UTC, datetime
from pathlib import Path

import attrs
import pytest

from callboard._version import __version__
from callboard.bench.page import page
from callboard.bench.provenance import MAX_COMMAND, Provenance, command_line
from callboard.bench.result import BenchResult
from callboard.bench.tally import MAX_EXAMPLE, Tally
from callboard.cli.bench_view import Moment, live_rows, rows
from tests.at_terminal import piped
from tests.bench.figures import result

HERE = Provenance.here("callboard bench URL", "v2", lambda: datetime(2026, 11, 18, 16, 5, 7, tzinfo=UTC))
URL = "http://ada:pw@127.0.0.1:1/mcp?key=s3cret"


@pytest.mark.finding("newcomer-B3")
def test_a_run_says_when_where_and_with_what_it_was_made(tmp_path: Path) -> None:
    run = attrs.evolve(result(0.1, 0.2), provenance=HERE)
    shown = dict(rows(run))
    assert (shown["date"], shown["label"], shown["command"]) == ("2026-11-18T16:05:07Z", "v2", "callboard bench URL")
    assert shown["versions"].startswith(f"callboard {__version__}, Python 3.")
    assert "core" in shown["machine"]
    assert run.as_json()["run"]["cores"] >= 1
    file = tmp_path / "a.json"
    file.write_text(json.dumps(run.as_json()))
    assert BenchResult.read(file).provenance == HERE
    drawn = page("t", {"": run}, rows(run))
    assert "2026-11-18T16:05:07Z" in drawn
    assert HERE.machine.split(",")[0] in drawn


def test_a_table_for_spreadsheets_says_it_in_each_row() -> None:
    run = attrs.evolve(result(0.1, 0.2), provenance=attrs.evolve(HERE, label='=1+"1",2'))
    read = list(csv.DictReader(io.StringIO(run.as_csv())))
    assert [(row["second"], row["started"], row["label"]) for row in read] == [
        ("0", "2026-11-18T16:05:07Z", '\'=1+"1",2'),
        ("1", "2026-11-18T16:05:07Z", '\'=1+"1",2'),
    ]


def test_a_file_of_an_earlier_version_is_read_without_it(tmp_path: Path) -> None:
    file, written = tmp_path / "a.json", result(0.1).as_json()
    odd_ones: list[object] = [None, [], {"started": 5, "cores": "many", "else": 1}]
    for odd in odd_ones:
        file.write_text(json.dumps({**written, "run": odd}))
        assert BenchResult.read(file).provenance == Provenance()
    del written["run"]
    file.write_text(json.dumps(written))
    assert BenchResult.read(file).provenance.told() == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["bench", "app.py:server", "--rate", "50"], "callboard bench app.py:server --rate 50"),
        (["bench", URL], "callboard bench http://***@127.0.0.1:1/mcp?key=***"),
        (["bench", "URL", "--header", "X-Any: s3cret"], "callboard bench URL --header ***"),
        (["bench", "URL", "--header=X-Any: s3cret"], "callboard bench URL --header=***"),
        (["bench", "URL", "--args", '{"text": "hi", "in": [{"password": "s3cret"}]}'], '"hi"'),
        (
            ["bench", "--", "npx", "x", "--api-key", "s3cret", "API_TOKEN=s3cret"],
            "-- npx x --api-key *** API_TOKEN=***",
        ),
        (["bench", "--", "npx", "x", "-H", "Authorization: Bearer s3cret"], "npx x -H"),
        (["bench", "--", "curl", "Bearer s3cret"], "Bearer ***"),
        (["bench", "u", "--generator", "ssh s3cret"], "bench u --generator ***"),
        (["bench", "u", "--generator=ssh s3cret", "--list"], "--generator=*** --list"),
        (["list", "URL"], ""),
        ([], ""),
    ],
)
def test_a_command_line_is_told_without_its_secrets(words: list[str], told: str) -> None:
    found = command_line(words)
    assert told in found
    assert "s3cret" not in found
    assert "pw" not in found


def test_a_command_line_of_any_length_and_text_is_one_short_line() -> None:
    found = command_line(["bench", "x\x1b[2Jy\n" * 10_000])
    assert len(found) <= MAX_COMMAND + len(" ...")
    assert found.isprintable()


def test_two_runs_on_different_machines_are_compared_with_a_note(tmp_path: Path) -> None:
    names = []
    for name, cpu in (("one", "a"), ("other", "b")):
        run = attrs.evolve(result(*[0.01] * 100), provenance=attrs.evolve(HERE, cpu=cpu, label=name))
        names.append(tmp_path / f"{name}.json")
        names[-1].write_text(json.dumps(run.as_json()))
    done = piped("bench", "compare", *map(str, names))
    table = {name: values for name, *values in (line.split("\t") for line in done.stdout.splitlines())}
    assert table["label"][:2] == ["one", "other"]
    assert table["date"][:2] == ["2026-11-18T16:05:07Z"] * 2
    assert "callboard: the runs were made on different machines\n" in done.stderr
    assert "versions" not in done.stderr


# Errors, with an example each.


@pytest.mark.finding("newcomer-B4")
def test_errors_have_an_example_of_their_text() -> None:
    tally = Tally()
    tally.broke("ServerRefused -32603", 0.1, text="no\x1b[2J disk\nspace " + "x" * 1000)
    tally.broke("ServerRefused -32603", 0.2, text="another")
    tally.broke("no response before the end", 0.3)
    run = attrs.evolve(result(), tally=tally)
    [text] = tally.examples.values()
    assert text.startswith("no\ufffd[2J disk space xxx")
    assert len(text) <= MAX_EXAMPLE
    assert run.as_json()["error_examples"] == {"ServerRefused -32603": text}
    shown = dict(rows(run))
    assert shown["  ServerRefused -32603"] == f"2, for example: {text}"
    assert shown["  no response before the end"] == "1"
    now = Moment(elapsed=1.0, duration=10.0, rate=0.0, in_flight=1, result=run)
    assert dict(live_rows(now))["  ServerRefused -32603"] == "2", "there is no room for more while it runs"


def test_examples_of_other_processes_are_taken_over_and_kinds_stay_few() -> None:
    one, other = Tally(), Tally()
    one.broke("a", 0.0, text="first")
    other.broke("a", 0.0, text="second")
    for number in range(300):
        other.broke(f"b{number}", 0.0, text="b")
        one.broke(f"c{number}", 0.0, text="c")
    one.add(Tally.of_json(other.as_json()))
    assert one.examples["a"] == "first"
    assert one.error_count == 602
    assert len(one.errors) <= 201
    assert len(one.examples) <= 201


def test_a_server_that_repeats_a_token_does_not_bring_it_into_the_report() -> None:
    tally = Tally()
    tally.broke("HttpRefused 401", 0.0, text="bad token s3cret!")
    tally.hide(["s3cret", ""])
    assert tally.examples == {"HttpRefused 401": "bad token ***!"}
