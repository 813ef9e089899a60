"""Pydantic's types: models by their shape, all else by a `TypeAdapter`.

Pydantic is loaded when a handler names a type that msgspec does not know, and never needed.
"""

import copy
import dataclasses
import functools
import importlib
import re
from collections.abc import Callable, Hashable
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_origin

T = TypeVar("T")
Mode: TypeAlias = Literal["validation", "serialization"]
"""Whether a schema is for what comes in or for what goes out. Only pydantic's types tell the two apart."""

_HOOK: Final = "__get_pydantic_core_schema__"
_REFUSALS: Final = (RuntimeError, NameError, ValueError)
"""Bases of pydantic's errors for types without a schema, and values without JSON."""
_UNNAMEABLE: Final = re.compile(r"[^A-Za-z0-9._-]")


def is_pydantic(kind: Any) -> bool:
    """Whether *kind* is one of pydantic's models."""
    return isinstance(kind, type) and hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate")


def is_foreign(annotation: Any) -> bool:
    """Whether *annotation* is a class of pydantic's that is no model. msgspec would take a data class for a plain one
    and see nothing of `Field`, and does not know that an `EmailStr` is a text."""
    kind = get_origin(annotation) or annotation
    if not isinstance(kind, type) or is_pydantic(kind):
        return False
    return "__pydantic_validator__" in vars(kind) if dataclasses.is_dataclass(kind) else hasattr(kind, _HOOK)


def is_marked(annotation: Any) -> bool:
    """Whether a marker beside a type, such as `Json` or `AfterValidator`, has a meaning that pydantic alone knows."""
    return any(hasattr(mark, _HOOK) for mark in getattr(annotation, "__metadata__", ()))


def definition_name(kind: Any) -> str:
    """The name of a class in `$defs`: that of `Page[int]` would be no part of a URI."""
    return _UNNAMEABLE.sub("_", kind.__name__)


def schema_of(kind: Any, template: str, mode: Mode) -> dict[str, Any]:
    """The JSON Schema of a type, its definitions inside. Raises `TypeError` if pydantic is missing, or knows none."""
    found: dict[str, Any]
    if is_pydantic(kind):
        found = copy.deepcopy(kind.model_json_schema(ref_template=template, mode=mode))
    else:
        # What goes out of a data class is written by msgspec, which knows the names of its fields alone.
        options = {"ref_template": template, "mode": mode, "by_alias": mode == "validation"}
        found = _told(kind, lambda: _adapter(kind).json_schema(**options))
    return found


def validate(kind: Any, value: Any) -> Any:
    """Make a *kind* of JSON values. Raises pydantic's error, which is a `ValueError`."""
    return kind.model_validate(value) if is_pydantic(kind) else _adapter(kind).validate_python(value)


def dump(value: Any) -> Any:
    """Make JSON values of what is pydantic's. Raises `TypeError`."""
    kind: type = type(value)
    if is_pydantic(kind):
        return value.model_dump(mode="json", by_alias=True)
    try:
        return _adapter(kind).dump_python(value, mode="json")
    except (ImportError, AttributeError, *_REFUSALS):
        raise TypeError(f"{kind.__qualname__} cannot be serialized as JSON") from None


def _told(kind: Any, describe: Callable[[], T]) -> T:
    try:
        return describe()
    except (AttributeError, ModuleNotFoundError, *_REFUSALS):
        raise TypeError(f"{getattr(kind, '__qualname__', kind)} has no JSON Schema") from None
    except ImportError as reason:  # it names the package that the type needs
        raise TypeError(str(reason)) from None


@functools.lru_cache(maxsize=512)
def _adapter(kind: Hashable) -> Any:
    """The adapter of a type, or of the type behind a stand-in. Raises `ModuleNotFoundError` without pydantic,
    `AttributeError` if it is too old, and pydantic's errors."""
    return importlib.import_module("pydantic").TypeAdapter(getattr(kind, "behind", kind))
