"""Pydantic's types: models by their shape, all else by a `TypeAdapter`.

Pydantic is loaded when a handler names a type that msgspec does not know, and never needed.
"""

import copy
import dataclasses
import functools
import importlib
import re
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_origin

T = TypeVar("T")
Mode: TypeAlias = Literal["validation", "serialization"]
"""Whether a schema is for what comes in or for what goes out. Only pydantic's types tell the two apart."""

_HOOK: Final = "__get_pydantic_core_schema__"
_REFUSALS: Final = (RuntimeError, NameError, ValueError)
"""Bases of pydantic's errors for types without a schema, and values without JSON."""
_UNWRITTEN: Final = (Fraction, complex, re.Pattern)
"""Classes that pydantic would write as texts of its own."""
_MODULE: Final = re.compile(r"pydantic\..*\b(ImportString\.|import_string$)")
_PATTERN: Final = re.compile(r"pydantic\..*\bpattern_(str|bytes|either)_validator$")
"""Functions in the core schema of a type by which the peer chooses a module, or a pattern."""
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
    """The JSON Schema of a type, its definitions inside. Raises `TypeError` if pydantic is missing, or knows none, and
    for a type by which the peer would choose a module or a pattern."""
    found: dict[str, Any]
    options: dict[str, Any] = {"ref_template": template, "mode": mode}
    if is_pydantic(kind):
        found = copy.deepcopy(kind.model_json_schema(**options))
        core = getattr(kind, "__pydantic_core_schema__", {})
        if mode == "validation":
            _check_choices(core)
    else:
        # What goes out of a data class is written by msgspec, which knows the names of its fields alone.
        options["by_alias"] = mode == "validation"
        found = _told(kind, lambda: _adapter(kind).json_schema(**options))
        core = _adapter(kind).core_schema
    if any(part.get("tz_constraint") == "naive" for part in _walked(core) if isinstance(part, dict)):
        describe = kind.model_json_schema if is_pydantic(kind) else _adapter(kind).json_schema
        found = describe(**options, schema_generator=_naive_generator())
    return found


def validate(kind: Any, value: Any) -> Any:
    """Make a *kind* of JSON values. Raises pydantic's error, which is a `ValueError`."""
    return kind.model_validate(value) if is_pydantic(kind) else _adapter(kind).validate_python(value)


def dump(value: Any) -> Any:
    """Make JSON values of what is pydantic's. Raises `TypeError`.

    Pydantic is never loaded here, as that takes a tenth of a second: without it, *value* is none of its types.
    """
    kind: type = type(value)
    if is_pydantic(kind):
        return value.model_dump(mode="json", by_alias=True)
    try:
        if sys.modules.get("pydantic") is not None:
            return _adapter(kind).dump_python(value, mode="json")
    except (ImportError, AttributeError, TypeError, *_REFUSALS):
        pass
    raise TypeError(f"{kind.__qualname__} cannot be serialized as JSON")


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
    `AttributeError` if it is too old, pydantic's errors, and `TypeError` if the peer would choose too much."""
    kind = getattr(kind, "behind", kind)
    if kind in _UNWRITTEN:
        raise ValueError("no form in JSON")
    adapter = importlib.import_module("pydantic").TypeAdapter(kind)
    _check_choices(adapter.core_schema)
    return adapter


def _check_choices(core: Mapping[str, Any]) -> None:
    """Raises `TypeError` if the value may be the name of a module to import, or a pattern, which may take hours."""
    for part in _walked(core):
        name = f"{getattr(part, '__module__', '')}.{getattr(part, '__qualname__', '')}"
        if _MODULE.match(name):
            raise TypeError("ImportString would let a client import any module")
        if _PATTERN.match(name):
            raise TypeError("re.Pattern would let a client choose the regular expression")


def _walked(core: Mapping[str, Any]) -> Iterator[Any]:
    """All that a core schema is made of."""
    seen: set[int] = set()  # a default may hold itself
    waiting: list[Any] = [dict(core)]  # of a class that is built late, this is what builds it
    while waiting:
        part = waiting.pop()
        if id(part) not in seen:
            seen.add(id(part))
            yield part
            if isinstance(part, dict):
                waiting.extend(part.values())
            elif isinstance(part, list | tuple):
                waiting.extend(part)


@functools.cache
def _naive_generator() -> Any:
    """A maker of schemas in which a time without an offset is a text: `date-time` would want the offset."""
    base = importlib.import_module("pydantic.json_schema").GenerateJsonSchema

    def datetime_schema(self: Any, core: Mapping[str, Any]) -> Any:
        return {"type": "string"} if core.get("tz_constraint") == "naive" else base.datetime_schema(self, core)

    return type("NaiveSchema", (base,), {"datetime_schema": datetime_schema})
