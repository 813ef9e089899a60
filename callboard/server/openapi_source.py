"""Where the document of an HTTP API comes from, and the server that offers its operations as tools."""

import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import urlsplit

import attrs
import trio

from callboard.actors.changes import ListName
from callboard.codecs.openapi.document import MAX_DOCUMENT, ApiDocument, BadOpenApi, is_clean_url, origin_of
from callboard.codecs.openapi.operations import SkippedOperation, read_operations
from callboard.codecs.openapi.requests import FRAMING_HEADERS, ApiRequest
from callboard.errors import BadAnswer, CannotConnect, CannotServe, ConnectionLost
from callboard.server.api_client import API_TIME, ApiClient
from callboard.server.openapi import tool_of
from callboard.server.registry import Registry, ToolEntry
from callboard.supervisor import get_logger

MAX_SKIPPED_TOLD: Final = 10
"""Operations that are no tools that the log names."""

MAX_TITLE: Final = 100
"""Characters of an API's title and version that are the server's name and version."""

_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")

log = get_logger("callboard.handlers")


T = TypeVar("T")


class ApiHost(Protocol):
    """The server that gets the tools."""

    registry: Registry

    def notify_changed(self, name: ListName) -> None: ...


def is_url(source: object) -> bool:
    return isinstance(source, str) and source.lower().startswith(("http://", "https://"))


@attrs.define(eq=False)
class ApiSource:
    """A document and what the operator says of its API. One at a URL is fetched each time that the server starts."""

    source: str | Path | Mapping[str, Any]
    base_url: str | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    tls: ssl.SSLContext | None = None
    time: float = API_TIME
    _document: ApiDocument | None = attrs.field(default=None, init=False)
    _offered: list[str] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        """Read what is here. Raises `CannotServe`."""
        for name, value in self.headers.items():
            is_clean = value.isascii() and value.isprintable()
            if _HEADER.fullmatch(name) is None or name.lower() in FRAMING_HEADERS or not is_clean:
                raise CannotServe(f"invalid header {name[:100]!r}")
        if not is_url(self.source):
            self._document = self._read()
            self._base(None)

    @property
    def title(self) -> str:
        """The name of the API."""
        if self._document is None:
            return urlsplit(str(self.source)).hostname or "openapi"
        return _line(self._document.title) or "openapi"

    @property
    def version(self) -> str:
        return "" if self._document is None else _line(self._document.version)

    def _read(self) -> ApiDocument:
        if isinstance(self.source, Mapping):
            return _checked("the document", lambda: ApiDocument.of(self.source))
        path = Path(self.source)
        try:
            with path.open("rb") as file:
                data = file.read(MAX_DOCUMENT + 1)
        except OSError as error:
            raise CannotServe(f"{path}: {error.strerror or error}") from None
        return _checked(str(path), lambda: ApiDocument.read(data))

    def _base(self, where: str | None) -> str:
        """The URL of the API. Raises `CannotServe`."""
        try:
            base = ApiDocument.base_url(self._known, where) if self.base_url is None else self.base_url
            origin_of(base)
        except (BadOpenApi, ValueError) as error:
            raise CannotServe(f"{self._shown}: {error}") from None
        if "?" in base or "#" in base or not is_clean_url(base):
            raise CannotServe(f"{self._shown}: the URL of the API has a query, or characters that must be encoded")
        return base

    @property
    def _known(self) -> ApiDocument:
        if self._document is None:
            raise CannotServe(f"{self._shown}: not fetched yet")
        return self._document

    @property
    def _shown(self) -> str:
        return "the document" if isinstance(self.source, Mapping) else str(self.source).partition("?")[0][:200]

    def offer(self, server: ApiHost) -> None:
        """Offer the operations as tools, in the place of those that there were. Raises `CannotServe`."""
        server.registry.offer("tools")
        if self._document is not None:
            self._replace(server, *self._tools_of(self._document))

    def _tools_of(self, document: ApiDocument) -> tuple[list[ToolEntry], list[SkippedOperation]]:
        """Raises `CannotServe`. It may take seconds."""
        taken = frozenset(name.lower() for name in self.headers)
        operations, skipped = _checked(self._shown, lambda: read_operations(document, taken_headers=taken))
        return [tool_of(operation) for operation in operations], skipped

    def _replace(self, server: ApiHost, tools: list[ToolEntry], skipped: list[SkippedOperation]) -> None:
        for name in self._offered:
            server.registry.tools.remove(name)
        self._offered.clear()
        try:
            for tool in tools:
                server.registry.tools.add(tool.shown.name, tool)
                self._offered.append(tool.shown.name)
        except ValueError as error:  # the author's own
            raise CannotServe(f"{self._shown}: {error}") from None
        server.notify_changed("tools")
        if skipped:
            told = [f"{one.title}: {one.why}" for one in skipped[:MAX_SKIPPED_TOLD]]
            log.warning("openapi_operations_skipped", document=self._shown, count=len(skipped), operations=told)

    @asynccontextmanager
    async def lifespan(self, server: ApiHost) -> AsyncIterator[ApiClient]:
        """Fetch the document if it is at a URL, and keep connections to the API."""
        where = str(self.source) if is_url(self.source) else None
        if where is not None:
            data = await self._fetched(where)
            self._document, tools, skipped = await trio.to_thread.run_sync(self._all_of, data)
            self._replace(server, tools, skipped)
        client = ApiClient(self._base(where), self.headers, self.tls, self.time)
        try:
            yield client
        finally:
            client.close()

    def _all_of(self, data: bytes) -> tuple[ApiDocument, list[ToolEntry], list[SkippedOperation]]:
        """Runs in a thread, as a large document takes seconds. Raises `CannotServe`."""
        document = _checked(self._shown, lambda: ApiDocument.read(data))
        return document, *self._tools_of(document)

    async def _fetched(self, where: str) -> bytes:
        """Raises `CannotServe`."""
        if not is_clean_url(where):
            raise CannotServe(f"{self._shown!r}: the URL has characters that must be encoded")
        try:
            is_same = self.base_url is None or origin_of(self.base_url) == origin_of(where)
            parts = urlsplit(where)
            client = ApiClient(f"{parts.scheme}://{parts.netloc}", self.headers if is_same else {}, self.tls, self.time)
        except (CannotConnect, ValueError) as error:
            raise CannotServe(f"{self._shown}: {error}") from None
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            head, body = await client.ask(ApiRequest("GET", target, ()), MAX_DOCUMENT)
        except (CannotConnect, ConnectionLost, BadAnswer) as error:
            raise CannotServe(f"{self._shown}: {error}") from None
        except trio.TooSlowError:
            raise CannotServe(f"{self._shown}: not fetched within {self.time:g} s") from None
        finally:
            client.close()
        if head.status != 200:
            raise CannotServe(f"{self._shown}: answered {head.status} in place of the document")
        return body


def _line(text: str) -> str:
    """A name out of a document: one short line."""
    return "".join(one for one in " ".join(text[:1000].split()) if one.isprintable())[:MAX_TITLE]


def _checked(title: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except BadOpenApi as error:
        raise CannotServe(f"{title}: {error}") from None
