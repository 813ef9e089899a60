"""Where a revision lacks a block, it gets the nearest one that it has."""

import pytest

from callboard.codecs.revisions import (
    AudioContent,
    CallToolResult,
    ContentBlock,
    GetPromptResult,
    ImageContent,
    Model,
    PromptMessage,
    ResourceLink,
    Result,
    Revision,
    TextContent,
    write_result,
)
from callboard.codecs.revisions.older import for_older

BLOCKS: list[ContentBlock] = [
    TextContent(text="a"),
    ImageContent(data="QQ==", mime_type="image/png"),
    AudioContent(data="QQ==", mime_type="audio/wav"),
    ResourceLink(name="notes", uri="file:///notes"),
]
KINDS = {
    "2024-11-05": ["text", "image", "resource", "text"],
    "2025-03-26": ["text", "image", "audio", "text"],
    "2025-06-18": ["text", "image", "audio", "resource_link"],
    "2025-11-25": ["text", "image", "audio", "resource_link"],
    "2026-07-28": ["text", "image", "audio", "resource_link"],
}
"""Per revision, what becomes of the four blocks."""


@pytest.mark.parametrize("revision", list(Revision), ids=str)
def test_every_block_reaches_every_revision_in_some_form(revision: Revision) -> None:
    called = write_result(revision, "tools/call", for_older(revision, CallToolResult(content=BLOCKS)))
    assert [block["type"] for block in called["content"]] == KINDS[revision]
    messages = [PromptMessage(role="user", content=block) for block in BLOCKS]
    got = write_result(revision, "prompts/get", for_older(revision, GetPromptResult(messages=messages)))
    assert [message["content"]["type"] for message in got["messages"]] == KINDS[revision]


def test_a_sound_is_a_resource_with_its_bytes_and_a_link_is_its_name_and_place() -> None:
    oldest = write_result(min(Revision), "tools/call", for_older(min(Revision), CallToolResult(content=BLOCKS[2:])))
    sound, link = oldest["content"]
    assert sound["resource"]["uri"].startswith("audio:")
    assert (sound["resource"]["mimeType"], sound["resource"]["blob"]) == ("audio/wav", "QQ==")
    assert link["text"] == "notes: file:///notes"


@pytest.mark.parametrize("result", [Result(), CallToolResult(content=BLOCKS)], ids=["empty", "known"])
def test_what_needs_no_change_is_the_same_object(result: Model) -> None:
    assert for_older(max(Revision), result) is result
