"""A backend's results as strict clients want them: repaired where nothing is lost, refused where something would be."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from callboard.codecs.bridge.shapes import UnfitResult, fit
from callboard.codecs.revisions import ALL, Revision
from callboard.codecs.revisions.revision import R1, R4

WORDS = {"type": "text", "text": "words"}
NOTE = {"uri": "notes://one", "text": "one"}
GOOD: list[tuple[str, dict[str, Any]]] = [
    ("tools/call", {"content": []}),
    ("tools/call", {"content": [WORDS, {"type": "image", "data": "", "mimeType": "a/b"}], "isError": True}),
    ("tools/call", {"content": [{"type": "resource", "resource": NOTE, "annotations": {"audience": ["user"]}}]}),
    ("tools/call", {"content": [WORDS | {"_meta": {"a": None}}], "other": None}),
    ("prompts/get", {"messages": [{"role": "user", "content": WORDS}], "description": "d"}),
    ("resources/read", {"contents": [NOTE, {"uri": "x", "blob": "", "mimeType": "a/b"}]}),
    ("completion/complete", {"completion": {"values": ["a"], "total": 1, "hasMore": False}}),
    ("tasks/get", {"anything": 5}),
]
BAD: list[tuple[str, dict[str, Any]]] = [
    ("tools/call", {}),
    ("tools/call", {"content": None}),
    ("tools/call", {"content": {}}),
    ("tools/call", {"content": [None]}),
    ("tools/call", {"content": [{"type": "text"}]}),
    ("tools/call", {"content": [{"text": "words"}]}),
    ("tools/call", {"content": [WORDS | {"type": "unknown"}]}),
    ("tools/call", {"content": [WORDS | {"annotations": {"priority": 2}}]}),
    ("tools/call", {"content": [WORDS], "isError": "yes"}),
    ("tools/call", {"content": [{"type": "resource", "resource": {"uri": "x"}}]}),
    ("prompts/get", {"messages": [{"role": "system", "content": WORDS}]}),
    ("prompts/get", {"messages": [], "description": 5}),
    ("resources/read", {"contents": [{"uri": "x"}]}),
    ("resources/read", {"contents": [{"text": "x"}]}),
    ("completion/complete", {"completion": {"values": ["x"] * 101}}),
    ("completion/complete", {"completion": {"values": [1]}}),
]


def fitted(revision: Revision, method: str, result: dict[str, Any]) -> dict[str, Any]:
    members = {key: Raw(msgspec.json.encode(value)) for key, value in result.items()}
    fit(revision, method, members)
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(members))
    return found


@pytest.mark.parametrize(("method", "result"), GOOD)
@pytest.mark.parametrize("revision", sorted(ALL))
def test_what_every_client_can_read_is_left_alone(revision: Revision, method: str, result: dict[str, Any]) -> None:
    assert fitted(revision, method, result) == result


@pytest.mark.parametrize(("method", "result"), BAD)
@pytest.mark.parametrize("revision", [R1, R4])
def test_what_a_strict_client_would_throw_away_is_refused(
    revision: Revision, method: str, result: dict[str, Any]
) -> None:
    with pytest.raises(UnfitResult, match=f"^{method}: "):
        fitted(revision, method, result)


def test_null_in_place_of_absent_is_dropped_but_not_where_anything_may_stand() -> None:
    said = WORDS | {"annotations": None, "_meta": {"kept": None}}
    found = fitted(R4, "tools/call", {"content": [said], "isError": None})
    assert found == {"content": [WORDS | {"_meta": {"kept": None}}]}
    found = fitted(R4, "resources/read", {"contents": [NOTE | {"mimeType": None, "blob": None}]})
    assert found == {"contents": [NOTE]}


def test_structure_without_content_gets_an_empty_one() -> None:
    assert fitted(R4, "tools/call", {"structuredContent": {"n": 1}}) == {"structuredContent": {"n": 1}, "content": []}


def test_a_block_that_came_later_does_not_fit_an_older_client() -> None:
    link = {"type": "resource_link", "uri": "notes://one", "name": "one"}
    assert fitted(R4, "tools/call", {"content": [link]}) == {"content": [link]}
    with pytest.raises(UnfitResult):
        fitted(R1, "tools/call", {"content": [link]})


@pytest.mark.finding("security-12")
@pytest.mark.parametrize("odd", [[], [[[[[[[]]]]]]], {}], ids=["lists", "nested lists", "objects"])
def test_a_result_of_too_many_values_is_not_gone_through_for_nulls(odd: object) -> None:
    """A hundred thousand values took 0.12 s of the loop, and were refused all the same."""
    with pytest.raises(UnfitResult, match="number of values"):
        fitted(R4, "tools/call", {"content": [None, *[odd] * 31_000]})
    assert len(fitted(R4, "tools/call", {"content": [WORDS | {"annotations": None}] * 5000})["content"]) == 5000


@pytest.mark.parametrize("text", ["x" * 5000, 'a "quoted" \\ text\\' * 500, "\\" * 4999, "ü" * 5000])
def test_a_long_text_is_not_decoded_again_but_what_is_around_it_is_looked_at(text: str) -> None:
    block = {"text": text, "type": "text", "annotations": {"priority": 0.5, text: text}}
    fits = {"content": [block, {"type": "image", "data": text, "mimeType": "image/png"}]}
    assert fitted(R4, "tools/call", fits) == fits
    for odd in ({**block, "type": text}, {**block, "annotations": {"priority": 2}}, {"type": "image", "data": text}):
        with pytest.raises(UnfitResult):
            fitted(R4, "tools/call", {"content": [block, odd]})
