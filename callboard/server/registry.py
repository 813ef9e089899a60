"""Registry of a server: tools, resources, templates, prompts and completions, in the order of registration."""

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

import attrs
import trio

from callboard.codecs.mcp_headers.header_map import HeaderMap
from callboard.codecs.revisions import (
    UNSET,
    CacheScope,
    JSONObject,
    ListChangedCapability,
    Model,
    Prompt,
    Resource,
    ResourcesCapability,
    ResourceTemplate,
    ServerCapabilities,
    Tool,
)
from callboard.codecs.seal import KeyRing, Seal
from callboard.codecs.uri_template.template import UriTemplate
from callboard.errors import InvalidParams
from callboard.server.context import Context
from callboard.server.faults import exited
from callboard.server.signature.signature import Signature

PAGE: Final = 100
"""Entries on one page of a list."""

CURSOR_TTL: Final = 24 * 3600.0
"""Seconds that a cursor may be used: longer than any client leafs through a list."""

Offered: TypeAlias = Literal["tools", "resources", "prompts", "completions", "logging"]
"""Kinds that a server may declare in *offers*."""

OFFERS: Final[Mapping[Offered, Any]] = {
    "tools": ListChangedCapability(list_changed=True),
    "resources": ResourcesCapability(list_changed=True, subscribe=True),
    "prompts": ListChangedCapability(list_changed=True),
    "completions": {},
    "logging": {},
}

Function: TypeAlias = Callable[..., Any]
Loop: TypeAlias = Literal["trio", "asyncio"]
"""The event loop that an async function is written for."""
E = TypeVar("E", bound="HandlerEntry")
M = TypeVar("M", bound=Model)


@attrs.frozen(eq=False, kw_only=True)
class HandlerEntry:
    """A function of the author's, and what its signature says."""

    function: Function
    signature: Signature
    scopes: frozenset[str] = frozenset()
    """Those that a caller needs, beside what rules say."""

    async def perform(
        self, arguments: Mapping[str, Any], context: Context | None, limiter: trio.CapacityLimiter
    ) -> Any:
        """Run the function: an async one here, a plain one in a thread. One that exits ends its own call only."""
        values = dict(arguments)
        if self.signature.context_parameter is not None:
            values[self.signature.context_parameter] = context
        run = partial(self.function, **values)
        try:
            if self.signature.is_async:
                return await run()
            return await trio.to_thread.run_sync(run, limiter=limiter, abandon_on_cancel=True)
        except Exception:
            raise
        except (SystemExit, BaseExceptionGroup) as error:
            raise exited(error) from None


@attrs.frozen
class TaskPolicy:
    """How calls of a tool become tasks: all of them, or those that take longer than so many seconds."""

    is_required: bool
    after: float


@attrs.frozen(eq=False, kw_only=True)
class ToolEntry(HandlerEntry):
    shown: Tool
    headers: HeaderMap
    task: TaskPolicy | None = None
    """None for one that never runs as a task."""


@attrs.frozen
class CacheHint:
    """How long a client may keep a result, and whether it may share it among its users."""

    ttl_ms: int = 0
    cache_scope: CacheScope = "private"

    @classmethod
    def of(cls, ttl: float, cache_scope: CacheScope) -> "CacheHint":
        """Raises ValueError for a time below zero, or a scope that there is not."""
        if not 0 <= ttl < math.inf or cache_scope not in ("private", "public"):
            raise ValueError(f"invalid caching: ttl={ttl!r}, cache_scope={cache_scope!r}")
        return cls(round(ttl * 1000), cache_scope)


@attrs.frozen(eq=False, kw_only=True)
class ResourceEntry(HandlerEntry):
    shown: Resource
    kept: CacheHint = CacheHint()


@attrs.frozen(eq=False, kw_only=True)
class TemplateEntry(HandlerEntry):
    shown: ResourceTemplate
    template: UriTemplate
    kept: CacheHint = CacheHint()


@attrs.frozen(eq=False, kw_only=True)
class PromptEntry(HandlerEntry):
    shown: Prompt


class SectionMirror(Protocol):
    """Another server's section, which has the entries of this one, too."""

    def check(self, name: str) -> None:
        """Raises what `Section.check` does."""

    def add(self, name: str, entry: Any) -> None: ...
    def remove(self, name: str) -> None: ...


