"""Definitions as clients see them: whose they are, what is odd about them, and what an older client gets."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from callboard.codecs.bridge.definitions import (
    PROMPTS,
    STALE,
    TOOLS,
    digest_of,
    for_revision,
    front_definition,
)
from callboard.codecs.bridge.results import BACKEND
from callboard.codecs.members import Members
from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R1, R2, R3, R4, R5


def definition(**said: Any) -> Members:
    whole = {"name": "now", "inputSchema": {"type": "object"}, **said}
    return {key: Raw(msgspec.json.encode(value)) for key, value in whole.items()}


def shown(*, is_stale: bool = False, **said: Any) -> dict[str, Any]:
    found = front_definition(definition(**said), TOOLS, "w__now", "weather", is_stale=is_stale)
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(found))
    return decoded


def written(revision: Revision, **said: Any) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(for_revision(revision, TOOLS, definition(**said)))
    return decoded


def test_a_definition_says_whose_it_is_and_keeps_what_nobody_knows() -> None:
    found = shown(title="Now", icons=[], xCustom=1, _meta={"example.com/own": 1, BACKEND: "forged"})
    assert (found["name"], found["title"], found["xCustom"]) == ("w__now", "Now", 1)
    assert found["_meta"] == {"example.com/own": 1, BACKEND: "weather"}
    assert shown(is_stale=True, _meta=7)["_meta"] == {BACKEND: "weather", STALE: True}


@pytest.mark.parametrize("revision", [R1, R2])
def test_the_oldest_clients_see_no_schema_of_results(revision: Revision) -> None:
    assert "outputSchema" not in written(revision, outputSchema={"type": "object"})


@pytest.mark.parametrize("revision", [R3, R4])
def test_a_schema_of_results_that_is_no_object_is_for_modern_clients_alone(revision: Revision) -> None:
    assert "outputSchema" in written(revision, outputSchema={"type": "object"})
    schemas: list[Any] = [{"type": "array"}, {"anyOf": []}, {}, 7]
    for schema in schemas:
        assert "outputSchema" not in written(revision, outputSchema=schema)
        assert "outputSchema" in written(R5, outputSchema=schema)


def test_tasks_of_the_experiment_are_not_for_modern_clients() -> None:
    assert "execution" not in written(R5, execution={"taskSupport": "optional"})
    assert "execution" in written(R4, execution={"taskSupport": "optional"})


def test_only_tools_are_looked_at() -> None:
    prompt = definition(outputSchema=7, execution={})
    assert msgspec.json.decode(for_revision(R1, PROMPTS, prompt))["outputSchema"] == 7


def test_a_digest_goes_by_meaning() -> None:
    one = {"name": Raw(b'"now"'), "inputSchema": Raw(b'{"type":"object","a":1.0}')}
    two = {"inputSchema": Raw(b'{ "a" : 1, "type" : "\\u006fbject" }'), "name": Raw(b'"now"')}
    assert digest_of(one) == digest_of(two)
    for member in ("name", "title", "description", "inputSchema", "outputSchema", "annotations", "_meta"):
        assert digest_of(definition(**{member: {"x": 2}})) != digest_of(definition()), member
    assert digest_of(definition(_meta={})) == digest_of(definition(_meta={BACKEND: "inner", STALE: True}))


@pytest.mark.finding("security-4")
@pytest.mark.parametrize("member", ["icons", "execution", "xUnknown"])
def test_a_digest_covers_every_member(member: str) -> None:
    assert digest_of(definition(**{member: [1]})) != digest_of(definition())
    assert digest_of(definition(**{member: [1]})) != digest_of(definition(**{member: [2]}))
