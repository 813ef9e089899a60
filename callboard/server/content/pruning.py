"""A value cut down to a size at which finding out what is wrong with it takes no time.

The validator looks for everything that is wrong at once, and copies much of the value for each problem: a minute, and
gigabytes, for a list of a hundred thousand wrong items. A few problems are told. So it is given the beginning of each
list and object, and what may only be wrong because something was cut away is not told.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

MAX_VALUES: Final = 300
"""Values, inside of each other or not, that are looked at for problems."""

MAX_TEXT: Final = 64 * 1024
"""Characters of all strings together that are looked at for problems."""

MAX_MEMBERS: Final = 50
"""Items of a list, and members of an object that no schema names, that are looked at for problems."""

# What stays true of a container or a string however much of it is cut away.
_STILL_TRUE: Final = frozenset(
    {
        "additionalProperties",
        "const",
        "enum",
        "maxItems",
        "maxLength",
        "maxProperties",
        "propertyNames",
        "required",
        "type",
        "unevaluatedProperties",
    }
)

_Path = tuple[str | int, ...]


@attrs.define(eq=False)
class Pruned:
    """The copy, and where something is missing from it."""

    value: Any = None
    _names: frozenset[str] = frozenset()
    _values: int = MAX_VALUES
    _text: int = MAX_TEXT
    _cut: set[_Path] = attrs.field(factory=set)
    _emptied: set[_Path] = attrs.field(factory=set)

    @property
    def is_whole(self) -> bool:
        return not self._cut

    def holds(self, error: Any) -> bool:
        """Whether what the validator found is wrong with the whole value, too."""
        path, name = tuple(error.instance_path), error.kind.name
        if path in self._emptied:
            return bool(name == "type")
        if not any(cut[: len(path)] == path for cut in self._cut):
            return True
        if name in ("anyOf", "oneOf"):
            return all(any(map(self.holds, branch)) for branch in error.kind.value)
        return name in _STILL_TRUE

    def copy(self, value: Any, path: _Path = ()) -> Any:
        self._values -= 1
        if isinstance(value, str):
            return self._copy_text(value, path)
        if isinstance(value, dict | list):
            if self._values <= 0 and value:
                self._cut.add(path)
                self._emptied.add(path)
                return type(value)()
            return self._copy_list(value, path) if isinstance(value, list) else self._copy_object(value, path)
        return value

    def _copy_text(self, value: str, path: _Path) -> str:
        if len(value) > max(self._text, 0):
            self._cut.add(path)
            value = value[: max(self._text, 0)]
        self._text -= len(value)
        return value

    def _copy_list(self, value: list[Any], path: _Path) -> list[Any]:
        copied: list[Any] = []
        for index, item in enumerate(value[:MAX_MEMBERS]):
            if self._values <= 0:
                break
            copied.append(self.copy(item, (*path, index)))
        if len(copied) < len(value):
            self._cut.add(path)
        return copied

    def _copy_object(self, value: dict[str, Any], path: _Path) -> dict[str, Any]:
        named = [name for name in value if name in self._names] if len(value) > MAX_MEMBERS else list(value)
        copied = {name: self.copy(value[name], (*path, name)) for name in named}
        for name in value:
            if len(copied) >= MAX_MEMBERS + len(named) or self._values <= 0:
                break
            if name not in copied:
                copied[name] = self.copy(value[name], (*path, name))
        if len(copied) < len(value):
            self._cut.add(path)
        return copied


def prune(value: Any, schema: Mapping[str, Any]) -> Pruned:
    """Cut *value* down. Members that *schema* names anywhere stay where they are."""
    pruned = Pruned(names=frozenset(_names(schema)))
    pruned.value = pruned.copy(value)
    return pruned


def _names(schema: Mapping[str, Any]) -> Iterator[str]:
    stack: list[Any] = [schema]
    while stack:
        here = stack.pop()
        if isinstance(here, Mapping):
            properties = here.get("properties")
            if isinstance(properties, Mapping):
                yield from properties
            stack.extend(here.values())
        elif isinstance(here, list | tuple):
            stack.extend(here)


def is_small(value: Any, most: int) -> bool:
    """Whether *value* has at most so many values inside, and no more characters than *most* times 32."""
    values, text, stack = most, 32 * most, [value]
    while stack:
        here = stack.pop()
        values -= 1
        if isinstance(here, str):
            text -= len(here)
        elif isinstance(here, dict):
            values -= len(here)  # the names: they are copied, too
            stack.extend(here.values() if len(here) <= values else ())
        elif isinstance(here, list):
            stack.extend(here if len(here) <= values else ())
            if len(here) > values:
                return False
        if values < 0 or text < 0:
            return False
    return True
