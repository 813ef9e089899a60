"""Rules for a conversation with the client's model if tools are part of it."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from callboard.codecs.revisions import SamplingMessage, ToolResultContent, ToolUseContent


def check_turns(messages: Sequence[SamplingMessage]) -> None:
    """Raises ValueError if results of tools stand beside other content, or do not answer each use right after it."""
    nobody = SamplingMessage(role="user", content=[])
    for before, message in pairwise([nobody, *messages, nobody]):
        used = [block.id for block in _blocks(before) if isinstance(block, ToolUseContent)]
        results = [block for block in _blocks(message) if isinstance(block, ToolResultContent)]
        if sorted(used) != sorted(result.tool_use_id for result in results):
            raise ValueError("each tool use must be followed by its result in the next message")
        if results and (message.role != "user" or len(results) != len(list(_blocks(message)))):
            raise ValueError("a message with tool results must have no other content")


def _blocks(message: SamplingMessage) -> Iterable[object]:
    return message.content if isinstance(message.content, Sequence) else [message.content]
