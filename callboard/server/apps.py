"""MCP Apps of a hosted server: pages at `ui://` that hosts show, and tools that name them."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from callboard.codecs.bridge.apps import SCHEME
from callboard.codecs.bridge.transparent import UI
from callboard.codecs.revisions import UNSET, JSONObject, TextResourceContents
from callboard.server.extension import Extension

PAGE_TYPE: Final = "text/html;profile=mcp-app"
"""The type of a page that a host shows as an app."""

MAX_PAGE: Final = 8 * 1024 * 1024
"""Largest page, in bytes: with what it is wrapped in, it fits into one answer."""

Visibility: TypeAlias = Literal["model", "app"]
"""Which of both may call a tool: the model, or the app that is shown."""


class Apps(Extension):
    """Declares that a server has pages."""

    def __init__(self) -> None:
        super().__init__(UI, {"mimeTypes": [PAGE_TYPE]})


def with_page(meta: JSONObject | None, uri: str | None, visibility: Collection[Visibility]) -> JSONObject | None:
    """The `_meta` of a tool whose result the page at *uri* shows. Raises ValueError for what is no such URI."""
    if uri is None and not visibility:
        return meta
    about: dict[str, Any] = {}
    if uri is not None:
        about["resourceUri"] = checked_uri(uri)
    if visibility:
        about["visibility"] = list(visibility)
    return {**(meta or {}), "ui": about}


def checked_uri(uri: str) -> str:
    """Raises ValueError for what is no URI of a page."""
    if not uri.startswith(SCHEME) or len(uri) == len(SCHEME):
        raise ValueError(f"invalid URI of an app {uri[:200]!r}: expected ui://NAME")
    return uri


def page_reader(uri: str, file: Path, about: JSONObject) -> Callable[[], TextResourceContents]:
    """Reads the page each time that a host asks for it: one that was edited is shown when it is opened again."""

    def read() -> TextResourceContents:
        with file.open("rb") as opened:
            data = opened.read(MAX_PAGE + 1)
        if len(data) > MAX_PAGE:
            raise ValueError(f"{file.name} is larger than {MAX_PAGE} bytes")
        meta = {"ui": about} if about else UNSET
        return TextResourceContents(uri=uri, mime_type=PAGE_TYPE, text=data.decode(), meta=meta)

    return read


def page_meta(
    csp: JSONObject | None, permissions: JSONObject | None, domain: str | None, prefers_border: bool | None
) -> JSONObject:
    """What a host should know of a page before it shows it."""
    said = {"csp": csp, "permissions": permissions, "domain": domain, "prefersBorder": prefers_border}
    return {key: value for key, value in said.items() if value is not None}
