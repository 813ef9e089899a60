"""The entry of an HTTP API: its OpenAPI document, where it is, and what goes with every request."""

import hashlib
import os
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from callboard.codecs.caller_template import CallerTemplate
from callboard.codecs.oauth.addresses import is_here
from callboard.codecs.openapi.document import MAX_DOCUMENT, ApiDocument, BadOpenApi, is_clean_url, origin_of
from callboard.codecs.openapi.operations import read_operations
from callboard.codecs.openapi.requests import FRAMING_HEADERS
from callboard.config.model import OpenApiTarget
from callboard.config.reader import Place, Table, quoted
from callboard.config.redact import shown_url

MAX_SKIPPED_WARNED: Final = 5
"""Operations that are no tools that are warned of, each in a line."""


def read_openapi(
    entry: Table, headers: dict[str, str], templates: dict[str, CallerTemplate]
) -> tuple[OpenApiTarget, str] | None:
    """The API of *entry*; None if it is wrong, which is reported."""
    place = entry.members["openapi"]
    if templates:
        place.wrong("excludes headers with something of the caller: they are the same for all callers")
    for name in FRAMING_HEADERS.intersection(map(str.lower, headers)):
        place.wrong(f"excludes a header `{name}`: it says how requests are sent")
    text = place.text(what="a string: a file, or a URL")
    base = _base(entry.members.get("server"))
    if text is None:
        return None
    _warn_of_clear_text(place, base or text, headers)
    if text.lower().startswith(("http://", "https://")):
        try:
            origin_of(text)
        except ValueError:
            place.wrong(f"{quoted(shown_url(str(place.node.value)))} is not a URL")
        if not is_clean_url(text):
            place.wrong("is a URL with characters that must be encoded")
        return OpenApiTarget(document=text, base=base, headers=headers), shown_url(str(place.node.value))
    if "server" not in entry.members:
        place.wrong("needs `server`: the URL of the API. A document in a file does not say where requests go")
    path = Path(os.path.normpath(place.report.file.absolute().parent / Path(text).expanduser()))
    data = _data(place, path)
    if data is not None:
        _check(place, data, headers)
    digest = "" if data is None else hashlib.sha256(data).hexdigest()
    target = OpenApiTarget(document=str(path), base=base, headers=headers, digest=digest)
    return target, str(place.node.value)


def _warn_of_clear_text(place: Place, url: str, headers: dict[str, str]) -> None:
    parts = urlsplit(url)
    if headers and parts.scheme.lower() == "http" and not is_here(parts.hostname or ""):
        place.warn("the API is not at https: the headers are sent in clear text")


def _base(place: Place | None) -> str | None:
    if place is None:
        return None
    text = place.text(what="a string: the URL of the API")
    if text is None:
        return None
    shown = quoted(shown_url(str(place.node.value)))
    try:
        origin_of(text)
    except ValueError:
        place.wrong(f"{shown} is not the URL of an API: expected http:// or https://")
        return None
    if not is_clean_url(text) or "?" in text or "#" in text:
        place.wrong(f"{shown} is not the URL of an API: it has a query, or characters that must be encoded")
    return text


def _data(place: Place, path: Path) -> bytes | None:
    try:
        if path.exists() and not path.is_file():
            place.wrong("is not a file")
            return None
        with path.open("rb") as file:
            return file.read(MAX_DOCUMENT + 1)
    except FileNotFoundError:
        place.wrong("no such file")
    except OSError as error:
        place.wrong(f"cannot be read: {error.strerror}")
    return None


def _check(place: Place, data: bytes, headers: dict[str, str]) -> None:
    """Report what is wrong with the document, and what of it cannot be offered."""
    try:
        document = ApiDocument.read(data)
        operations, skipped = read_operations(document, taken_headers=frozenset(name.lower() for name in headers))
    except BadOpenApi as error:
        place.wrong(f"the document {error}")
        return
    if not operations:
        place.warn("the document has no operation that could be a tool")
    for one in skipped[:MAX_SKIPPED_WARNED]:
        place.warn(f"{one.title} is not offered: {one.why}")
    if len(skipped) > MAX_SKIPPED_WARNED:
        place.warn(f"{len(skipped) - MAX_SKIPPED_WARNED} more operations are not offered")
