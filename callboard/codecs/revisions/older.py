"""Content for older peers: where a revision lacks a block, the nearest one that it has (BRIDGING.md, section 11)."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from callboard.codecs.revisions.calls import CallToolResult, GetPromptResult
from callboard.codecs.revisions.content import AudioContent, ContentBlock, EmbeddedResource, TextContent
from callboard.codecs.revisions.model import Model
from callboard.codecs.revisions.resources import BlobResourceContents, ResourceLink
from callboard.codecs.revisions.revision import LATEST, Revision


def for_older(revision: Revision, result: Model) -> Model:
    """Return *result* with only such blocks as *revision* has. Other results are returned as they are."""
    if revision is LATEST:
        return result
    match result:
        case CallToolResult(content=blocks) if _lacks(revision, blocks):
            return attrs.evolve(result, content=[_nearest(revision, block) for block in blocks])
        case GetPromptResult(messages=messages) if _lacks(revision, [message.content for message in messages]):
            said = [attrs.evolve(message, content=_nearest(revision, message.content)) for message in messages]
            return attrs.evolve(result, messages=said)
    return result


def _lacks(revision: Revision, blocks: Sequence[ContentBlock]) -> bool:
    return any(revision not in block.known for block in blocks)


def _nearest(revision: Revision, block: ContentBlock) -> ContentBlock:
    return block if revision in block.known else _NEAREST[type(block)](block)


def _sound_as_resource(sound: AudioContent) -> EmbeddedResource:
    uri = f"audio:{hashlib.sha256(sound.data.encode()).hexdigest()}"
    contents = BlobResourceContents(uri=uri, mime_type=sound.mime_type, blob=sound.data)
    return EmbeddedResource(resource=contents, annotations=sound.annotations)


def _link_as_text(link: ResourceLink) -> TextContent:
    return TextContent(text=f"{link.name}: {link.uri}", annotations=link.annotations)


_NEAREST: Final[Mapping[type[Model], Callable[[Any], ContentBlock]]] = {
    AudioContent: _sound_as_resource,
    ResourceLink: _link_as_text,
}
