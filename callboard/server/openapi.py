"""Tools that call the operations of an HTTP API, and what its answers are as results."""

from collections.abc import Mapping
from typing import Any, Final, Self

import attrs
import msgspec

from callboard.codecs.http.response_parser import AnswerHead
from callboard.codecs.json_scan import MAX_DEPTH, check_frame, check_value
from callboard.codecs.mcp_headers.header_map import NO_HEADERS
from callboard.codecs.openapi.operations import RESULT, ApiOperation
from callboard.codecs.openapi.requests import UnfitArgument, request_for
from callboard.codecs.revisions import UNSET, CallToolResult, TextContent, Tool
from callboard.codecs.schema_cost import SchemaCost
from callboard.errors import FrameTooLarge, InvalidDefinition, ParseError
from callboard.server.api_client import ApiClient
from callboard.server.content.errors import BadResult, ToolError
from callboard.server.content.media import Audio, Blob, Image
from callboard.server.context import Context
from callboard.server.registry import ToolEntry
from callboard.server.signature.output import OutputSchema
from callboard.server.signature.schemas import Validator, compile_schema
from callboard.server.signature.signature import Signature

MAX_API_TEXT: Final = 1024 * 1024
"""Largest text or JSON that is passed on, in bytes. A result has it as text and as data, in a message of 4 MiB."""

MAX_DATA_DEPTH: Final = MAX_DEPTH - 8
"""Deepest nesting of an answer: a message is some levels around it."""

MAX_REFUSAL_TEXT: Final = 2000
"""Characters of an error's body that the model reads."""

_MARK: Final = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8. Some frameworks write one, and RFC 8259 lets readers pass over it."""


@attrs.frozen
class BoundedValidator:
    """Holds values to a schema of a stranger's. One that would take too long counts as valid: the API has its own
    check."""

    inner: Validator
    cost: SchemaCost

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> Self:
        """Raises `InvalidDefinition`."""
        return cls(compile_schema(schema, is_strange=True), SchemaCost.of(schema))

    def is_valid(self, instance: Any) -> bool:
        return not self.cost.is_bearable(instance) or self.inner.is_valid(instance)

    def iter_errors(self, instance: Any) -> Any:
        return self.inner.iter_errors(instance)

    def validate(self, instance: Any) -> None:
        self.inner.validate(instance)


def tool_of(operation: ApiOperation) -> ToolEntry:
    """The tool that calls an operation. The value of its server's lifespan is the `ApiClient`."""
    schema, validator = _usable(operation.input_schema)
    output = _promise(operation.output_schema)

    async def call(arguments: dict[str, Any], ctx: Context) -> Any:
        client: ApiClient = ctx.lifespan
        try:
            request = request_for(operation, arguments)
        except UnfitArgument as error:
            raise ToolError(str(error)) from None
        head, body = await client.send(request)
        return _result(operation, output, head, body)

    call.__name__ = call.__qualname__ = operation.name
    signature = Signature(
        name=operation.name,
        description=operation.description,
        parameters=(),
        input_schema=schema,
        output=output,
        context_parameter="ctx",
        is_async=True,
        validator=validator,
        convert=lambda values: {"arguments": values},
        read_plain=None,
    )
    shown = Tool(
        name=operation.name,
        title=operation.title or UNSET,
        description=operation.description,
        input_schema=schema,
        output_schema=UNSET if output is None else output.schema,
        annotations=operation.annotations,
    )
    return ToolEntry(function=call, signature=signature, shown=shown, headers=NO_HEADERS)


def _usable(schema: dict[str, Any]) -> tuple[dict[str, Any], Validator]:
    """The schema, or as much of it as can be checked: the API checks the rest itself."""
    for candidate in (schema, _without_patterns(schema)):
        try:
            return candidate, BoundedValidator.of(candidate)
        except InvalidDefinition:
            continue
    bare = {name: _described(one) for name, one in schema["properties"].items()}
    rest: dict[str, Any] = {**{key: value for key, value in schema.items() if key != "$defs"}, "properties": bare}
    return rest, BoundedValidator.of(rest)


