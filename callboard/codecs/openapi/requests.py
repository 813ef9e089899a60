"""A call of a tool as a request of its API. What a model says goes where it belongs and nowhere else: it neither leads
to another path, nor adds a header or a parameter.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

import attrs
import msgspec

from callboard.codecs.openapi.operations import ApiBody, ApiOperation, ApiParameter

MAX_TARGET: Final = 8000
"""Longest path with its query, in bytes. Most servers take no longer ones."""

MAX_VALUE: Final = 4000
"""Longest value of a header or cookie, in bytes."""

FRAMING_HEADERS: Final = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade", "expect")
)
"""Headers that say how a request is sent: those of no operator."""

_SEPARATORS: Final[Mapping[str, str]] = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}


class UnfitArgument(ValueError):
    """A value cannot go where it should. The text is for the model."""


@attrs.frozen
class ApiRequest:
    """What is sent."""

    method: str
    target: str
    """Path and query, below that of the API."""
    headers: tuple[tuple[str, str], ...]
    body: bytes | None = None


def request_for(operation: ApiOperation, arguments: Mapping[str, Any]) -> ApiRequest:
    """Raises `UnfitArgument`."""
    path, query, headers, cookies = operation.path, list[str](), list[tuple[str, str]](), list[str]()
    for one in operation.parameters:
        value = arguments.get(one.argument)
        if value is None and not (one.is_required and one.where == "path"):
            continue
        _check_keys(one, value, operation.parameters)
        match one.where:
            case "path":
                path = path.replace(f"{{{one.name}}}", _segment(one, value))
            case "query":
                query += _query(one, value)
            case "header":
                headers.append((one.name, _plain(one, value)))
            case "cookie":
                cookies += _query(one, value)
    if any(segment in (".", "..") for segment in path.split("/")):
        raise UnfitArgument("the arguments lead to another path")
    target = f"{path}?{'&'.join(query)}" if query else path
    if len(target) > MAX_TARGET:
        raise UnfitArgument(f"the arguments make a URL of more than {MAX_TARGET} bytes")
    if cookies:
        headers.append(("cookie", _short("; ".join(cookies))))
    body = None if operation.body is None else _body(operation.body, arguments)
    if body is not None and operation.body is not None:
        headers.append(("content-type", operation.body.media_type))
    return ApiRequest(operation.method, target, tuple(headers), body)


def _body(body: ApiBody, arguments: Mapping[str, Any]) -> bytes | None:
    if body.fields:
        return _form(body.fields, arguments) if body.is_required or _any_given(body.fields, arguments) else None
    if body.whole is not None:
        return msgspec.json.encode(arguments[body.whole]) if body.whole in arguments else None
    given = {name: arguments[argument] for argument, name in body.members.items() if argument in arguments}
    return msgspec.json.encode(given) if given or body.is_required else None


def _any_given(fields: Iterable[ApiParameter], arguments: Mapping[str, Any]) -> bool:
    return any(arguments.get(one.argument) is not None for one in fields)


def _form(fields: Iterable[ApiParameter], arguments: Mapping[str, Any]) -> bytes:
    pairs: list[str] = []
    for one in fields:
        value = arguments.get(one.argument)
        if isinstance(value, dict) and not one.style:
            value = _text_of(value, as_json=True)
        pairs += [] if value is None else _query(one, value)
    return "&".join(pairs).encode()


def _segment(one: ApiParameter, value: Any) -> str:
    """A part of the path: one segment, and not an empty one. Servers decode `%2F` before they look for a path, so a
    slash would lead elsewhere even so."""
    text = _simple(one, value)
    if not text or "/" in text or "\\" in text or text in (".", "..") or not _is_clean(text):
        raise UnfitArgument(
            f"{one.argument}: not one segment of a path: it is empty or dots, or has a slash, a backslash or a control"
            " character. A value with a slash cannot be sent: it would lead to another path"
        )
    return _quoted(text, ",=")


def _check_keys(one: ApiParameter, value: Any, others: Iterable[ApiParameter]) -> None:
    """The keys of an object become parameters of their own in some styles. None may be that of another argument."""
    if isinstance(value, dict) and one.explodes and not one.is_json and one.where in ("query", "cookie"):
        names = {other.name for other in others if other.where == one.where}
        if one.style != "deepObject" and not names.isdisjoint(value):
            raise UnfitArgument(f"{one.argument}: {min(names.intersection(value))[:100]!r} is a parameter of its own")


def _query(one: ApiParameter, value: Any) -> Iterator[str]:
    name = quote(one.name, safe="[]")
    if one.is_json:
        yield f"{name}={_quoted(_text_of(value, as_json=True))}"
    elif isinstance(value, list):
        values = [_quoted(_text_of(inner)) for inner in value]
        if one.explodes:
            yield from (f"{name}={inner}" for inner in values)
        elif values:
            yield f"{name}={_SEPARATORS.get(one.style, ',').join(values)}"
    elif isinstance(value, dict):
        pairs = {_quoted(str(key)): _quoted(_text_of(inner)) for key, inner in value.items()}
        if one.style == "deepObject":
            yield from (f"{name}[{key}]={inner}" for key, inner in pairs.items())
        elif one.explodes:
            yield from (f"{key}={inner}" for key, inner in pairs.items())
        else:
            yield f"{name}={','.join(f'{key},{inner}' for key, inner in pairs.items())}"
    else:
        yield f"{name}={_quoted(_text_of(value))}"


def _plain(one: ApiParameter, value: Any) -> str:
    """The value of a header."""
    text = _simple(one, value)
    if not text.isascii() or not text.isprintable():
        raise UnfitArgument(f"{one.argument}: a header has printable ASCII characters only")
    return _short(text)


def _simple(one: ApiParameter, value: Any) -> str:
    """The style of paths and headers."""
    if one.is_json:
        return _text_of(value, as_json=True)
    if isinstance(value, list):
        return ",".join(map(_text_of, value))
    if isinstance(value, dict):
        between = "=" if one.explodes else ","
        return ",".join(f"{key}{between}{_text_of(inner)}" for key, inner in value.items())
    return _text_of(value)


def _short(text: str) -> str:
    if len(text) > MAX_VALUE:
        raise UnfitArgument(f"a header has at most {MAX_VALUE} characters")
    return text


def _text_of(value: Any, *, as_json: bool = False) -> str:
    if isinstance(value, str) and not as_json:
        return value
    return msgspec.json.encode(value).decode()


def _quoted(text: str, safe: str = "") -> str:
    try:
        return quote(text, safe=safe)
    except UnicodeEncodeError:
        raise UnfitArgument("a text holds half a character") from None


def _is_clean(text: str) -> bool:
    return all(character >= " " and character != "\x7f" for character in text)
