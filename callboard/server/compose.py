"""Servers made of others: one mounted in another, which offers all that it has, or chosen handlers included.

What is mounted stays a server of its own. Its lifespan, middlewares, threads and error texts hold for its own handlers:
a call reaches its `MountedOffer`, as it would reach its `ServerOffer`. All else is that of the server in front: names
as they are shown, rules, quotas, rates, lists, tasks, the time that a request may take. The entries of the server in
front are plain ones, whose function passes the request on; so a call of any other costs nothing for it.
"""

import functools
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Final, Protocol, TypeAlias, cast

import attrs

from callboard.actors.server.exchange import Exchange, RequestHost
from callboard.actors.server.extensions import AddedMethod
from callboard.actors.server.host import Host
from callboard.actors.server.roots_reader import RootsListener
from callboard.codecs.bridge.names import SEPARATOR
from callboard.codecs.revisions import UNSET, Model, Revision, ServerCapabilities
from callboard.codecs.revisions.calls import Structured
from callboard.codecs.seal import Seal
from callboard.server.apps import Apps
from callboard.server.context import Context, News
from callboard.server.extension import Extension, ExtensionRun
from callboard.server.handlers import Declarations, ServerOffer
from callboard.server.middleware import Serve, as_model, through
from callboard.server.registry import (
    OFFERS,
    Function,
    HandlerEntry,
    Offered,
    PromptEntry,
    Registry,
    Section,
    ToolEntry,
)
from callboard.server.signature.signature import Arguments, Signature
from callboard.server.tasks import Tasks
from callboard.supervisor import Supervisor

MAX_TOOL_NAME: Final = 128
"""Longest name of a tool, with its prefix. The specification's limit."""

MAX_DEPTH: Final = 16
"""Most servers that are mounted in each other, one in one. Each is a step more of a call."""

_PREFIX: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:.")

Running: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]


class Composed(Declarations, Protocol):
    """A server, as one that it is mounted in needs it."""

    mounts: "Mounts"

    def extend(self, extension: Extension) -> None: ...


@attrs.define(eq=False)
class Mounts:
    """What one server has mounted, where it is mounted itself, and its runs."""

    server: Composed
    hosts: set[Host]
    """Of its own runs, and of those of the servers that it is mounted in."""
    running: Running
    """Runs its lifespan, with its value."""
    listeners: list[RootsListener]
    headers: tuple[bytes, ...]
    below: "list[Mount]" = attrs.field(factory=list, init=False)
    above: "list[Mount]" = attrs.field(factory=list, init=False)

    def mount(self, other: Composed, prefix: str | None) -> None:
        """Mount *other*. Raises as `Server.mount` does; then nothing has changed."""
        name = other.info.name
        if prefix and _PREFIX.fullmatch(prefix) is None:
            raise ValueError(f"invalid prefix {prefix[:200]!r}: expected 1 to 64 of A-Z a-z 0-9 _ - .")
        if self.hosts:
            raise RuntimeError(f"server {name!r}: cannot be mounted while {self.server.info.name!r} runs")
        if any(one.server is self.server for one in (other.mounts, *other.mounts.all_below())):
            raise ValueError(f"server {name!r}: cannot be mounted in itself")
        if any(mount.other is other for mount in self.below):
            raise ValueError(f"server {name!r} is already mounted in {self.server.info.name!r}")
        if self.height() + other.mounts.depth() >= MAX_DEPTH:
            raise ValueError(f"server {name!r}: more than {MAX_DEPTH} servers would be mounted in each other")
        mount = Mount(self.server, other, f"{prefix}{SEPARATOR}" if prefix else "")
        mount.begin()
        self.below.append(mount)
        other.mounts.above.append(mount)

    def all_below(self) -> "Iterator[Mounts]":
        for mount in self.below:
            yield mount.other.mounts
            yield from mount.other.mounts.all_below()

    def depth(self) -> int:
        return 1 + max((mount.other.mounts.depth() for mount in self.below), default=0)

    def height(self) -> int:
        return max((1 + mount.server.mounts.height() for mount in self.above), default=0)

    def all_listeners(self) -> list[RootsListener]:
        return [*self.listeners, *(one for below in self.all_below() for one in below.listeners)]

    def all_headers(self) -> tuple[bytes, ...]:
        """The headers that handlers of any of these servers read."""
        return tuple(dict.fromkeys((*self.headers, *(one for below in self.all_below() for one in below.headers))))

    @asynccontextmanager
    async def run(self) -> "AsyncIterator[MountedRuns]":
        """Run the lifespans of all that is mounted, each after that of the server that it is mounted in."""
        runs = MountedRuns()
        async with AsyncExitStack() as stack:
            await self.enter(runs, stack, self.server, self.server, "")
            yield runs

    async def enter(
        self, runs: "MountedRuns", stack: AsyncExitStack, front: Composed, parent: Declarations, prefix: str
    ) -> None:
        for mount in self.below:
            value = await stack.enter_async_context(mount.other.mounts.running())
            whole = prefix + mount.prefix
            server = MountedServer(mount.other, front, whole)
            runs.offers.append((mount, parent, MountedOffer(server, value)))
            await mount.other.mounts.enter(runs, stack, front, server, whole)


