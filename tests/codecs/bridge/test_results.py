"""Results from one era to the other: what is taken off, what is put on, and what older clients get instead."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from callboard.codecs.bridge.results import BACKEND, Crossing, Forwarded, asks, front_result
from callboard.codecs.bridge.shapes import UnfitResult
from callboard.codecs.members import Members
from callboard.codecs.revisions import LEGACY, MODERN, Revision, meta, write
from callboard.codecs.revisions.older import for_older
from callboard.codecs.revisions.revision import R1, R2, R3, R4, R5

WORDS = {"type": "text", "text": "words"}
LINK = {"type": "resource_link", "name": "one", "uri": "notes://one"}
SOUND = {"type": "audio", "data": "AA==", "mimeType": "audio/wav"}


def members(**result: Any) -> Members:
    return {key: Raw(msgspec.json.encode(value)) for key, value in result.items()}


def crossed(front: Revision, back: Revision, method: str = "tools/call", **result: Any) -> dict[str, Any]:
    """The result as it is written for the client, but for the label of its origin."""
    found = crossed_as(Crossing(front, back, "b"), method, **result)
    assert found["_meta"].pop(BACKEND) == "b"
    return found


def crossed_as(crossing: Crossing, method: str, *, keeps: bool = True, **result: Any) -> dict[str, Any]:
    found = front_result(crossing, method, members(**result), keeps=keeps)
    if isinstance(found, Forwarded):
        written: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(found.members))
    else:
        written = msgspec.json.decode(msgspec.json.encode(write(crossing.front, for_older(crossing.front, found))))
    return written


@pytest.mark.parametrize("front", sorted(LEGACY))
def test_what_only_the_modern_revision_has_is_taken_off(front: Revision) -> None:
    said = {meta.SERVER_INFO: {"name": "x", "version": "1"}, "example.com/own": 1, "traceparent": "00-x"}
    found = crossed(
        front, R5, "resources/read", contents=[], resultType="complete", ttlMs=5, cacheScope="public", _meta=said
    )
    assert found == {"contents": [], "_meta": {"example.com/own": 1, "traceparent": "00-x"}}


@pytest.mark.parametrize("back", sorted(LEGACY))
def test_what_the_modern_revision_wants_is_put_on(back: Revision) -> None:
    found = crossed(R5, back, "resources/read", contents=[])
    assert found == {"contents": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private", "_meta": {}}
    assert crossed(R5, back, content=[WORDS]) == {"content": [WORDS], "resultType": "complete", "_meta": {}}


def test_a_modern_backend_is_believed_to_be_public_only_if_it_is_trusted() -> None:
    kept: dict[str, Any] = {"contents": [], "ttlMs": 5, "cacheScope": "public"}
    assert crossed(R5, R5, "resources/read", **kept)["cacheScope"] == "private"
    trusted = crossed_as(Crossing(R5, R5, "b", trusted=True), "resources/read", **kept)
    assert (trusted["ttlMs"], trusted["cacheScope"]) == (5, "public")
    retried = crossed_as(Crossing(R5, R5, "b", trusted=True), "resources/read", keeps=False, **kept)
    assert (retried["ttlMs"], retried["cacheScope"]) == (0, "private")


@pytest.mark.parametrize("front", sorted(LEGACY | MODERN))
@pytest.mark.parametrize("back", sorted(LEGACY | MODERN))
def test_every_result_says_whose_words_they_are(front: Revision, back: Revision) -> None:
    found = crossed_as(Crossing(front, back, "weather"), "tools/call", content=[WORDS], _meta={BACKEND: "forged"})
    assert found["_meta"][BACKEND] == "weather"


@pytest.mark.parametrize("front", [R1, R2])
def test_so_does_one_that_is_said_in_older_words(front: Revision) -> None:
    said = {meta.SERVER_INFO: {"name": "x", "version": "1"}, "example.com/own": 1}
    found = crossed(front, R5, content=[LINK], isError=True, resultType="complete", _meta=said)
    assert (found["isError"], found["_meta"]) == (True, {"example.com/own": 1})
    assert "resultType" not in found


def test_a_meta_that_is_no_object_is_not_kept() -> None:
    assert crossed_as(Crossing(R4, R4, "b"), "tools/call", content=[WORDS], _meta=[1])["_meta"] == {BACKEND: "b"}


# Content for older clients.


@pytest.mark.parametrize("back", [R3, R4, R5])
@pytest.mark.parametrize("front", [R1, R2])
def test_older_clients_get_structure_as_text(front: Revision, back: Revision) -> None:
    found = crossed(front, back, content=[], structuredContent={"a": 1})
    assert "structuredContent" not in found
    assert [msgspec.json.decode(block["text"]) for block in found["content"]] == [{"a": 1}]
    found = crossed(front, back, content=[{"type": "text", "text": '{"a":1}'}], structuredContent={"a": 1})
    assert len(found["content"]) == 1


@pytest.mark.parametrize("front", sorted(LEGACY))
@pytest.mark.parametrize("value", [[1, 2], "x", 7, None])
def test_structure_that_is_no_object_is_text_for_all_legacy_clients(front: Revision, value: Any) -> None:
    found = crossed(front, R5, content=[], structuredContent=value)
    assert "structuredContent" not in found
    assert [msgspec.json.decode(block["text"]) for block in found["content"]] == [value]
    assert crossed(R5, R5, content=[], structuredContent=value)["structuredContent"] == value


@pytest.mark.parametrize("front", [R1, R2])
def test_a_link_is_text_for_those_who_know_none(front: Revision) -> None:
    [block] = crossed(front, R5, content=[LINK])["content"]
    assert block["type"] == "text"
    assert "one" in block["text"]
    assert "notes://one" in block["text"]
    assert crossed(R3, R5, content=[LINK])["content"] == [LINK]


def test_sound_is_a_resource_for_those_who_know_none() -> None:
    [block] = crossed(R1, R5, content=[SOUND])["content"]
    assert block["type"] == "resource"
    assert block["resource"]["uri"].startswith("audio:")
    assert (block["resource"]["blob"], block["resource"]["mimeType"]) == ("AA==", "audio/wav")
    assert crossed(R2, R5, content=[SOUND])["content"] == [SOUND]


def test_prompts_have_such_blocks_too() -> None:
    [message] = crossed(R1, R5, "prompts/get", messages=[{"role": "user", "content": LINK}])["messages"]
    assert message["content"]["type"] == "text"


def test_what_an_older_client_has_words_for_stays_byte_for_byte() -> None:
    body = members(content=[WORDS])
    found = front_result(Crossing(R1, R4, "b"), "tools/call", body)
    assert isinstance(found, Forwarded)
    assert found.members["content"] is body["content"]


# Kinds of results.


def test_a_result_is_an_answer_or_a_question_or_nothing_that_is_known() -> None:
    assert not asks(members())
    assert not asks(members(resultType="complete"))
    assert asks(members(resultType="input_required"))
    for kind in ("task", "surprise", 7):
        with pytest.raises(UnfitResult):
            asks(members(resultType=kind))


def test_a_result_that_is_none_of_its_revision_is_the_backends_fault() -> None:
    with pytest.raises(UnfitResult):
        front_result(Crossing(R1, R5, "b"), "tools/call", members(content=7, structuredContent={}))


@pytest.mark.finding("security-12")
@pytest.mark.parametrize("front", [R1, R2])
def test_a_result_of_too_many_blocks_is_not_put_into_older_words(front: Revision) -> None:
    """Each would take microseconds on the loop: a hundred thousand values took 0.27 s."""
    with pytest.raises(UnfitResult, match="number of values"):
        crossed(front, R4, content=[WORDS] * 6000 + [SOUND])
    assert len(crossed(front, R4, content=[WORDS] * 3000 + [SOUND])["content"]) == 3001