def _without_patterns(schema: Any) -> Any:
    """A schema without regular expressions: some are of another dialect, or could be slow."""
    if isinstance(schema, list):
        return [_without_patterns(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    is_pattern = isinstance(schema.get("pattern"), str)
    return {key: _without_patterns(one) for key, one in schema.items() if not (key == "pattern" and is_pattern)}


def _described(schema: Any) -> dict[str, Any]:
    told = schema.get("description") if isinstance(schema, dict) else None
    return {"description": told} if isinstance(told, str) else {}


def _promise(schema: dict[str, Any] | None) -> OutputSchema | None:
    for candidate in () if schema is None else (schema, _without_patterns(schema)):
        try:
            return OutputSchema(candidate, False, False, False, BoundedValidator.of(candidate))
        except InvalidDefinition:
            continue
    return None


# What the API answers.


def _result(operation: ApiOperation, output: OutputSchema | None, head: AnswerHead, body: bytes) -> Any:
    """Raises `ToolError` for an answer that is not a good one."""
    kind = head.media_type.decode("latin-1")
    packed = head.get(b"content-encoding") or b"identity"
    if body and packed.strip().lower() != b"identity":
        raise ToolError(f"the API answered {head.status}, compressed ({packed.decode('latin-1')[:40]!r}) unasked")
    if not 200 <= head.status < 300:
        raise ToolError(f"the API answered {head.status}: {_shown(kind, body)}".rstrip(": "))
    if kind == "application/json" or kind.endswith("+json"):
        return _data(operation, output, body)
    if output is not None and body:
        raise ToolError(
            f"the API answered {head.status} with {kind or 'no type'} in place of JSON: {_shown(kind, body)}"
        )
    if not body:
        return _text("", output)
    if kind.startswith("image/"):
        return CallToolResult(content=[Image(body, kind).block()])
    if kind.startswith("audio/"):
        return CallToolResult(content=[Audio(body, kind).block()])
    try:
        _check_size(body)
        return CallToolResult(content=[TextContent(text=body.decode())])
    except UnicodeDecodeError:
        return CallToolResult(content=[Blob(body, kind or "application/octet-stream").block()])


def _data(operation: ApiOperation, output: OutputSchema | None, body: bytes) -> CallToolResult:
    body = body.removeprefix(_MARK)
    _check_size(body)
    if not body:
        return _text("", output)
    try:
        check_frame(body)
        value = msgspec.json.decode(body)
        check_value(body, MAX_DATA_DEPTH)
    except (FrameTooLarge, ParseError) as error:
        raise ToolError(f"the API's answer cannot be passed on, {error}: {_shown('', body)}") from None
    except (msgspec.DecodeError, RecursionError):
        raise ToolError(f"the API answered what is not JSON: {_shown('', body)}") from None
    text = body.decode()
    if output is None:
        return CallToolResult(content=[TextContent(text=text)])
    data = {RESULT: value} if operation.is_wrapped else value
    if not isinstance(data, dict) or not _fits(output, data):
        raise ToolError(f"the API answered something else than its description says: {text[:MAX_REFUSAL_TEXT]}")
    return CallToolResult(content=[TextContent(text=text)], structured_content=data)


def _check_size(body: bytes) -> None:
    if len(body) > MAX_API_TEXT:
        raise ToolError(f"the API answered {len(body)} bytes, and at most {MAX_API_TEXT} are passed on: ask for less")


def _fits(output: OutputSchema, data: dict[str, Any]) -> bool:
    try:
        output.check(data)
    except BadResult:
        return False
    return True


def _text(text: str, output: OutputSchema | None) -> CallToolResult:
    if output is not None:
        raise ToolError("the API answered nothing, though its description says otherwise")
    return CallToolResult(content=[TextContent(text=text)] if text else [])


def _shown(kind: str, body: bytes) -> str:
    """The body of an error, if it is a text."""
    if kind.startswith(("image/", "audio/", "video/")):
        return ""
    return " ".join(body[: 4 * MAX_REFUSAL_TEXT].decode("utf-8", "replace").split())[:MAX_REFUSAL_TEXT]
