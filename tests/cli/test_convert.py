"""`callboard convert` and `callboard record`, as people use them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rdflib import Graph
from rdflib.compare import isomorphic

from callboard.cli.convert import convert
from callboard.codecs.annotated_schema import annotated_schema
from callboard.codecs.linked_data import CONTEXT, CONTEXT_URL
from callboard.codecs.linked_session import session_to_jsonld
from callboard.codecs.recording import RecordedMessage
from callboard.errors import CannotServe
from tests.process import CALLBOARD
from tests.shared import PROTOCOL, needs_protocol

OGC = PROTOCOL / "seed-examples" / "ogc"
LISTED: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "result": {"tools": [{"name": "b", "inputSchema": {"type": "object"}}, {"name": 4}], "nextCursor": None},
}
ASKED = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
SESSION = (
    json.dumps({"time": "2026-07-28T12:00:00.125Z", "server": "s", "direction": "to_server", "message": ASKED})
    + "\n"
    + json.dumps({"time": "2026-07-28T12:00:01.000Z", "server": "s", "direction": "from_server", "message": LISTED})
    + "\n"
)


def converted(capsys: pytest.CaptureFixture[str], *arguments: Any, **flags: Any) -> str:
    assert convert(*arguments, **flags) == 0
    return capsys.readouterr().out


@needs_protocol
@pytest.mark.parametrize("seed", sorted(OGC.glob("*.json")), ids=lambda path: path.stem)
def test_a_message_of_the_ogc_becomes_the_given_turtle_and_json_ld_and_comes_back(
    seed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    turtle = converted(capsys, str(seed))
    assert isomorphic(
        Graph().parse(data=turtle, format="turtle"), Graph().parse(seed.with_suffix(".ttl"), format="turtle")
    )
    document = converted(capsys, str(seed), to="jsonld")
    assert json.loads(document) == json.loads(seed.with_suffix(".jsonld").read_text())
    for suffix in (".ttl", ".jsonld"):
        assert json.loads(converted(capsys, str(seed.with_suffix(suffix)))) == json.loads(seed.read_text())
    assert convert(str(seed), check=True) == 0


@pytest.mark.parametrize("form", ["turtle", "jsonld", "json"])
def test_a_recording_comes_back_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str], form: Any) -> None:
    there, back = tmp_path / "session.jsonl", tmp_path / "converted"
    there.write_text(SESSION)
    back.write_text(converted(capsys, str(there), to=form))
    found = converted(capsys, str(back), from_=form, to="json")
    assert [json.loads(line) for line in found.splitlines()] == [json.loads(line) for line in SESSION.splitlines()]


def test_what_does_not_fit_is_printed_with_its_line_and_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "session.jsonl"
    file.write_text(SESSION)
    assert convert(str(file), check=True) == 1
    lines = capsys.readouterr().out.splitlines()
    assert f'{file}:2: result.tools[1].name: 4 is not of type "string"' in lines
    assert all(line.startswith(f"{file}:2: result.") for line in lines)
    file.write_text(json.dumps(LISTED, indent=2))
    assert convert(str(file), check=True) == 1
    assert capsys.readouterr().out.startswith(f"{file}: result.")


def test_the_context_the_schema_and_the_shapes_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(converted(capsys, context=True)) == {"@context": CONTEXT}
    assert json.loads(converted(capsys, schema=True)) == annotated_schema()
    assert "targetClass mcp:Tool" in converted(capsys, shapes=True)


def document(members: str) -> str:
    return f'{{"@context": "{CONTEXT_URL}", {members}}}'


def session(message: str) -> str:
    whole: dict[str, Any] = session_to_jsonld([(1, RecordedMessage({"jsonrpc": "2.0"}))])
    whole["@graph"][0]["rec:message"] = json.loads(message)
    return json.dumps(whole)


@pytest.mark.parametrize(
    ("text", "flags", "why"),
    [
        ("{", {}, "line 1: expected a JSON object"),
        ("[1]", {"from_": "jsonld"}, "object"),
        ("nonsense", {"from_": "turtle"}, "not Turtle"),
        ("nonsense", {"from_": "jsonld"}, "not JSON"),
        ('{"jsonrpc": "2.0", "a b": 1}', {}, "predicate"),
        ("{}", {"from_": "jsonld"}, "unknown context"),
        ('{"@context": "http://127.0.0.1:9/context.jsonld", "jsonrpc": "2.0"}', {"from_": "jsonld"}, "unknown context"),
        (document('"method": NaN'), {"from_": "jsonld"}, "not JSON"),
        (document('"method": "\\ud800"'), {"from_": "jsonld"}, "not JSON"),
        (document('"a": ' + "[" * 5_000 + "]" * 5_000), {"from_": "jsonld"}, "not JSON|deeper"),
        (document('"a": {"@type": "@json", "@value": ' + "[" * 80 + "]" * 80 + "}"), {"from_": "jsonld"}, "deeper"),
        (session('{"@type": "@json", "@value": "text"}'), {"from_": "jsonld", "to": "turtle"}, "is an object"),
        ("[] <urn:x> " + "[ <urn:x> " * 3_000 + "1" + "]" * 3_000 + " .", {"from_": "turtle"}, "not Turtle"),
    ],
)
def test_what_cannot_be_read_is_an_error_in_one_line(
    tmp_path: Path, text: str, flags: dict[str, Any], why: str
) -> None:
    file = tmp_path / "input"
    file.write_text(text)
    with pytest.raises(CannotServe, match=why):
        convert(str(file), **flags)


@pytest.mark.parametrize("form", ["turtle", "jsonld"])
def test_an_empty_recording_and_a_time_that_is_none_come_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: Any
) -> None:
    for text in ("", '{"time":"soon","server":"a","message":{"jsonrpc":"2.0","method":"ping"}}\n'):
        first, second = tmp_path / "first.jsonl", tmp_path / "second"
        first.write_text(text)
        assert convert(str(first), to=form) == 0
        second.write_text(capsys.readouterr().out)
        assert convert(str(second), from_=form) == 0
        assert capsys.readouterr() == (text, "")


def test_a_missing_file_and_a_mistyped_flag_are_errors(tmp_path: Path) -> None:
    with pytest.raises(CannotServe, match="No such file"):
        convert(str(tmp_path / "none"))
    with pytest.raises(CannotServe, match="unknown option --chek"):
        convert("--chek")


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "rdflib", None)
    file = tmp_path / "message.json"
    file.write_text(json.dumps(ASKED))
    for flags in ({}, {"shapes": True}, {"from_": "turtle"}):
        with pytest.raises(CannotServe, match=r"pip install 'callboard\[rdf\]'"):
            convert(str(file), **flags)
    assert convert(str(file), to="jsonld") == 0


def test_a_server_is_recorded_where_a_host_starts_it_and_the_recording_goes_through_a_pipe(tmp_path: Path) -> None:
    file = tmp_path / "weather.jsonl"
    record = [*CALLBOARD, "record", "-o", str(file), "--name", "weather", "examples/weather.py:server"]
    listed = subprocess.run([*CALLBOARD, "list", "--json", "--", *record], capture_output=True, timeout=60, check=True)
    assert json.loads(listed.stdout)["tools"][0]["name"] == "forecast"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert {line["server"] for line in lines} == {"weather"}
    assert {line["direction"] for line in lines} == {"to_server", "from_server"}
    turtle = subprocess.run(
        [*CALLBOARD, "convert", "-"], input=file.read_bytes(), capture_output=True, timeout=60, check=True
    )
    graph = Graph().parse(data=turtle.stdout.decode(), format="turtle")
    names = graph.query(
        "SELECT DISTINCT ?n {?t a <http://modelcontextprotocol.io/ontology#Tool>; "
        "<http://modelcontextprotocol.io/ontology#name> ?n}"
    )
    assert [str(row[0]) for row in names if not isinstance(row, bool)] == ["forecast"]
