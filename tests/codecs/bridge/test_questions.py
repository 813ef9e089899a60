"""Questions in the words of each revision, and the answers back: BRIDGING.md, section 5.1."""

from typing import Any

import pytest

from callboard.codecs.bridge.askable import NOTHING, declared_by, signature_of
from callboard.codecs.bridge.questions import NotExpressible, back_answer, front_question
from callboard.codecs.revisions import (
    ClientCapabilities,
    CreateMessageResult,
    Model,
    Revision,
    read,
    read_params,
    write,
    write_params,
)
from callboard.codecs.revisions.revision import R1, R2, R3, R4, R5

FORM = "elicitation/create"
SAMPLING = "sampling/createMessage"


def question(method: str, revision: Revision = R4, **params: Any) -> Model:
    return read_params(revision, method, params)


def asked(revision: Revision, method: str, **params: Any) -> dict[str, Any]:
    """A question of a server of 2025-11-25, as a client of *revision* gets it."""
    return write_params(revision, method, front_question(revision, question(method, **params), "ours"))


def with_field(shape: Any) -> dict[str, Any]:
    return {"message": "?", "requestedSchema": {"type": "object", "properties": {"f": shape}}}


def test_a_form_loses_what_2025_06_18_has_no_words_for() -> None:
    titled = {"type": "string", "oneOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]}
    old = asked(R3, FORM, mode="form", **with_field(titled))
    assert "mode" not in old
    assert old["requestedSchema"]["properties"]["f"] == {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]}
    new = asked(R4, FORM, mode="form", **with_field(titled))
    assert (new["mode"], new["requestedSchema"]["properties"]["f"]) == ("form", titled)


@pytest.mark.parametrize("shape", [{"type": "string", "default": "x"}, {"type": "integer", "default": 1}])
def test_defaults_other_than_of_switches_are_dropped_for_2025_06_18(shape: dict[str, Any]) -> None:
    assert "default" not in asked(R3, FORM, mode="form", **with_field(shape))["requestedSchema"]["properties"]["f"]
    assert "default" in asked(R4, FORM, mode="form", **with_field(shape))["requestedSchema"]["properties"]["f"]


def test_a_default_of_a_switch_is_kept() -> None:
    shape = {"type": "boolean", "default": True}
    assert asked(R3, FORM, mode="form", **with_field(shape))["requestedSchema"]["properties"]["f"] == shape


def test_choices_of_several_are_not_expressible_before_2025_11_25() -> None:
    several = {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}
    with pytest.raises(NotExpressible):
        asked(R3, FORM, mode="form", **with_field(several))
    assert asked(R4, FORM, mode="form", **with_field(several))["requestedSchema"]["properties"]["f"] == several


def test_a_url_has_an_id_of_ours_where_the_revision_has_one() -> None:
    url = {"mode": "url", "message": "Log in", "url": "https://example.com", "elicitationId": "theirs"}
    assert asked(R4, FORM, **url)["elicitationId"] == "ours"
    assert "elicitationId" not in asked(R5, FORM, **url)


@pytest.mark.parametrize("revision", [R1, R2, R3])
def test_messages_of_several_blocks_are_taken_apart_for_older_clients(revision: Revision) -> None:
    blocks = [{"type": "text", "text": text} for text in "ab"]
    messages = [{"role": "user", "content": blocks}]
    old = asked(revision, SAMPLING, messages=messages, maxTokens=9)
    assert old["messages"] == [{"role": "user", "content": block} for block in blocks]
    assert asked(R4, SAMPLING, messages=messages, maxTokens=9)["messages"] == messages


def test_sound_is_not_expressible_in_the_first_revision() -> None:
    sound = {"type": "audio", "data": "AA==", "mimeType": "audio/wav"}
    for content in (sound, [sound]):
        with pytest.raises(NotExpressible):
            asked(R1, SAMPLING, messages=[{"role": "user", "content": content}], maxTokens=9)
    assert asked(R2, SAMPLING, messages=[{"role": "user", "content": sound}], maxTokens=9)["messages"]


def test_a_task_that_nobody_declared_is_a_plain_question() -> None:
    found = asked(R4, SAMPLING, messages=[], maxTokens=9, task={"ttl": 1}, _meta={"example.com/own": 1})
    assert found == {"messages": [], "maxTokens": 9}


def test_an_answer_of_several_blocks_is_one_for_older_servers() -> None:
    blocks = [{"type": "text", "text": text} for text in "ab"]

    def answered(revision: Revision, content: Any) -> Any:
        said = {"role": "assistant", "model": "m", "content": content}
        answer = read(R4, CreateMessageResult, said)
        return write(revision, back_answer(revision, answer))["content"]

    assert answered(R3, blocks) == {"type": "text", "text": "a\nb"}
    assert answered(R3, blocks[:1]) == blocks[0]
    assert answered(R3, blocks[0]) == blocks[0]
    assert answered(R4, blocks) == blocks


# What is declared.


@pytest.mark.parametrize(
    ("revision", "said", "found"),
    [
        (R4, {}, NOTHING),
        (R4, {"roots": {"listChanged": True}}, {"roots", "roots.list_changed"}),
        (R3, {"elicitation": {}}, {"elicitation.form"}),
        (R4, {"elicitation": {}}, {"elicitation.form"}),
        (R4, {"elicitation": {"url": {}}}, {"elicitation.url"}),
        (R1, {"sampling": {}}, {"sampling"}),
        (R5, {"sampling": {"tools": {}}}, {"sampling", "sampling.tools"}),
        (R4, {"experimental": {"x": {}}, "tasks": {}}, NOTHING),
    ],
)
def test_a_signature_is_what_a_server_may_ask(revision: Revision, said: dict[str, Any], found: set[str]) -> None:
    signature = signature_of(read(revision, ClientCapabilities, said))
    assert signature == found
    assert signature_of(declared_by(signature)) == signature


def test_tasks_are_not_declared_and_changes_of_roots_are() -> None:
    everything = read(R4, ClientCapabilities, {"roots": {"listChanged": True}, "tasks": {"list": {}}, "sampling": {}})
    assert write(R4, declared_by(signature_of(everything))) == {"roots": {"listChanged": True}, "sampling": {}}