@attrs.define(eq=False)
class MountedRuns:
    """What is mounted in a server, in one run of it."""

    offers: "list[tuple[Mount, Declarations, MountedOffer]]" = attrs.field(factory=list)
    """Each with the server that it is mounted in."""

    def added(self) -> Mapping[str, AddedMethod]:
        """The methods of their extensions, with the middlewares of all that stands before each but the server in
        front."""
        mounted = {id(offer.server): (parent, offer) for _, parent, offer in self.offers}
        found: dict[str, AddedMethod] = {}
        for _, above, offer in self.offers:
            methods = offer.added
            while id(above) in mounted:
                above, outer = mounted[id(above)]
                methods = outer.around_added(methods)
            found.update(methods)
        return found

    def begin(self, host: Host, cursors: Seal) -> None:
        for mount, parent, offer in self.offers:
            mount.runs[host, parent] = offer
            mount.other.mounts.hosts.add(host)
            mount.other.registry.cursors = cursors

    def end(self, host: Host) -> None:
        for mount, parent, _ in self.offers:
            mount.runs.pop((host, parent), None)
            mount.other.mounts.hosts.discard(host)


class MountedServer:
    """A mounted server, as its own handlers and middlewares know it: by the names that it gave itself."""

    def __init__(self, server: Composed, front: Composed, prefix: str) -> None:
        self._server = server
        self._prefix = prefix
        self.registry: Registry = server.registry
        self.middlewares = server.middlewares
        self.extensions: list[Extension] = [one for one in server.extensions if not isinstance(one, Tasks)]
        self.lists_kept = front.lists_kept
        self.show_errors: bool = server.show_errors
        self.threads: int = server.threads
        self.info = front.info
        self.instructions = front.instructions
        self.revisions = front.revisions

    def own_name(self, name: str) -> str:
        return name.removeprefix(self._prefix)

    def notify_updated(self, uri: str) -> None:
        self._server.notify_updated(uri)

    def notify_changed(self, name: Any) -> None:
        self._server.notify_changed(name)

    def complete_elicitation(self, elicitation_id: str) -> bool:
        return self._server.complete_elicitation(elicitation_id)


class MountedOffer(ServerOffer):
    """One run of a mounted server. Rules are not asked again: the server in front has, by the name that it shows."""

    @property
    def server(self) -> Declarations:
        return self._server

    def guard(self, exchange: Exchange) -> None:
        pass

    def _allowed(self, exchange: Exchange, kind: Any, name: str, entry: Any, method: str | None = None) -> Any:
        return entry

    async def _approved(self, exchange: Exchange, name: str) -> ToolEntry:
        return self._tool(exchange, name)

    async def list_through(self, listed: Serve, exchange: Exchange) -> Model:
        """The server's part of a list, with its middlewares around it."""
        found: Model = await through(self._server.middlewares, listed, self._context)(exchange)
        return found

    def _called(self, exchange: Exchange) -> tuple[str, Any]:
        name, given = super()._called(exchange)
        return self._server.own_name(name), given

    def _prompt(self, exchange: Exchange, name: str) -> PromptEntry:
        return super()._prompt(exchange, self._server.own_name(name))

    def _asked_for(self, exchange: Exchange) -> tuple[str, Function | None]:
        name, function = super()._asked_for(exchange)
        entry = self._registry.tools.entries.get(self._server.own_name(name))
        return name, entry.function if function is None and entry is not None else function


@attrs.frozen(eq=False, kw_only=True)
class PassedOn(Signature):
    """The signature of what is passed on: its arguments are read where it is served."""

    mount: "Mount" = attrs.field(repr=False)

    def read(self, arguments: Arguments = None) -> dict[str, Any]:
        return {}

    def read_text(self, arguments: Mapping[str, str | list[str]] | None = None) -> dict[str, Any]:
        return {}


