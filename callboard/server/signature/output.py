"""The output schema of a tool, from its return annotation.

Text and content blocks promise nothing: they are what the model reads. Everything else is data and gets a schema.
The revisions of 2025 want an object at the root, so data of any other shape is published as `{"result": ...}`, in
every revision alike: a tool that changes its answer with its client's age could not be described once.
"""

import inspect
import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Union, get_args, get_origin

import attrs

from callboard.codecs.revisions import Model
from callboard.server.content.errors import BadResult
from callboard.server.content.media import Blob
from callboard.server.content.problems import find_problems
from callboard.server.signature.defaults import may_lack_defaults
from callboard.server.signature.schemas import (
    Schema,
    Validator,
    compile_schema,
    schemas_of,
    with_defs,
    with_object_root,
)

RESULT: Final = "result"
"""The one member of the object around data that is none."""

_TEXT: Final = (str, bytes, type(None), None, Any, object, inspect.Signature.empty)


@attrs.frozen(eq=False)
class OutputSchema:
    """A published output schema, ready to hold results to it."""

    schema: Schema
    is_wrapped: bool
    """Whether a value stands under `result`."""
    lacks_defaults: bool
    """Whether a value may hold data classes that lack their defaults."""
    may_hold_content: bool
    """Whether it is a list of anything, and so perhaps of content blocks."""
    _validator: Validator = attrs.field(repr=False)

    @classmethod
    def of(cls, annotation: Any, *, plain: tuple[type, ...] = ()) -> "OutputSchema | None":
        """Describe a return annotation; None if it promises no data. *plain* types are answers in themselves.

        Raises `TypeError` for a type that has no JSON Schema.
        """
        if _is_plain(annotation, (Model, Blob, *plain)):
            return None
        [schema], defs = schemas_of([annotation], mode="serialization")
        root = with_object_root(schema, defs)
        if root is not None:
            return cls(root, False, may_lack_defaults(annotation), False, compile_schema(root))
        wrapped = {
            "type": "object",
            "properties": {RESULT: schema},
            "required": [RESULT],
            "additionalProperties": False,
        }
        whole = with_defs(wrapped, defs)
        return cls(whole, True, may_lack_defaults(annotation), _is_any_list(annotation), compile_schema(whole))

    @classmethod
    def explicit(cls, schema: Mapping[str, Any]) -> "OutputSchema":
        """Take a schema as its author wrote it. Raises `InvalidDefinition`."""
        return cls(dict(schema), False, True, False, compile_schema(schema))

    def check(self, structured: Any) -> None:
        """Raises `BadResult` if a result breaks the promise."""
        if not self._validator.is_valid(structured):
            problems, _ = find_problems(self._validator, self.schema, structured)
            raise BadResult("the result does not match the output schema", problems)


def _is_any_list(annotation: Any) -> bool:
    """Whether a type is a list, and does not say of what."""
    if get_origin(annotation) is Annotated:
        return _is_any_list(annotation.__origin__)
    kind = get_origin(annotation) or annotation
    is_list = isinstance(kind, type) and issubclass(kind, Sequence) and not issubclass(kind, str | bytes)
    return is_list and all(inner in (Any, object, Ellipsis) for inner in get_args(annotation))


def _is_plain(annotation: Any, plain: tuple[type, ...]) -> bool:
    """Whether a type is text or content, alone, in a union or in a list."""
    if get_origin(annotation) is Annotated:
        return _is_plain(annotation.__origin__, plain)
    if annotation in _TEXT or _is_content(annotation, plain):
        return True
    inner = get_args(annotation)
    is_union = get_origin(annotation) in (Union, types.UnionType)
    # A list of texts is data, a list of pictures is content.
    return _has_content(annotation, plain) or (is_union and all(argument in _TEXT for argument in inner))


def _has_content(annotation: Any, plain: tuple[type, ...]) -> bool:
    return any(_is_content(inner, plain) or _has_content(inner, plain) for inner in get_args(annotation))


def _is_content(annotation: Any, plain: tuple[type, ...]) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, plain)
