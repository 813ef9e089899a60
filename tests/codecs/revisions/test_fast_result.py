"""The short way to read a result says what the long one says, or leaves it to that."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.codecs.members import read_members
from callboard.codecs.revisions import MODERN, Revision, read_result
from callboard.codecs.revisions.fast_result import read_plain
from callboard.errors import InvalidParams

INFO = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}}
TEXT = {"type": "text", "text": "ok"}


def both(revision: Revision, result: dict[str, Any]) -> tuple[object, object]:
    members = read_members(msgspec.json.encode(result))
    return read_plain(revision, members), read_result(revision, "tools/call", result)


@pytest.mark.parametrize("revision", list(Revision), ids=str)
@given(
    texts=st.lists(st.text(), max_size=3),
    more=st.fixed_dictionaries(
        {},
        optional={
            "_meta": st.sampled_from([INFO, {}, {**INFO, "example.org/x": [1]}]),
            "isError": st.booleans(),
            "resultType": st.just("complete"),
        },
    ),
)
def test_texts_are_read_as_the_models_read_them(revision: Revision, texts: list[str], more: dict[str, Any]) -> None:
    plain, modelled = both(revision, {"content": [{"type": "text", "text": text} for text in texts], **more})
    is_usual = revision in MODERN or not more.keys() & {"resultType", "_meta"}
    assert plain == modelled or (plain is None and (not is_usual or "example.org/x" in more.get("_meta", {})))


@pytest.mark.parametrize("revision", list(Revision), ids=str)
@pytest.mark.parametrize(
    "more",
    [
        {"structuredContent": {}},
        {"example": 1},
        {"content": [{**TEXT, "annotations": {"priority": 1}}]},
        {"content": [{**TEXT, "example": 1}]},
        {"content": [{"type": "image", "data": "", "mimeType": "image/png"}]},
    ],
)
def test_anything_unusual_is_left_to_the_models(revision: Revision, more: dict[str, Any]) -> None:
    assert both(revision, {"content": [TEXT], **more})[0] is None


@pytest.mark.parametrize("revision", list(Revision), ids=str)
@pytest.mark.parametrize(
    "wrong",
    [
        {"content": [{"type": "text"}]},
        {"content": "ok"},
        {"content": [TEXT], "isError": 1},
        {"content": [TEXT], "isError": None},
        {"content": [TEXT], "_meta": []},
        {"content": [TEXT], "_meta": {"io.modelcontextprotocol/serverInfo": 1}},
        {},
    ],
)
def test_what_the_models_refuse_is_not_read(revision: Revision, wrong: dict[str, Any]) -> None:
    members = read_members(msgspec.json.encode(wrong))
    try:
        expected: object = read_result(revision, "tools/call", wrong)
    except InvalidParams:
        expected = None
    try:
        found: object = read_plain(revision, members)
    except InvalidParams:
        found = None
    assert found is None or found == expected
