"""The schemas of a tool as every revision takes them: mended at the root, which is all that the protocol looks at.

What is mended means the same afterwards, or allows more than before; the backend checks its arguments itself.
"""

from collections.abc import Mapping
from typing import Any, Final

from callboard.errors import InvalidDefinition

EMPTY: Final[Mapping[str, Any]] = {"type": "object"}

_VALUES: Final = frozenset({"default", "const", "example"})  # where null is a value like any other
_NOTHING_FITS: Final[Mapping[str, Any]] = {"not": {}}


def mend_input_schema(schema: Any) -> Mapping[str, Any]:
    """The schema of arguments with an object at its root: the same schema if nothing is wrong.

    Raises `InvalidDefinition` for what describes no object.
    """
    if schema is None or schema is True or schema == []:  # PHP writes an empty object so
        return EMPTY
    if not isinstance(schema, dict):
        raise InvalidDefinition("has an inputSchema that is not an object")
    kind = schema.get("type")
    if kind == "object":
        return mend_schema(schema)
    if kind is None or (isinstance(kind, list) and "object" in kind):
        return mend_schema({**schema, "type": "object"})
    raise InvalidDefinition("has an inputSchema whose type is not object")


def mend_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Any schema: without members at its root that no validator could use. The same one if nothing is wrong."""
    found = {**without_nulls(schema, keep=_VALUES)}
    if "properties" in found:
        properties = found["properties"]
        if isinstance(properties, dict):
            found["properties"] = _as_objects(properties)
        elif properties == []:
            found["properties"] = {}
        else:
            del found["properties"]
    if "required" in found and not _are_texts(found["required"]):
        del found["required"]
    if "$schema" in found and not isinstance(found["$schema"], str):
        del found["$schema"]
    is_same = found.keys() == schema.keys() and all(found[key] is schema[key] for key in found)
    return schema if is_same else found


def without_nulls(members: Mapping[str, Any], keep: frozenset[str] = frozenset()) -> Mapping[str, Any]:
    """An object without what is null, which some serializers write for what is absent: the same one if nothing is."""
    if None not in members.values():
        return members
    return {key: value for key, value in members.items() if value is not None or key in keep}


def _as_objects(properties: dict[str, Any]) -> Mapping[str, Any]:
    """Schemas as objects: `true` and `false` are schemas as well, but not to the revisions before 2026-07-28."""
    if all(isinstance(schema, dict) for schema in properties.values()):
        return properties
    return {
        name: schema if isinstance(schema, dict) else _NOTHING_FITS if schema is False else {}
        for name, schema in properties.items()
    }


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
