"""Results that are cut down to a limit: never above it by more than the note, and always valid."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from callboard.codecs.bridge.capped import LEAST_RESULT, cap_call, size_of_result
from callboard.codecs.members import read_members, write_members

NOTE = 400
"""Most bytes of the note and its block."""

texts = st.text(max_size=50) | st.integers(1, 3000).map(lambda count: 'é"\\\n\U0001f600' * count)
blocks = st.builds(lambda text: {"type": "text", "text": text}, texts) | st.builds(
    lambda size: {"type": "image", "data": "A" * size, "mimeType": "image/png"}, st.integers(0, 5000)
)
results = st.fixed_dictionaries(
    {"content": st.lists(blocks, max_size=5)},
    optional={
        "structuredContent": st.builds(lambda size: {"rows": [1] * size}, st.integers(0, 3000)),
        "_meta": st.builds(lambda size: {"x": "y" * size}, st.integers(0, 5000)),
        "isError": st.booleans(),
    },
)


@given(results, st.integers(LEAST_RESULT, 4000))
def test_a_result_is_cut_to_its_limit_and_a_note(result: dict[str, Any], limit: int) -> None:
    members = read_members(msgspec.json.encode(result))
    capped = cap_call(members, limit, "back")
    assert size_of_result(capped) <= limit + NOTE
    found = msgspec.json.decode(write_members(capped))
    *kept, note = found["content"]
    assert "truncated" in note["text"]
    for block, whole in zip(kept, result["content"], strict=False):
        assert block == whole or whole["text"].startswith(block["text"])
    if "structuredContent" in result and "structuredContent" not in found:
        assert found["isError"]


def test_content_that_is_no_list_of_blocks_is_left_out() -> None:
    members = read_members(msgspec.json.encode({"content": {"x": "y" * 5000}}))
    found = msgspec.json.decode(write_members(cap_call(members, 2000, "back")))
    assert [block["type"] for block in found["content"]] == ["text"]
