"""Operations of an API as tools: their names, the schemas of their arguments, and what they promise."""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs
import msgspec

from callboard.codecs.bridge.names import prefixed
from callboard.codecs.openapi.document import ApiDocument, RawOperation, UnusableOperation
from callboard.codecs.openapi.schemas import (
    MAX_SCHEMA_BYTES,
    Schema,
    SchemaBudget,
    SchemaTooLarge,
    StandaloneSchemas,
)
from callboard.codecs.revisions import ToolAnnotations

MAX_PARAMETERS: Final = 200
"""Most parameters of one operation."""

MAX_DESCRIPTION: Final = 4000
"""Longest description of a tool, in characters."""

BODY: Final = "body"
FORM: Final = "application/x-www-form-urlencoded"
RESULT: Final = "result"
"""The one member of the object around a result that is no object."""

Where: TypeAlias = Literal["path", "query", "header", "cookie"]

_UNFIT: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_ARGUMENT: Final = 64
_STYLES: Final[Mapping[str, tuple[str, ...]]] = {
    "path": ("simple",),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_OWN_HEADERS: Final = frozenset(
    (
        *("accept", "content-type", "authorization", "host", "content-length", "transfer-encoding", "connection"),
        *("keep-alive", "te", "trailer", "upgrade", "expect", "cookie", "proxy-authorization", "forwarded", "via"),
        *("accept-encoding", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "range"),
    )
)
"""Headers that are not a model's to say: they are of the connection, a credential, or said already."""


@attrs.frozen(kw_only=True)
class ApiParameter:
    """One argument that goes into the path, the query, a header or a cookie."""

    argument: str
    name: str
    where: Where
    style: str
    explodes: bool
    is_json: bool = False
    is_required: bool = False
    schema: Any = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class ApiBody:
    """What is sent: JSON, which is one argument or an object of several, or a form of several."""

    media_type: str
    is_required: bool
    whole: str | None = None
    """The argument that it is."""
    members: Mapping[str, str] = attrs.field(factory=dict)
    """The members of the object, by their arguments."""
    fields: tuple[ApiParameter, ...] = ()
    """Those of a form."""


@attrs.frozen(kw_only=True)
class ApiOperation:
    """One operation, as a tool."""

    name: str
    method: str
    path: str
    title: str
    description: str
    parameters: tuple[ApiParameter, ...]
    body: ApiBody | None
    input_schema: Schema
    output_schema: Schema | None
    is_wrapped: bool
    """Whether a result stands under `result`."""
    annotations: ToolAnnotations


@attrs.frozen
class SkippedOperation:
    """An operation that is no tool, and why."""

    title: str
    why: str


def read_operations(
    document: ApiDocument, *, taken_headers: frozenset[str] = frozenset()
) -> tuple[list[ApiOperation], list[SkippedOperation]]:
    """All operations of the document. Headers that the operator sets are *taken*: in lower case. Raises `BadOpenApi`
    if they are too many."""
    found: dict[str, ApiOperation] = {}
    skipped: list[SkippedOperation] = []
    budgets = SchemaBudget(), SchemaBudget()
    for raw in document.operations():
        try:
            name = _name(raw, found)
            found[name] = _Reading(document, raw, name, taken_headers, *budgets).operation()
        except UnusableOperation as error:
            skipped.append(SkippedOperation(raw.title, str(error)))
    return list(found.values()), skipped


def _name(raw: RawOperation, taken: Mapping[str, object]) -> str:
    said = raw.said.get("operationId")
    base = _UNFIT.sub("_", said if isinstance(said, str) else "").strip("_")
    if not base:
        base = _UNFIT.sub("_", f"{raw.method}_{raw.path.strip('/')}").strip("_")
    base, number = prefixed("", base[:1024]), 2
    name = base
    while name in taken:
        name, number = prefixed("", f"{base[:58]}_{number}"), number + 1
    return name


class _Reading:
    """Reads one operation."""

    def __init__(
        self,
        document: ApiDocument,
        raw: RawOperation,
        name: str,
        taken_headers: frozenset[str],
        budget: SchemaBudget,
        out_budget: SchemaBudget,
    ) -> None:
        self.document = document
        self.raw = raw
        self.name = name
        self.taken_headers = taken_headers
        self.budget, self.out_budget = budget, out_budget
        self.schemas = StandaloneSchemas(document, "in", budget)
        self.properties: dict[str, Any] = {}
        self.required: list[str] = []

    def operation(self) -> ApiOperation:
        """Raises `UnusableOperation`."""
        raw = self.raw
        if "servers" in raw.said or "servers" in raw.item:
            raise UnusableOperation("it is at another server than the rest")
        parameters = tuple(self._parameters())
        _check_path(raw.path, parameters)
        body = self._body()
        summary, said = _text(raw.said.get("summary")), _text(raw.said.get("description"))
        description = said or summary or raw.title
        if raw.said.get("deprecated") is True:
            description = f"Deprecated. {description}"
        output, is_wrapped = self._output()
        return ApiOperation(
            name=self.name,
            method=raw.method.upper(),
            path=raw.path,
            title=summary[:200],
            description=description[:MAX_DESCRIPTION],
            parameters=parameters,
            body=body,
            input_schema=self._input(),
            output_schema=output,
            is_wrapped=is_wrapped,
            annotations=_hints(raw.method),
        )

    def _input(self) -> Schema:
        schema: Schema = {"type": "object", "properties": self.properties, "additionalProperties": False}
        if self.required:
            schema["required"] = self.required
        try:
            return self.schemas.whole(schema)
        except SchemaTooLarge:  # the API itself says what it does not take
            bare = {**schema, "properties": {name: _without_schema(one) for name, one in self.properties.items()}}
        size = len(msgspec.json.encode(bare))
        if size > min(MAX_SCHEMA_BYTES, self.budget.size):
            return {**schema, "properties": {name: {} for name in self.properties}}
        self.budget.size -= size
        return bare

    def _schema(self, said: object) -> Any:
        try:
            return self.schemas.of(said)
        except SchemaTooLarge:
            self.schemas = StandaloneSchemas(self.document, "in", self.budget)
            self.properties = {name: _without_schema(one) for name, one in self.properties.items()}
            return {}

    def _take(self, name: str, where: str, schema: Any, *, is_required: bool) -> str:
        """The argument for *name*. One that is taken is named with where it goes."""
        base = (_UNFIT.sub("_", name).strip("_") or where)[:_ARGUMENT]
        argument, number = base, 2
        if argument in self.properties:
            argument = base = f"{where}_{base}"[:_ARGUMENT]
        while argument in self.properties:
            argument, number = f"{base[: _ARGUMENT - 4]}_{number}", number + 1
        self.properties[argument] = schema
        if is_required:
            self.required.append(argument)
        return argument

    # Parameters.

    def _parameters(self) -> list[ApiParameter]:
        found: dict[tuple[str, str], Mapping[str, Any]] = {}
        for of in (self.raw.item, self.raw.said):
            said = of.get("parameters", [])
            for one in said if isinstance(said, list) else []:
                parameter = self.document.follow(one)
                found[_text(parameter.get("in")), _text(parameter.get("name"))] = parameter
        if len(found) > MAX_PARAMETERS:
            raise UnusableOperation(f"it has more than {MAX_PARAMETERS} parameters")
        return [one for said in found.values() if (one := self._parameter(said)) is not None]

    def _parameter(self, said: Mapping[str, Any]) -> ApiParameter | None:
        name, where = _text(said.get("name")), said.get("in")
        if where not in ("path", "query", "header", "cookie") or not name:
            raise UnusableOperation(f"a parameter is in {where!r:.40}, or has no name")
        if where == "header" and self._is_not_the_models(name):
            return None
        if where == "cookie" and "cookie" in self.taken_headers:
            return None
        style = said.get("style", _STYLES[where][0])
        if style not in _STYLES[where]:
            raise UnusableOperation(f"the style {style!r:.40} of the parameter {name[:100]!r} is not supported")
        is_required = where == "path" or said.get("required") is True
        schema, is_json = said.get("schema"), False
        if isinstance(content := said.get("content"), dict):
            media_type, schema = _json_of(content)
            if media_type is None:
                raise UnusableOperation(f"the parameter {name[:100]!r} is not JSON")
            is_json = True
        described = self._schema(schema if isinstance(schema, dict) else {})
        if isinstance(described, dict) and _text(said.get("description")):
            described = {**described, "description": _text(said["description"])[:1000]}
        argument = self._take(name, where, described, is_required=is_required)
        explodes = said.get("explode")
        return ApiParameter(
            argument=argument,
            name=name,
            where=where,
            style=style,
            explodes=explodes if isinstance(explodes, bool) else style == "form",
            is_json=is_json,
            is_required=is_required,
        )

    def _is_not_the_models(self, name: str) -> bool:
        if _HEADER.fullmatch(name) is None:
            raise UnusableOperation(f"{name[:100]!r} is not the name of a header")
        return name.lower() in _OWN_HEADERS or name.lower() in self.taken_headers

    # The body.

    def _body(self) -> ApiBody | None:
        if "requestBody" not in self.raw.said:
            return None
        said = self.document.follow(self.raw.said["requestBody"])
        is_required = said.get("required") is True
        content = said.get("content")
        content = content if isinstance(content, dict) else {}
        media_type, schema = _json_of(content)
        if media_type is None:
            if isinstance(form := content.get(FORM), dict):
                return self._form(form, is_required=is_required)
            if is_required:
                raise UnusableOperation("its body is neither JSON nor a form")
            return None
        members = self._members_of(schema)
        if members is None:
            argument = self._take(BODY, BODY, self._schema(schema), is_required=is_required)
            return ApiBody(media_type=media_type, is_required=is_required, whole=argument)
        properties, needed = members
        arguments = {
            self._take(name, BODY, self._schema(one), is_required=is_required and name in needed): name
            for name, one in properties.items()
        }
        return ApiBody(media_type=media_type, is_required=is_required, members=arguments)

    def _form(self, form: Mapping[str, Any], *, is_required: bool) -> ApiBody:
        """Each member of a form is an argument. An object is sent as JSON, unless the document has another style."""
        members = self._members_of(form.get("schema"))
        if members is None:
            raise UnusableOperation("its body is a form whose fields are not known")
        properties, needed = members
        styles, fields = form.get("encoding"), list[ApiParameter]()
        for name, one in properties.items():
            said = styles.get(name) if isinstance(styles, dict) else None
            style = said.get("style", "") if isinstance(said, dict) else ""
            if style not in ("", *_STYLES["query"]):
                raise UnusableOperation(f"the style {style!r:.40} of the field {name[:100]!r} is not supported")
            explodes = said.get("explode") if isinstance(said, dict) else None
            argument = self._take(name, BODY, self._schema(one), is_required=is_required and name in needed)
            explodes = explodes if isinstance(explodes, bool) else style in ("", "form")
            fields.append(ApiParameter(argument=argument, name=name, where="query", style=style, explodes=explodes))
        return ApiBody(media_type=FORM, is_required=is_required, fields=tuple(fields))

    def _members_of(self, schema: object) -> tuple[Mapping[str, Any], list[str]] | None:
        """The members of a body that is an object of these alone, and those that it needs."""
        if not isinstance(schema, dict):
            return None
        found = self.document.follow(schema)
        properties = found.get("properties")
        is_plain = not found.keys() & {"allOf", "anyOf", "oneOf", "not", "if", "patternProperties"}
        is_closed = found.get("additionalProperties", False) is False
        if not isinstance(properties, dict) or not properties or not is_plain or not is_closed:
            return None
        if found.get("type", "object") != "object" or found.get("minProperties") or len(properties) > MAX_PARAMETERS:
            return None
        given = {name: one for name, one in properties.items() if not _is_read_only(one)}
        needed = found.get("required")
        return given, needed if isinstance(needed, list) else []

    # The result.

    def _output(self) -> tuple[Schema | None, bool]:
        """The schema of the one good answer, if that is JSON and its schema can be told."""
        responses = self.raw.said.get("responses")
        good = [
            said
            for status, said in (responses if isinstance(responses, dict) else {}).items()
            if str(status).startswith("2")
        ]
        if len(good) != 1:
            return None, False
        try:
            content = self.document.follow(good[0]).get("content")
            media_type, said = _json_of(content if isinstance(content, dict) else {})
            if media_type is None or not isinstance(said, dict) or not said:
                return None, False
            schemas = StandaloneSchemas(self.document, "out", self.out_budget)
            schema = schemas.of(said)
            root = schemas.defs.get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
            if "type" not in root and root.keys() & {"properties", "allOf"}:  # it says so in its parts
                root = {"type": "object", **root}
            if root.get("type") == "object":
                return schemas.whole(root), False
            wrapped = {"type": "object", "properties": {RESULT: schema}, "required": [RESULT]}
            return schemas.whole(wrapped), True
        except UnusableOperation:
            return None, False


def _json_of(content: Mapping[str, Any]) -> tuple[str | None, Any]:
    """The media type of JSON among these, and its schema."""
    for media_type, said in content.items():
        bare = str(media_type).partition(";")[0].strip().lower()
        is_json = bare == "application/json" or (bare.endswith("+json") and bare.startswith("application/"))
        if is_json and re.fullmatch(r"[a-z0-9.+/_-]{1,128}", bare):
            return bare, said.get("schema", {}) if isinstance(said, dict) else {}
        if bare == "*/*":
            return "application/json", said.get("schema", {}) if isinstance(said, dict) else {}
    return None, None


def _check_path(path: str, parameters: tuple[ApiParameter, ...]) -> None:
    """Raises `UnusableOperation` if the path is none, or a variable in it has no parameter."""
    if not path.startswith("/") or len(path) > 2000 or not path.isascii() or not path.isprintable() or " " in path:
        raise UnusableOperation("its path is not one")
    if any(character in path for character in "?#\\"):
        raise UnusableOperation("its path is not one")
    variables = re.findall(r"\{([^{}]*)\}", path)
    named = {one.name for one in parameters if one.where == "path"}
    if set(variables) != named or re.sub(r"\{[^{}]*\}", "", path).count("{"):
        raise UnusableOperation("the variables in its path are not its parameters")


def _hints(method: str) -> ToolAnnotations:
    if method == "get":
        return ToolAnnotations(read_only_hint=True)
    if method in ("put", "delete"):
        return ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True)
    return ToolAnnotations(read_only_hint=False)


def _without_schema(schema: Any) -> Schema:
    """What is left of a schema that was too large: what it is for."""
    return {"description": schema["description"]} if isinstance(schema, dict) and "description" in schema else {}


def _is_read_only(schema: object) -> bool:
    return isinstance(schema, dict) and schema.get("readOnly") is True


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
