"""The guard of definitions: each tool, prompt, resource and template of a backend passes here when it is read.

A definition is mended where that is harmless, or refused with a reason. What passes is valid in every revision of the
protocol and within our limits, so nothing behind this module has to expect anything else. Pure functions over bytes:
the caller remembers the outcome by those bytes, and uses a thread where there are many.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias

import attrs
import msgspec
from msgspec import Raw

from callboard.codecs.bridge.apps import SCHEME as UI_SCHEME
from callboard.codecs.bridge.apps import uris_of
from callboard.codecs.bridge.definitions import MAX_DESCRIPTION, PROMPTS, RESOURCES, TEMPLATES, TOOLS, Kind, digest_of
from callboard.codecs.bridge.hidden import HiddenArguments
from callboard.codecs.bridge.input_schema import mend_input_schema, mend_schema, without_nulls
from callboard.codecs.bridge.names import hides_text, problem_with
from callboard.codecs.json_scan import check_value
from callboard.codecs.mcp_headers.header_map import ANNOTATION, NO_HEADERS, HeaderMap
from callboard.codecs.members import Members, raw, read_members, write_members
from callboard.codecs.revisions import (
    LATEST,
    Annotations,
    Icon,
    JSONObject,
    PromptArgument,
    Revision,
    ToolAnnotations,
    ToolExecution,
    read_form,
)
from callboard.codecs.revisions.revision import R4
from callboard.codecs.uri_template.match import MAX_URI
from callboard.codecs.uri_template.template import UriTemplate
from callboard.errors import BadAnswer, InvalidDefinition, InvalidParams, PeerError

MAX_DEFINITION: Final = 64 * 1024
"""Largest definition that is shown, in bytes. The largest tools of real servers have some 20 KiB."""

MAX_DEFINITION_DEPTH: Final = 48
"""Deepest nesting in a definition. It stands four levels down in an answer, and a frame may have 64."""

HIDDEN: Final = "hidden text"
CUT: Final = "cut"

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")  # RFC 3986
_ABSENT: Final = object()
_read_array = msgspec.json.Decoder(list[Raw]).decode
_Form: TypeAlias = tuple[Revision, Any]
_COMMON: Final[Mapping[str, _Form]] = {
    "title": (LATEST, str),
    "description": (LATEST, str),
    "icons": (LATEST, Sequence[Icon]),
    "_meta": (LATEST, JSONObject),
}
_OF_RESOURCES: Final[Mapping[str, _Form]] = {
    **_COMMON,
    "mimeType": (LATEST, str),
    "annotations": (LATEST, Annotations),
}
# What may be absent, and the form that it must have if it is there. The forms of the latest revision include those of
# all before it, but for `execution`, which came and went. Schemas are looked at by themselves.
_OPTIONAL: Final[Mapping[str, Mapping[str, _Form]]] = {
    TOOLS.member: {**_COMMON, "annotations": (LATEST, ToolAnnotations), "execution": (R4, ToolExecution)},
    PROMPTS.member: {**_COMMON, "arguments": (LATEST, Sequence[PromptArgument])},
    RESOURCES.member: {**_OF_RESOURCES, "size": (LATEST, int)},
    TEMPLATES.member: _OF_RESOURCES,
}


@attrs.frozen(eq=False)
class Definition:
    """A definition that passed. Kept as bytes: taken apart, one of many small members takes thirty times as much."""

    kind: Kind
    name: str
    """The name, URI or template at the backend."""
    data: bytes
    """The definition for clients."""
    digest: str = ""
    """Of a tool: what it is pinned by."""
    headers: HeaderMap = NO_HEADERS
    """The arguments that clients repeat in HTTP headers."""
    back_headers: HeaderMap | None = None
    """Those that the backend wants repeated; None if they are the same."""
    hidden: HiddenArguments | None = None
    """Of a tool: the arguments that clients are not shown, if there are any."""
    withheld: str = ""
    """Why clients are not shown it, if they are not."""
    ui: tuple[str, ...] = ()
    """The `ui://` URIs that it is about: those that a tool names, or a resource's own."""
    is_matchable: bool = False
    """Of a template: whether URIs can be matched with it."""
    flags: tuple[str, ...] = ()
    mended: tuple[str, ...] = ()
    """Members that are others than the backend sent, or gone."""

    @property
    def members(self) -> Members:
        return read_members(self.data)

    @cached_property
    def template(self) -> UriTemplate:
        """The template, ready to be matched. Made when it is needed: few of many are."""
        return UriTemplate.parse(self.name)


@attrs.frozen(eq=False)
class Refused:
    """A definition that is left out."""

    name: str | None
    reason: str


Examined: TypeAlias = Definition | Refused


def examine(kind: Kind, data: bytes, without: Sequence[str] = ()) -> Examined:
    """Check one definition, mend it, and work out all that is derived from it alone. It is shown *without* these
    members, which mean nothing at its backend."""
    try:
        return _checked(kind, data, without)
    except PeerError as error:
        return Refused(_name_in(kind, data), str(error))
    except Exception as error:  # a trust boundary: a definition that breaks our code is left out, alone
        return Refused(_name_in(kind, data), f"cannot be read ({type(error).__name__})")


def examine_all(kind: Kind, several: Iterable[bytes], without: Sequence[str] = ()) -> list[Examined]:
    return [examine(kind, data, without) for data in several]


def part_twins(examined: Sequence[Examined]) -> tuple[list[Definition], list[Refused]]:
    """Sort out what may be shown. A name that stands for two different definitions stands for none: which one a call
    would reach, and which one was approved, is unknown. The same definition twice counts once."""
    distinct = list(dict.fromkeys(examined))
    named = Counter(one.name for one in distinct)
    kept: list[Definition] = []
    refused: list[Refused] = []
    for one in distinct:
        if isinstance(one, Refused):
            refused.append(one)
        elif named[one.name] > 1:
            refused.append(Refused(one.name, "is a duplicate"))
        else:
            kept.append(one)
    return kept, refused


