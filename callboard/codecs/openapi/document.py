"""An OpenAPI document: read, with a limit to its size, and followed where it refers to itself. Nothing is fetched."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import attrs
import msgspec

from callboard.codecs.json_schema import pointed_at
from callboard.codecs.yaml_core import BadYaml, read_yaml
from callboard.errors import CallboardError

MAX_DOCUMENT: Final = 8 * 1024 * 1024
"""Largest document, in bytes. That of GitHub's API, one of the largest, has as many."""

MAX_YAML: Final = 1024 * 1024
"""Largest document in YAML, in bytes: reading one takes seconds. A larger one can be turned into JSON."""

MAX_OPERATIONS: Final = 1024
"""Most operations that become tools. No model chooses among more; GitHub's API has about as many."""

MAX_HOPS: Final = 16
"""Most references that lead from one to the next."""

_NESTING: Final = 128
_VERSION: Final = re.compile(r"3\.([0-9]+)(\.[0-9A-Za-z.-]+)?")
_METHODS: Final = ("get", "put", "post", "delete", "patch")
_VARIABLE: Final = re.compile(r"\{([^{}]*)\}")


class BadOpenApi(CallboardError):
    """A document is not one of OpenAPI 3, or is too large, or does not say what it must."""


class UnusableOperation(CallboardError):
    """One operation cannot be a tool. The others can."""


@attrs.frozen
class RawOperation:
    """An operation, as it stands in the document."""

    method: str
    path: str
    item: Mapping[str, Any]
    """What all operations of the path have in common."""
    said: Mapping[str, Any]

    @property
    def title(self) -> str:
        return f"{self.method.upper()} {self.path[:200]}"


@attrs.frozen(eq=False)
class ApiDocument:
    """A document of OpenAPI 3.0, 3.1 or later."""

    root: Mapping[str, Any]
    minor: int

    @classmethod
    def read(cls, data: bytes) -> "ApiDocument":
        """Read JSON or YAML. Raises `BadOpenApi`."""
        if len(data) > MAX_DOCUMENT:
            raise BadOpenApi(f"is larger than {MAX_DOCUMENT} bytes")
        return cls.of(_decoded(data.removeprefix(b"\xef\xbb\xbf")))

    @classmethod
    def of(cls, root: object) -> "ApiDocument":
        """A document that is read already. Raises `BadOpenApi`."""
        if not isinstance(root, dict):
            raise BadOpenApi("is not an object")
        version = root.get("openapi")
        if "swagger" in root and version is None:
            raise BadOpenApi("is of Swagger 2, which is not supported: convert it to OpenAPI 3")
        found = _VERSION.fullmatch(version) if isinstance(version, str) else None
        if found is None:
            raise BadOpenApi('has no version of OpenAPI 3: expected for example openapi: "3.1.0"')
        if not isinstance(root.get("paths", {}), dict):
            raise BadOpenApi("paths: is not an object")
        return cls(root, int(found[1]))

    @property
    def title(self) -> str:
        return _text(_object(self.root.get("info")).get("title"))

    @property
    def version(self) -> str:
        return _text(_object(self.root.get("info")).get("version"))

    @property
    def description(self) -> str:
        return _text(_object(self.root.get("info")).get("description"))

    def follow(self, value: object) -> Mapping[str, Any]:
        """*value*, or what it refers to. Raises `UnusableOperation`."""
        for _ in range(MAX_HOPS):
            if not isinstance(value, dict):
                raise UnusableOperation("a reference leads to nothing, or to what is not an object")
            if not isinstance(value.get("$ref"), str):
                return value
            value = self.pointed_at(value["$ref"])
        raise UnusableOperation("references lead in a circle, or too far")

    def pointed_at(self, reference: str) -> Any:
        """Where a reference leads; None for nothing. Raises `UnusableOperation` for one to another document."""
        if not reference.startswith("#"):
            raise UnusableOperation(f"refers to another document, which is not fetched: {reference[:200]}")
        return pointed_at(self.root, reference[1:])

    def operations(self) -> Iterator[RawOperation]:
        """All that could be tools. Raises `BadOpenApi` if they are too many."""
        count = 0
        for path, item in _object(self.root.get("paths")).items():
            try:
                item = self.follow(item)
            except UnusableOperation:
                continue
            for method in _METHODS:
                said = item.get(method)
                if isinstance(said, dict):
                    count += 1
                    if count > MAX_OPERATIONS:
                        raise BadOpenApi(f"has more than {MAX_OPERATIONS} operations")
                    yield RawOperation(method, str(path), item, said)

    def base_url(self, where: str | None) -> str:
        """Where the API is, as the document says: only if that is where the document itself was fetched, by its URL
        *where*. Raises `BadOpenApi` for any other: a document is not to be trusted with where requests go."""
        servers = self.root.get("servers")
        first = _object(servers[0]) if isinstance(servers, list) and servers else {}
        url = _filled(_text(first.get("url")) or "/", _object(first.get("variables")))
        if where is None:
            raise BadOpenApi(f"say where the API is: the document itself, which names {url[:200]!r}, is not believed")
        try:
            found = urljoin(where, url)
            is_same = origin_of(found) == origin_of(where)
        except ValueError:
            is_same = False
        if not is_same:
            raise BadOpenApi(f"say where the API is: the document names {url[:200]!r}, and comes from elsewhere itself")
        return found.partition("?")[0].partition("#")[0]


def origin_of(url: str) -> tuple[str, str, int]:
    """Raises ValueError for what is no URL of the web."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme.lower(), 0)
    if not port or not parts.hostname or "@" in parts.netloc:
        raise ValueError(f"not an http or https URL: {url[:200]!r}")
    return parts.scheme.lower(), parts.hostname.lower(), port


def is_clean_url(url: str) -> bool:
    """Whether it can be sent as it is: characters other than these must be percent-encoded."""
    return url.isascii() and url.isprintable() and " " not in url


def _filled(url: str, variables: Mapping[str, Any]) -> str:
    def default(found: "re.Match[str]") -> str:
        return _text(_object(variables.get(found[1])).get("default"))

    return _VARIABLE.sub(default, url)


def _decoded(data: bytes) -> object:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if data.lstrip().startswith(b"{"):
            raise BadOpenApi(f"is not valid JSON: {str(error)[:200]}") from None
    if len(data) > MAX_YAML:
        raise BadOpenApi(f"is YAML and larger than {MAX_YAML} bytes: convert it to JSON")
    try:
        return read_yaml(data.decode(), _NESTING)
    except UnicodeDecodeError:
        raise BadOpenApi("is not UTF-8") from None
    except (BadYaml, RecursionError) as error:
        raise BadOpenApi(f"is neither JSON, nor YAML without aliases: {error}") from None


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
