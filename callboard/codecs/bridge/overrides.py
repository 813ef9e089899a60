"""What an operator shows of a tool or prompt in place of what its server says: texts, hints, fewer arguments.

The digest stays that of the server's own definition, so a pin notices each change of the server, overridden or not.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import attrs
import msgspec

from callboard.codecs.bridge.definitions import PROMPTS, TOOLS, Kind
from callboard.codecs.bridge.guard import Definition, Examined, Refused, examine, examine_all
from callboard.codecs.bridge.hidden import HiddenArguments
from callboard.codecs.members import Members, raw, write_members
from callboard.errors import InvalidDefinition

HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
"""Annotations of a tool that are true or false."""

# At the root of a schema these may speak of any argument, so taking one out of `properties` would not hide it, or would
# change what the rest means.
_TELLING: Final = frozenset(
    {
        *("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
        *("dependentRequired", "dependentSchemas", "dependencies", "patternProperties", "propertyNames"),
        *("minProperties", "maxProperties", "const", "enum", "unevaluatedProperties"),
    }
)
_VALUES: Final = ("default", "examples", "example")  # of all arguments together: they show what is hidden
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


@attrs.frozen(kw_only=True)
class ToolOverride:
    """Changes to one tool, by the name that its server gives it. Title and description are also a prompt's."""

    title: str | None = None
    description: str | None = None
    hide: tuple[str, ...] = ()
    """Arguments that clients are not shown and may not give."""
    fixed: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    """Arguments that are put into each call, and hidden."""
    annotations: Mapping[str, Any] = attrs.field(factory=dict)
    """Hints in place of the server's, each by itself."""

    @property
    def hidden(self) -> frozenset[str]:
        """The arguments that clients are not shown."""
        return frozenset((*self.hide, *self.fixed))

    @property
    def is_for_tools(self) -> bool:
        """Whether it says something that a prompt does not have."""
        return bool(self.hidden or self.annotations)


NO_OVERRIDES: Final[Mapping[str, ToolOverride]] = {}


def examine_overridden(
    kind: Kind, several: Iterable[bytes], without: Sequence[str], overrides: Mapping[str, ToolOverride]
) -> list[Examined]:
    """As `examine_all`, with what the operator says in place of the server."""
    examined = examine_all(kind, several, without)
    if not overrides or kind not in (TOOLS, PROMPTS):
        return examined
    return [
        overridden(one, overrides[one.name]) if isinstance(one, Definition) and one.name in overrides else one
        for one in examined
    ]


def overridden(one: Definition, by: ToolOverride) -> Definition:
    """The definition that clients see. One that cannot be changed so is withheld, with the reason: shown unchanged it
    would offer what the operator wants hidden."""
    try:
        members, hidden = _changed(one, by)
    except InvalidDefinition as error:
        return attrs.evolve(one, withheld=f"its override cannot be applied: {error}")
    except Exception as error:  # a trust boundary, as in the guard: the schema is the server's
        return attrs.evolve(one, withheld=f"its override cannot be applied ({type(error).__name__})")
    shown = examine(one.kind, write_members(members))
    if isinstance(shown, Refused):
        return attrs.evolve(one, withheld=f"with its override it {shown.reason}")
    return attrs.evolve(shown, digest=one.digest, mended=one.mended, back_headers=one.headers, hidden=hidden)


def unused(overrides: Mapping[str, ToolOverride], tools: Iterable[str], prompts: Iterable[str]) -> list[str]:
    """The names of *overrides* that a server has nothing for."""
    of_tools, of_prompts = set(tools), set(prompts)
    return [
        name for name, one in overrides.items() if name not in of_tools and (one.is_for_tools or name not in of_prompts)
    ]


def _changed(one: Definition, by: ToolOverride) -> tuple[Members, HiddenArguments | None]:
    """Raises `InvalidDefinition`."""
    members = dict(one.members)
    texts = {"title": by.title, "description": by.description}
    members |= {key: raw(text) for key, text in texts.items() if text is not None}
    if one.kind is not TOOLS:
        return members, None
    annotations: dict[str, Any] = msgspec.json.decode(members["annotations"]) if "annotations" in members else {}
    if by.title is not None and "title" in annotations:  # clients of 2025-03-26 know no other
        annotations["title"] = by.title
    annotations.update(by.annotations)
    if annotations:
        members["annotations"] = raw(annotations)
    if not by.hidden:
        return members, None
    schema = msgspec.json.decode(members["inputSchema"])
    members["inputSchema"] = raw(_without(schema, by))
    return members, HiddenArguments.of(by.hidden, frozenset(schema["properties"]), by.fixed)


def _without(schema: dict[str, Any], by: ToolOverride) -> dict[str, Any]:
    """The schema without the hidden arguments. Raises `InvalidDefinition` where they cannot be taken out."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    for name in sorted(by.hidden):
        if name not in properties:
            raise InvalidDefinition(f"it has no argument {name[:64]!r}")
        if name in required and name not in by.fixed:
            raise InvalidDefinition(f"{name[:64]!r} is required: give it a fixed value")
    if telling := sorted(_TELLING & schema.keys()):
        raise InvalidDefinition(f"the schema has {', '.join(f'`{key}`' for key in telling)} beside its arguments")
    _check_references(schema, by.hidden)
    left = {key: value for key, value in schema.items() if key not in _VALUES}
    left["properties"] = {name: inner for name, inner in properties.items() if name not in by.hidden}
    if "required" in left:
        left["required"] = [name for name in required if name not in by.hidden]
    return left


def _check_references(schema: dict[str, Any], hidden: frozenset[str]) -> None:
    """Raises `InvalidDefinition` if a part of the schema points to a hidden argument, or to all arguments."""
    for reference in _references(schema):
        before, _, fragment = reference.partition("#")
        steps = [unquote(step).replace("~1", "/").replace("~0", "~") for step in fragment.split("/")]
        is_of_parts = not before and len(steps) > 2 and steps[0] == "" and steps[1] in ("$defs", "definitions")
        is_of_shown = not before and len(steps) > 2 and steps[:2] == ["", "properties"] and steps[2] not in hidden
        if not is_of_parts and not is_of_shown:
            raise InvalidDefinition(f"the schema has a reference {reference[:64]!r}")


def _references(value: object) -> Iterator[str]:
    stack = [value]
    while stack:
        match stack.pop():
            case dict(members):
                yield from (str(members[key]) for key in _REFERENCES if isinstance(members.get(key), str))
                stack.extend(members.values())
            case list(items):
                stack.extend(items)
