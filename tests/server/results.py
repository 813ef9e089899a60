"""The result of a tool, as a client reads it."""

from typing import Any

from callboard.codecs.revisions import CallToolResult
from callboard.codecs.revisions.calls import Structured
from callboard.server.content import content
from callboard.server.signature.signature import Signature


def to_result(value: Any, signature: Signature) -> CallToolResult:
    told = content.to_result(value, signature)
    return told.as_model() if isinstance(told, Structured) else told
