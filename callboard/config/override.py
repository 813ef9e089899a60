"""`callboard.override`: what clients are shown of a server's tools and prompts in place of what it says."""

import math
from collections.abc import Mapping
from typing import Any, Final

from callboard.codecs.bridge.definitions import MAX_DESCRIPTION
from callboard.codecs.bridge.overrides import HINTS, NO_OVERRIDES, ToolOverride
from callboard.config.reader import Place, Table, quoted

OVERRIDE_KEYS: Final = ("title", "description", "hide", "fixed", "annotations")

_MOST: Final = 2**63  # further than that no reader of JSON agrees with another

_TEXTS: Final = ("title", "description")


def read_overrides(table: Table) -> Mapping[str, ToolOverride]:
    """Read all overrides of a server, by the names that it gives its tools; an invalid one is reported."""
    members = table.table("override").members
    return {name: _override(place) for name, place in members.items()} if members else NO_OVERRIDES


def _override(place: Place) -> ToolOverride:
    table = place.table()
    table.warn_unknown(OVERRIDE_KEYS)
    if place.node.members is not None and not any(key in table.members for key in OVERRIDE_KEYS):
        place.warn(f"changes nothing: expected {', '.join(OVERRIDE_KEYS)}")
    texts = {key: table.text(key, None) for key in _TEXTS}
    for key, text in texts.items():
        if text is not None and len(text) > MAX_DESCRIPTION:
            table.members[key].wrong(f"is longer than {MAX_DESCRIPTION} characters")
    hide, fixed = table.texts("hide"), table.table("fixed")
    for name, at in fixed.members.items():
        if name in hide:
            at.wrong(f"hides {quoted(name)} as well: remove it from `hide`")
    annotations = table.table("annotations")
    annotations.warn_unknown(HINTS)
    return ToolOverride(
        title=texts["title"],
        description=texts["description"],
        hide=hide,
        fixed={name: _json(at) for name, at in fixed.members.items()},
        annotations={key: annotations.flag(key) for key in HINTS if key in annotations.members},
    )


def _json(place: Place) -> Any:
    """A value as JSON has it, with what the environment holds."""
    node = place.node
    if node.members is not None:
        return {name: _json(at) for name, at in Table.of(place).members.items()}
    if node.items is not None:
        return [_json(Place(item, f"{place.where}[{at}]", place.report)) for at, item in enumerate(node.items)]
    if isinstance(node.value, str):
        return place.expanded()
    match node.value:
        case None | bool():
            return node.value
        case int(number) if abs(number) < _MOST:
            return number
        case float(number) if math.isfinite(number):
            return number
    place.wrong("is not a value that JSON has")
    return None
