"""Conversion of a handler's result to the protocol.

| returned by a tool | content | structured content |
|---|---|---|
| `None` | nothing | - |
| `str` | its text | - |
| `Image`, `Audio`, `Blob`, a content model | its block | - |
| an object: attrs, dataclass, `TypedDict`, `Struct`, pydantic, dict | its JSON as text | the object |
| a number, a truth value, a date, an enum | its JSON as text (a string without quotes) | under `result`, if promised |
| a list of any of these, promised as data | its JSON as text, one block | under `result` |
| a list of anything (`-> list`) with content in it | the blocks of each item | under `result` |
| a list of any of these, not promised | the blocks of each item | - |

Promised means that the signature has an output schema. A result that breaks the promise is never sent.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, get_args

import msgspec

from callboard.codecs.revisions import (
    LATEST,
    UNSET,
    AnyResourceContents,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    GetPromptResult,
    PromptMessage,
    ReadResourceResult,
    ResourceContents,
    Role,
    TextContent,
    TextResourceContents,
    write,
)
from callboard.codecs.revisions.calls import Structured
from callboard.server.content.errors import BadResult
from callboard.server.content.media import Blob
from callboard.server.signature.defaults import fill_defaults
from callboard.server.signature.output import RESULT, OutputSchema
from callboard.server.signature.schemas import to_json
from callboard.server.signature.signature import Signature

JSON: Final = "application/json"
TEXT: Final = "text/plain"

_BLOCKS: Final[tuple[type, ...]] = get_args(ContentBlock)
_BLOCK_LIKE: Final = (str, bytes, bytearray, Blob, ResourceContents, *_BLOCKS)
_CONTENT: Final = (Blob, ResourceContents, *_BLOCKS)
_Contents: TypeAlias = list[AnyResourceContents]


def to_result(value: Any, signature: Signature) -> CallToolResult | Structured:
    """Return what a tool returned as the result of its call.

    Raises `BadResult` if there is no form for it, or if it is not what the signature promised.
    """
    output = signature.output
    if isinstance(value, CallToolResult):
        if output is not None and value.is_error is not True:
            output.check(None if value.structured_content is UNSET else value.structured_content)
        return value
    if output is not None:
        return _promised(value, output)
    if value is None:
        return CallToolResult(content=[])
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return CallToolResult(content=[_block(item) for item in value])
    if isinstance(value, _BLOCK_LIKE):
        return CallToolResult(content=[_block(value)])
    text, data = _encoded(value)
    if isinstance(data, dict):
        return Structured(text, data)
    return CallToolResult(content=[TextContent(text=_bare(text, data))])


def to_messages(value: Any) -> list[PromptMessage]:
    """Return what a prompt returned as its messages. Text and content without a role are the user's.

    Raises `BadResult` if there is no form for it.
    """
    if isinstance(value, GetPromptResult):
        return list(value.messages)
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return [_message(item) for item in value]
    return [] if value is None else [_message(value)]


def user(content: Any) -> PromptMessage:
    """A message that the user says: text, a picture, a resource, or an object as JSON."""
    return PromptMessage(role="user", content=_block(content))


def assistant(content: Any) -> PromptMessage:
    """A message that the assistant says."""
    return PromptMessage(role="assistant", content=_block(content))


def to_contents(uri: str, value: Any, mime_type: str | None = None) -> _Contents:
    """Return what a resource returned as its contents. Data is JSON; a list is several only if of bytes or contents.

    Raises `BadResult` if there is no form for it.
    """
    if isinstance(value, ReadResourceResult):
        return list(value.contents)
    if value is None:
        return []
    if isinstance(value, list | tuple) and value and all(isinstance(item, _PARTS) for item in value):
        return [_contents(uri, item, mime_type) for item in value]
    return [_contents(uri, value, mime_type)]


_PARTS: Final = (bytes, bytearray, Blob, EmbeddedResource, ResourceContents)


def _promised(value: Any, output: OutputSchema) -> CallToolResult | Structured:
    if output.lacks_defaults:
        fill_defaults(value)
    if output.may_hold_content and isinstance(value, list | tuple) and _holds_content(value):
        return _mixed(value, output)
    text, data = _encoded(value)
    structured = {RESULT: data} if output.is_wrapped else data
    output.check(structured)
    if isinstance(structured, dict):
        return Structured(_bare(text, data), structured)
    return CallToolResult(content=[TextContent(text=_bare(text, data))], structured_content=structured)


def _holds_content(values: Sequence[Any]) -> bool:
    return any(isinstance(item, _CONTENT) for item in values)


def _mixed(values: Sequence[Any], output: OutputSchema) -> CallToolResult:
    """A list in which there are content blocks: a block for each item, and in the data each as the protocol has it."""
    blocks = [_block(item) for item in values]
    told = [
        write(LATEST, block) if isinstance(item, _CONTENT) else _encoded(item)[1]
        for item, block in zip(values, blocks, strict=True)
    ]
    structured = {RESULT: told} if output.is_wrapped else told
    output.check(structured)
    return CallToolResult(content=blocks, structured_content=structured)


def _encoded(value: Any) -> tuple[str, Any]:
    """The JSON of a value, and the JSON values that it stands for: what a peer will read out of it."""
    try:
        text = msgspec.json.encode(value, enc_hook=to_json)
        return text.decode(), msgspec.json.decode(text)
    except (TypeError, ValueError, OverflowError, RecursionError) as reason:
        unfit = f"{type(value).__name__} cannot be serialized as JSON"
        found = "" if str(reason).endswith(unfit) else str(reason)  # which may be about what is inside
        raise BadResult(f"a result of type {unfit}", found=found) from reason


def _bare(text: str, data: Any) -> str:
    return data if isinstance(data, str) else text


def _block(value: Any) -> Any:
    """One content block."""
    if isinstance(value, str):
        return TextContent(text=str(value))
    if isinstance(value, _BLOCKS):
        return value
    if isinstance(value, Blob):
        return value.block()
    if isinstance(value, bytes | bytearray):
        raise BadResult(
            "a result of type bytes has no MIME type: return Blob(data, mime_type), Image(data) or Audio(data)"
        )
    if isinstance(value, TextResourceContents | BlobResourceContents):
        return EmbeddedResource(resource=value)
    text, data = _encoded(value)
    return TextContent(text=_bare(text, data))


def _message(value: Any) -> PromptMessage:
    if isinstance(value, PromptMessage):
        return value
    if isinstance(value, Mapping) and value.keys() == {"role", "content"}:
        role: Role = value["role"]
        if role not in ("user", "assistant"):
            raise BadResult("the role of a message must be user or assistant", found=repr(role))
        return PromptMessage(role=role, content=_block(value["content"]))
    return user(value)


def _contents(uri: str, value: Any, mime_type: str | None) -> AnyResourceContents:
    if isinstance(value, TextResourceContents | BlobResourceContents):
        return value
    if isinstance(value, EmbeddedResource):
        return value.resource
    if isinstance(value, Blob):
        return value.contents(uri)
    if isinstance(value, bytes | bytearray):
        return Blob(bytes(value), mime_type or "application/octet-stream").contents(uri)
    if isinstance(value, str):
        return TextResourceContents(uri=uri, mime_type=mime_type or TEXT, text=str(value))
    text, _ = _encoded(value)
    return TextResourceContents(uri=uri, mime_type=mime_type or JSON, text=text)