def mended_list(kind: Kind, value: Raw | None) -> tuple[list[Members], list[Refused]]:
    """The definitions of a page that is not what the protocol says: those that pass, and those that are left out.

    Raises `BadAnswer` if it is no list at all.
    """
    examined = [examine(kind, bytes(one)) for one in read_list(kind, value)]
    kept = [one.members for one in examined if isinstance(one, Definition)]
    return kept, [one for one in examined if isinstance(one, Refused)]


def read_list(kind: Kind, value: Raw | None) -> list[Raw]:
    """The entries of a page. Go writes null for a list that has nothing in it, and others leave it out.

    Raises `BadAnswer` if it is no list at all.
    """
    if value is None or bytes(value) == b"null":
        return []
    try:
        return _read_array(value)
    except msgspec.MsgspecError:
        raise BadAnswer(f"{kind.method}: expected a list of definitions") from None


def _checked(kind: Kind, data: bytes, without: Sequence[str]) -> Definition:
    """Raises `PeerError` with the reason why it is left out."""
    if len(data) > MAX_DEFINITION:
        raise InvalidDefinition(f"is larger than {MAX_DEFINITION} bytes")
    members: Members = read_members(data)
    check_value(data, MAX_DEFINITION_DEPTH)
    found: dict[str, Any] = msgspec.json.decode(data)
    name = _key_of(kind, found)
    mended = {key: value for key, value in found.items() if key not in without}
    flags = [HIDDEN] if _hides_text(data, found) else []
    _mend_required(kind, mended)
    _mend_optional(kind, mended)
    if len(mended.get("description", "")) > MAX_DESCRIPTION:
        mended["description"] = mended["description"][:MAX_DESCRIPTION]
        flags.append(CUT)
    others = tuple(key for key in {**found, **mended} if found.get(key, _ABSENT) is not mended.get(key, _ABSENT))
    may_mirror = kind is TOOLS and (ANNOTATION.encode() in data or b"\\" in data)
    shown = {key: raw(value) if key in others else members[key] for key, value in mended.items()} if others else {}
    return Definition(
        kind,
        name,
        write_members(shown) if others else data,
        digest=digest_of(members) if kind is TOOLS else "",
        headers=HeaderMap.compile(mended["inputSchema"]) if may_mirror else NO_HEADERS,
        ui=_ui_of(kind, name, mended),
        is_matchable=kind is TEMPLATES and UriTemplate.parse(name).unmatchable is None,
        flags=tuple(flags),
        mended=tuple(key for key in others if key not in without),
    )


def _ui_of(kind: Kind, name: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    if kind is TOOLS:
        return tuple(uri for uri in uris_of(found.get("_meta")) if len(uri) <= MAX_URI)
    return (name,) if kind is RESOURCES and name.startswith(UI_SCHEME) else ()


def _key_of(kind: Kind, found: Mapping[str, Any]) -> str:
    name = found.get(kind.key)
    if not isinstance(name, str) or not name:
        raise InvalidDefinition(f"has no {kind.key}")
    if kind in (TOOLS, PROMPTS):
        problem = problem_with(name)
    elif len(name) > MAX_URI:
        problem = f"has a URI longer than {MAX_URI} characters"
    elif kind is RESOURCES and _SCHEME.match(name) is None:
        problem = "has a URI without a scheme"
    else:
        problem = None
    if problem is not None:
        raise InvalidDefinition(problem)
    return name


def _mend_required(kind: Kind, found: dict[str, Any]) -> None:
    if kind is TOOLS:
        found["inputSchema"] = mend_input_schema(found.get("inputSchema"))
        output = found.get("outputSchema")
        if isinstance(output, dict):
            found["outputSchema"] = mend_schema(output)
        else:
            found.pop("outputSchema", None)
    elif kind is not PROMPTS and (not isinstance(found.get("name"), str) or not found["name"]):
        found["name"] = found[kind.key]


def _mend_optional(kind: Kind, found: dict[str, Any]) -> None:
    """Drop what may be absent and is null, or is not what the protocol says that it is."""
    for key, (revision, form) in _OPTIONAL[kind.member].items():
        if key not in found:
            continue
        value = found[key] if key == "_meta" else _pruned(found[key])
        try:
            read_form(revision, form, value)
        except InvalidParams:
            del found[key]
        else:
            found[key] = value


def _pruned(value: Any) -> Any:
    """An object, or an array of them, without members that are null: the same one if there are none."""
    if isinstance(value, dict):
        return without_nulls(value)
    if isinstance(value, list):
        items = [without_nulls(item) if isinstance(item, dict) else item for item in value]
        return value if all(one is other for one, other in zip(items, value, strict=True)) else items
    return value


def _hides_text(data: bytes, found: object) -> bool:
    """Whether any text in it, keys included, has characters that cannot be seen. Escapes need a backslash."""
    if data.isascii() and b"\\" not in data:
        return False
    return hides_text("\n".join(_texts(found)))


def _texts(found: object) -> Iterator[str]:
    stack = [found]
    while stack:
        match stack.pop():
            case str(text):
                yield text
            case dict(members):
                yield from members
                stack.extend(members.values())
            case list(items):
                stack.extend(items)


def _name_in(kind: Kind, data: bytes) -> str | None:
    """The name of a definition for the log, however broken the definition is."""
    try:
        name = msgspec.json.decode(read_members(data)[kind.key])
    except (PeerError, KeyError, msgspec.MsgspecError, RecursionError):
        return None
    return name if isinstance(name, str) and name else None
