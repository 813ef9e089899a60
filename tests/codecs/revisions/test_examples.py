"""The official examples of 2026-07-28, and the messages printed in the seeds, decode and encode to the same JSON."""

import json
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from callboard.codecs.revisions.convert import read_form, write_form
from callboard.codecs.revisions.elicitation import RequestedSchema
from callboard.codecs.revisions.error_codes import ERROR_CODES, read_error
from callboard.codecs.revisions.revision import R5, Revision
from callboard.errors import InvalidParams, MethodNotFound
from tests.codecs.revisions.official import rewritten
from tests.shared import PROTOCOL, load, needs_protocol, paths

SEEDS: Final = {
    "2024-11-05": Revision.V2024_11_05,
    "2025-06-18": Revision.V2025_06_18,
    "2026-07-28-snapshot": Revision.V2026_07_28,
}
EXAMPLES = paths("examples", "2026-07-28")


def seed_entries() -> list[tuple[str, str]]:
    if not PROTOCOL.is_dir():
        return []
    return [(folder, name) for folder in SEEDS for name in load("seed-examples", folder, "index.json")]


@needs_protocol
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_official_examples_survive_a_round_trip(path: Path) -> None:
    value = json.loads(path.read_text())
    assert rewritten(R5, path.parent.name, value) == value


@needs_protocol
def test_all_examples_are_there() -> None:
    assert len(EXAMPLES) == 129
    assert len(seed_entries()) == 23 + 62 + 124


@needs_protocol
@pytest.mark.parametrize(("folder", "name"), seed_entries())
def test_printed_messages_survive_a_round_trip_and_invalid_ones_are_refused(folder: str, name: str) -> None:
    entry = load("seed-examples", folder, "index.json")[name]
    value = load("seed-examples", folder, name)
    if entry["valid"]:
        assert rewritten_fragment(SEEDS[folder], entry, value) == value
    else:
        with pytest.raises((InvalidParams, MethodNotFound)):
            rewritten_fragment(SEEDS[folder], entry, value)


def rewritten_fragment(revision: Revision, entry: dict[str, Any], value: Any) -> Any:
    name = entry["type"]
    match name:
        case "Root[]":
            return [rewritten(revision, "Root", root) for root in value]
        case "requestedSchema":
            return write_form(revision, RequestedSchema, read_form(revision, RequestedSchema, value))
        case "JSONRPCRequest":
            return value  # an envelope around a method of no revision
    if entry.get("kind") == "result":
        return value | {"result": rewritten(revision, name, value["result"])}
    return rewritten(revision, name, value)


@needs_protocol
@pytest.mark.parametrize(
    ("folder", "name"),
    [
        (folder, name)
        for folder, name in seed_entries()
        if not load("seed-examples", folder, "index.json")[name].get("printedAsJson", True)
    ],
)
def test_what_was_printed_wrongly_is_refused_as_printed(folder: str, name: str) -> None:
    entry = load("seed-examples", folder, "index.json")[name]
    printed = printed_form(entry)
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(printed)


def printed_form(entry: dict[str, Any]) -> str:
    """The text of an example in the seed: from its first line to the brace that closes it."""
    text = (PROTOCOL.parent / "seeds" / entry["seed"]).read_text().splitlines()
    lines: list[str] = []
    for line in text[entry["line"] - 1 :]:
        lines.append(line)
        joined = "\n".join(lines)
        if joined.count("{") and joined.count("{") == joined.count("}"):
            return joined[joined.index("{") :]
    raise AssertionError("the example has no end")


@pytest.mark.parametrize("code", [-32001, -32003, -32004])
def test_the_numbers_of_the_snapshot_mean_nothing(code: int) -> None:
    data = {"supported": ["2026-07-28"], "requested": "x", "requiredCapabilities": {}}
    error = read_error(R5, {"code": code, "message": "m", "data": data})
    assert code not in ERROR_CODES
    assert error.data == data
