"""Unions: which branch a JSON value belongs to, decided before any branch is read.

The JSON type decides first. Among objects a tag decides (`type`, `method`, `mode`), then the marks: members that only
one branch has. One branch is read, so an error names what is wrong in it and not in all the others.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, get_args, get_origin

from cattrs import Converter

from callboard.codecs.revisions._read import (
    SCALARS,
    Misfit,
    Reader,
    is_literal,
    is_model,
    one_of,
    wire_type,
)
from callboard.codecs.revisions.model import UNSET, Model, members, required_members
from callboard.codecs.revisions.revision import Revision

TAGS: Final = ("type", "method", "mode")
"""Members that may tell the branches of a union apart, in the order they are tried."""

_NAMES: Final[Mapping[type, str]] = {
    str: "a string",
    float: "a number",
    int: "an integer",
    bool: "a boolean",
    type(None): "null",
    list: "an array",
    dict: "an object",
}

Branches: TypeAlias = list[tuple[tuple[str, ...], Reader]]


def union_reader(revision: Revision, form: Any, converter: Converter) -> Reader:
    """Dispatch on the JSON type; objects go on to the branch their tag and marks name."""
    table: dict[type, Reader] = {}
    for arg in get_args(form):
        if arg in SCALARS:
            table[arg] = SCALARS[arg]
        elif get_origin(arg) is Sequence:
            table[list] = converter.get_structure_hook(arg)
    models = [arg for arg in get_args(form) if is_model(arg) and revision in arg.known]
    if models:
        table[dict] = model_chooser(revision, models, converter)
    expected = "expected " + " or ".join(name for kind, name in _NAMES.items() if kind in table)
    if float in table:
        table[int] = table[float]
    elif int in table and str not in table:  # where a string may stand it is an id or a token: kept as it was written
        table[float] = table[int]

    def read(value: Any, _: Any) -> Any:
        hook = table.get(type(value))
        if hook is None:
            raise Misfit(expected, value)
        return hook(value, None)

    return read


def model_chooser(revision: Revision, models: Sequence[type[Model]], converter: Converter) -> Reader:
    """Among objects: the branches for the tag, and of these the first with all its marks present."""
    tag = common_tag(revision, models)
    table: dict[object, Branches] = {}
    for model in models:
        for value in tag_values(revision, model, tag):
            table.setdefault(value, []).append((model.marks, converter.get_structure_hook(model)))
    for branches in table.values():
        branches.sort(key=lambda branch: -len(branch[0]))
    tags = "expected " + one_of(frozenset(value for value in table if isinstance(value, str)) or frozenset({tag}))

    def read(value: Any, _: Any) -> Any:
        found = value.get(tag, UNSET) if tag else UNSET  # "" is a member like any other, and no tag
        if found is None and UNSET in table:  # null for a member that may be absent is read as absent
            found = UNSET
        branches = table.get(found) if type(found) is str or found is UNSET else None
        if branches is None:
            misfit = Misfit(tags, found)
            misfit.steps.append(tag)
            raise misfit
        for marks, hook in branches:
            if all(bears(value, mark) for mark in marks):
                return hook(value, None)
        raise Misfit("expected a member out of " + ", ".join(sorted({marks[0] for marks, _ in branches})))

    return read


def common_tag(revision: Revision, models: Sequence[type[Model]]) -> str:
    """The one tag that all branches carry, or nothing: then the marks alone decide."""
    return next((tag for tag in TAGS if all(tag_values(revision, model, tag) for model in models)), "")


def tag_values(revision: Revision, model: type[Model], tag: str) -> frozenset[object]:
    """Possible values of *tag* in *model*, with `UNSET` if it may be absent."""
    if not tag:
        return frozenset({UNSET})
    field = members(model, revision).get(tag)
    if field is None or not is_literal(form := wire_type(field, revision)):
        return frozenset()
    absent = frozenset() if tag in required_members(model, revision) else frozenset({UNSET})
    return frozenset(get_args(form)) | absent


def bears(value: Any, mark: str) -> bool:
    """Whether an object has the member that *mark* names; a dot reaches into a member."""
    for step in mark.split("."):
        if type(value) is not dict or step not in value:
            return False
        value = value[step]
    return True