@attrs.define(eq=False)
class Mount:
    """One server in another: what it offers is offered there, from now on."""

    server: Composed
    other: Composed
    prefix: str
    """With its separator; empty for bare names."""
    runs: dict[tuple[RequestHost, News], MountedOffer] = attrs.field(factory=dict, init=False)
    """By the run of *server*: a host has several if *server* is mounted in two others there."""

    def begin(self) -> None:
        """Take in all that *other* offers, and follow it. Raises ValueError if anything has a name that is taken."""
        theirs, ours = self.other.registry, self.server.registry
        followed: list[tuple[Section[Any], MountedSection]] = [
            (theirs.tools, MountedSection(self, ours.tools, "tools/call", self.prefix)),
            (theirs.prompts, MountedSection(self, ours.prompts, "prompts/get", self.prefix)),
            (theirs.resources, MountedSection(self, ours.resources, "resources/read")),
            (theirs.templates, MountedSection(self, ours.templates, "resources/read")),
            (theirs.unlisted, MountedSection(self, ours.unlisted, "resources/read")),
        ]
        for section, follower in followed:
            for name in section.entries:
                follower.check(name)
        for extension in self.other.extensions:
            self.check_crossing(extension)
        for section, follower in followed:
            for name, entry in section.entries.items():
                follower.add(name, entry)
            section.followers.append(follower)
        theirs.followers.append(self)
        self.offer(*declared(theirs.capabilities))
        for (of, argument), entry in theirs.completions.items():
            self.complete(of, argument, entry)
        for extension in self.other.extensions:
            self.cross(extension)

    def offer(self, *names: Offered) -> list[Offered]:
        return self.server.registry.offer(*names)

    def complete(self, of: str, argument: str, entry: HandlerEntry) -> None:
        """Offer a completion. What it is of is a prompt, unless it is written as a template."""
        is_template = of in self.other.registry.templates.entries or (
            of not in self.other.registry.prompts.entries and _URI.match(of) is not None
        )
        shown = of if is_template else self.prefix + of
        self.server.registry.complete(shown, argument, self.passed_on(entry, "completion/complete"))

    def passed_on(self, entry: Any, method: str, **changes: Any) -> Any:
        """*entry*, as it is in the server in front: one that passes the request on."""

        @functools.wraps(entry.function)
        async def pass_on(ctx: Context) -> Any:
            exchange, server = ctx._exchange, ctx._news  # noqa: SLF001  # the request itself goes on
            result = await self.runs[exchange.engine, server].handlers[method](exchange)
            return as_model(cast("Model | Structured | str", result))

        return attrs.evolve(entry, function=pass_on, signature=self._signature(entry.signature), **changes)

    def _signature(self, signature: Signature) -> PassedOn:
        facts: dict[str, Any] = {
            field.alias or field.name: getattr(signature, field.name) for field in attrs.fields(Signature)
        }
        facts |= {"output": None, "context_parameter": "ctx", "is_async": True}
        return PassedOn(**facts, mount=self)

    @property
    def has_middlewares(self) -> bool:
        """Whether lists pass through any: of the mounted server, or of those that are mounted in it."""
        return bool(self.other.middlewares) or any(mount.has_middlewares for mount in self.other.mounts.below)

    def check_crossing(self, extension: Extension) -> None:
        """Raises ValueError if the server in front has an extension of that id, and has use for one alone."""
        if any(one.id == extension.id for one in self.server.extensions) and not isinstance(extension, Tasks | Apps):
            raise ValueError(
                f"extension {extension.id!r} of {self.other.info.name!r} already exists in {self.server.info.name!r}"
            )
        for above in self.server.mounts.above:
            above.check_crossing(extension)

    def cross(self, extension: Extension) -> None:
        """Have the server in front declare an extension of the mounted one, with its methods."""
        if any(one.id == extension.id for one in self.server.extensions):
            return
        if isinstance(extension, Tasks):
            self.server.extend(Tasks(ttl=extension.ttl, poll_interval=extension.poll_interval))
        else:
            self.server.extend(MountedExtension(extension))


@attrs.frozen(eq=False)
class MountedSection:
    """Keeps a section of the server in front as that of the mounted one is."""

    mount: Mount
    ours: Section[Any]
    method: str
    prefix: str = ""

    def check(self, name: str) -> None:
        """Raises as `Section.check` does, and ValueError for a name that its prefix makes too long."""
        shown = self.prefix + name
        if self.method == "tools/call" and len(shown) > MAX_TOOL_NAME:
            raise ValueError(f"invalid tool name {shown[:200]!r}: more than {MAX_TOOL_NAME} characters")
        self.ours.check(shown)

    def add(self, name: str, entry: Any) -> None:
        shown = self.prefix + name
        changes = {"shown": attrs.evolve(entry.shown, name=shown)} if self.prefix else {}
        self.ours.add(shown, self.mount.passed_on(entry, self.method, **changes))

    def remove(self, name: str) -> None:
        """The server in front may have removed it before, and have one of its own by that name now."""
        entry = self.ours.entries.get(self.prefix + name)
        if entry is not None and isinstance(entry.signature, PassedOn) and entry.signature.mount is self.mount:
            self.ours.remove(self.prefix + name)


class MountedExtension(Extension):
    """An extension of a mounted server, as the server in front declares it."""

    def __init__(self, inner: Extension) -> None:
        super().__init__(inner.id, inner.settings, needs_client=inner.needs_client, revisions=inner.revisions)
        self.__dict__["notifications"] = inner.notifications  # the same: some may be added later
        self._inner = inner

    def begin(self, root: Supervisor) -> None:
        self._inner.begin(root)

    def declared(self, revision: Revision, capabilities: ServerCapabilities) -> ServerCapabilities:
        return self._inner.declared(revision, capabilities)

    def added(self, run: ExtensionRun) -> Iterator[tuple[str, AddedMethod]]:
        yield from ()  # they are in the offer of the mounted server, with its lifespan


def declared(capabilities: ServerCapabilities) -> list[Offered]:
    """The kinds that are declared."""
    return [name for name in OFFERS if getattr(capabilities, name) is not UNSET]
