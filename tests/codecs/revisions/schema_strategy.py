"""Hypothesis strategies for the JSON Schemas of the protocol: only the keywords they use.

Objects are drawn with unknown members too, wherever the schema permits them.
"""

from functools import cache
from typing import Any, Final

from hypothesis import strategies as st

from callboard.codecs.revisions.revision import Revision
from tests.codecs.revisions.official import definitions

# Free JSON and the text of strings are passed through unread, so a few of each kind show as much as drawn ones would,
# and drawing them would be half of the work.
texts = st.sampled_from(["", "x", "text", "user", "é\u2028\x00", "\U0001f600", "a b/c.d"]) | st.text(max_size=8)
numbers = (
    st.sampled_from([0, 1, -1, 0.5, -0.0, 1.0, 1e300])
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
)
anything = st.sampled_from(
    [None, True, False, 0, -1, 2**70, 1.0, 0.1, "", "x", "é\u2028", [], [None], [[], {}, 1.5], {}, {"": 0},
     {"type": "text"}, {"a": {"b": [None, {"c": -0.0}]}}, {"_meta": {}, "extra": [1, 2]}]
)  # fmt: skip
UNKNOWN: Final = (
    "x-vendor",
    "com.example/note",
    "extra",
    "self",
    "",
    "title",
    "task",
    "tasks",
    "requestState",
    "icons",
)
"""Names of members that nobody knows, or that another revision does."""

SCALARS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "string": texts,
    "boolean": st.booleans(),
    "null": st.none(),
}
UNDERSTOOD: Final = frozenset(
    {"$ref", "additionalProperties", "allOf", "anyOf", "const", "description", "enum", "format", "items", "maxItems",
     "maximum", "minimum", "properties", "required", "type", "x-any-settings", "x-never", "x-one-of-these"}
)  # fmt: skip


@cache
def instances(revision: Revision, name: str) -> st.SearchStrategy[Any]:
    """Instances of one definition."""
    return st.deferred(lambda: drawn(revision, definitions(revision)[name]))


def drawn(revision: Revision, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    assert schema.keys() <= UNDERSTOOD, schema.keys() - UNDERSTOOD
    match schema:
        case {"$ref": str(ref)}:
            return instances(revision, ref.rsplit("/", 1)[1])
        case {"const": value}:
            return st.just(value)
        case {"enum": list(values)}:
            return st.sampled_from(values)
        case {"anyOf": list(branches)}:
            return st.one_of([drawn(revision, branch) for branch in branches])
        case {"allOf": _}:
            return objects(revision, flat(revision, schema))
        case {"type": list(kinds)}:
            return st.one_of([drawn(revision, schema | {"type": kind}) for kind in kinds])
        case {"type": str(kind)}:
            return of_type(revision, kind, schema)
    return objects(revision, schema) if "properties" in schema else anything


def of_type(revision: Revision, kind: str, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    match kind:
        case "object":
            return objects(revision, schema)
        case "array":
            return st.lists(drawn(revision, schema.get("items", {})), max_size=min(2, schema.get("maxItems", 2)))
        case "integer":
            return st.integers(schema.get("minimum"), schema.get("maximum"))
        case "number" if "minimum" in schema:
            return st.floats(schema["minimum"], schema["maximum"]) | st.integers(schema["minimum"], schema["maximum"])
        case "number":
            return numbers
    return SCALARS[kind]


def objects(revision: Revision, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Required members, some of the others, and some that nobody knows."""
    properties = {name: drawn(revision, inner) for name, inner in schema.get("properties", {}).items()}
    required = {name: properties[name] for name in schema.get("required", ())}
    optional = {name: inner for name, inner in properties.items() if name not in required}
    more = schema.get("additionalProperties", True)
    unknown = st.dictionaries(
        texts if not properties and isinstance(more, dict) else st.sampled_from(sorted({*UNKNOWN} - properties.keys())),
        drawn(revision, more) if isinstance(more, dict) else anything,
        max_size=0 if more is False else 2,
    )
    known = st.fixed_dictionaries(required, optional=optional)
    found = st.builds(lambda others, ours: {**others, **ours}, unknown, known)
    one_of_these = schema.get("x-one-of-these")
    return found.filter(lambda value: any(name in value for name in one_of_these)) if one_of_these else found


def flat(revision: Revision, schema: dict[str, Any]) -> dict[str, Any]:
    """References followed, and the parts of `allOf` laid over one another: the later part is the narrower."""
    if "$ref" in schema:
        return flat(revision, definitions(revision)[schema["$ref"].rsplit("/", 1)[1]])
    if "allOf" not in schema:
        return schema
    properties: dict[str, Any] = {}
    required: set[str] = set()
    for part in schema["allOf"]:
        found = flat(revision, part)
        properties |= found.get("properties", {})
        required |= set(found.get("required", ()))
    return {"type": "object", "properties": properties, "required": sorted(required)}