@attrs.define(eq=False)
class Section(Generic[E]):
    """Entries of one kind by their names (URIs, templates), and the pages they are listed on."""

    kind: str
    is_fixed: bool = attrs.field(default=False, init=False)
    """Whether nothing can be added or removed any more: other workers would not know of it."""
    entries: dict[str, E] = attrs.field(factory=dict, init=False)
    followers: list[SectionMirror] = attrs.field(factory=list, init=False)
    """Of the servers that this one is mounted in."""

    def add(self, name: str, entry: E) -> None:
        """Raises as `check` does."""
        self.check(name)
        self.entries[name] = entry
        for follower in self.followers:
            follower.add(name, entry)

    def check(self, name: str) -> None:
        """Raises ValueError for a name that is taken, here or where this is followed, and RuntimeError once several
        workers serve."""
        self._check_open(name)
        if name in self.entries:
            raise ValueError(f"{self.kind} {name!r} already exists")
        for follower in self.followers:
            follower.check(name)

    def remove(self, name: str) -> None:
        """Raises LookupError if there is none, and RuntimeError once several workers serve."""
        self._check_open(name)
        if name not in self.entries:
            raise LookupError(f"no {self.kind} {name!r}")
        del self.entries[name]
        for follower in self.followers:
            follower.remove(name)

    def _check_open(self, name: str) -> None:
        if self.is_fixed:
            raise RuntimeError(
                f"{self.kind} {name!r}: cannot be added or removed while several workers serve: the others would not"
                " know of it; do it when the module is imported, or in lifespan"
            )

    def page(
        self,
        cursor: str | None,
        seal: Seal,
        now: float,
        size: int = PAGE,
        is_listed: Callable[[str, E], bool] | None = None,
    ) -> tuple[list[E], str | None]:
        """One page, and the cursor of the next. A cursor names the last entry seen: what is added or removed in between
        moves no page. Entries that are not *is_listed* for this caller are left out.

        Raises `InvalidParams` for an unknown or expired cursor.
        """
        names = list(self.entries)
        start = 0
        if cursor is not None:
            opened = seal.open(cursor, [self.kind.encode()], now=now)
            if opened is None or opened.payload.decode() not in self.entries:
                raise InvalidParams("Invalid cursor")
            start = names.index(opened.payload.decode()) + 1
        rest = names[start:]
        if is_listed is not None:
            rest = [name for name in rest if is_listed(name, self.entries[name])]
        chosen = rest[:size]
        following = None
        if len(rest) > size:
            following = seal.close(chosen[-1].encode(), [self.kind.encode()], expires=now + CURSOR_TTL)
        return [self.entries[name] for name in chosen], following

    def __iter__(self) -> Iterator[E]:
        return iter(self.entries.values())

    def __len__(self) -> int:
        return len(self.entries)


class RegistryMirror(Protocol):
    """Another server, which has what this one declares, too."""

    def offer(self, *names: Offered) -> list[Offered]: ...
    def complete(self, of: str, argument: str, entry: HandlerEntry) -> None: ...


@attrs.define(eq=False)
class Registry:
    """All shelves of one server."""

    tools: Section[ToolEntry] = attrs.field(factory=lambda: Section("tool"), init=False)
    resources: Section[ResourceEntry] = attrs.field(factory=lambda: Section("resource"), init=False)
    unlisted: Section[ResourceEntry] = attrs.field(factory=lambda: Section("file"), init=False)
    """Resources that can be read, by URI, and are on no list: most files of skills."""
    templates: Section[TemplateEntry] = attrs.field(factory=lambda: Section("template"), init=False)
    prompts: Section[PromptEntry] = attrs.field(factory=lambda: Section("prompt"), init=False)
    completions: dict[tuple[str, str], HandlerEntry] = attrs.field(factory=dict, init=False)
    """By the prompt's name or the template, and the argument."""
    followers: "list[RegistryMirror]" = attrs.field(factory=list, init=False)
    """The servers that this one is mounted in."""
    cursors: Seal = attrs.field(factory=lambda: Seal(KeyRing.generate(), "cursor"), init=False)
    capabilities: ServerCapabilities = attrs.field(factory=ServerCapabilities, init=False)
    """The declared capabilities: the same object until a kind is added, so that a host notices."""
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)
    """Held while `capabilities` is replaced: plain functions add handlers from threads."""

    def offer(self, *names: Offered) -> list[Offered]:
        """Declare these kinds from now on, and return those that were not declared before.

        A kind stays declared when the last of its handlers is removed: the clients that were told of it wait for news
        of it. Raises ValueError for a name that is no kind.
        """
        unknown = [name for name in names if name not in OFFERS]
        if unknown:
            raise ValueError(f"unknown offer {unknown[0]!r}: expected some of {', '.join(OFFERS)}")
        with self._lock:
            new = [name for name in names if getattr(self.capabilities, name) is UNSET]
            if new:
                self.capabilities = attrs.evolve(self.capabilities, **{name: OFFERS[name] for name in new})
        if self.followers:  # its clients are theirs
            return list(dict.fromkeys(name for follower in self.followers for name in follower.offer(*names)))
        return new

    def complete(self, of: str, argument: str, entry: HandlerEntry) -> None:
        """Have *entry* complete this argument, of the prompt or template *of*."""
        self.completions[of, argument] = entry
        for follower in self.followers:
            follower.complete(of, argument, entry)

    def completed_nothing(self) -> Iterator[tuple[str, str]]:
        """Completions of what there is not: the prompt or template, and the argument."""
        for of, argument in self.completions:
            entry = self.prompts.entries.get(of) or self.templates.entries.get(of)
            if entry is None or all(known.name != argument for known in entry.signature.parameters):
                yield of, argument

    def declare_experimental(self, experimental: Mapping[str, JSONObject] | None) -> None:
        """Declare these experimental capabilities, which mean something to some clients."""
        if experimental:
            self.capabilities = attrs.evolve(self.capabilities, experimental=dict(experimental))

    def offer_anything(self) -> None:
        """Declare every kind if none is declared: the handlers of an empty server come later, of any kind."""
        if attrs.evolve(self.capabilities, experimental=UNSET) == ServerCapabilities():
            self.offer(*OFFERS)

    def fix(self) -> None:
        """Nothing is added or removed from now on."""
        for section in (self.tools, self.resources, self.templates, self.prompts):
            section.is_fixed = True

    def find_resource(self, uri: str) -> tuple[ResourceEntry | TemplateEntry, str, Mapping[str, Any]] | None:
        """The handler for *uri*, the MIME type it has, and what the template made of the URI."""
        entry = self.resources.entries.get(uri) or self.unlisted.entries.get(uri)
        if entry is not None:
            return entry, _text(entry.shown.mime_type), {}
        for template in self.templates:
            if (values := template.template.match(uri)) is not None:
                return template, _text(template.shown.mime_type), values
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
