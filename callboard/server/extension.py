"""Extensions: what a server, a client or a broker declares, and the methods and notifications that it has, beyond the
specification."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from copy import copy
from functools import partial
from typing import Any, Final, Protocol, Self, TypeAlias, TypeVar

import attrs
import msgspec
import trio
from msgspec import UNSET

from callboard.actors.server.exchange import Exchange, Handler
from callboard.actors.server.extensions import AddedMethod, added_row
from callboard.codecs.bridge.results import COMPLETE, Forwarded
from callboard.codecs.envelope import Request
from callboard.codecs.members import raw, read_members
from callboard.codecs.revisions import ALL, METHODS, Implementation, JSONObject, Revision, ServerCapabilities
from callboard.codecs.revisions.meta import is_valid_meta_key
from callboard.errors import HandlerFailed, InvalidRequest, MethodNotFound
from callboard.server.content.errors import ToolError
from callboard.server.content.failures import failure_text, is_unexpected
from callboard.server.context import Context, News
from callboard.server.faults import log_failure
from callboard.server.misuse import check_takes_params
from callboard.server.registry import CacheHint, Function, HandlerEntry, Registry
from callboard.server.signature.schemas import to_json
from callboard.server.signature.signature import Signature
from callboard.supervisor import Supervisor
from callboard.supervisor.groups import sole

F = TypeVar("F", bound=Callable[..., Any])

Notified: TypeAlias = Callable[[JSONObject], None]
"""Called with the params of a notification. It must not wait."""

ClientAnswer: TypeAlias = Callable[[Request, Revision], Awaitable[Forwarded]]
"""Answers a request of a server."""

_OF_SERVERS: Final = ("attach", "around")
_OF_BROKERS: Final = ("begin", "added")


class ExtensionHost(News, Protocol):
    """The server of an extension, as the extension needs it."""

    info: Implementation
    registry: Registry
    show_errors: bool
    lists_kept: CacheHint


@attrs.frozen(kw_only=True)
class ExtensionRun:
    """A running server, as the handlers of an extension need it."""

    server: ExtensionHost
    lifespan: Any
    limiter: trio.CapacityLimiter
    guard: Callable[[Exchange], None]
    """Raises what is said to a caller that may not use what its request names."""
    kept: dict[str, Any] = attrs.field(factory=dict)
    """What extensions keep for this run, by their ids."""


class Extension:
    """An extension of a server, a client or a broker, named by *id*: `com.example/echo`, after a domain of yours.

    ```python
    echo = Extension("com.example/echo", {"loud": True})


    @echo.method("com.example/shout")
    async def shout(text: str) -> dict[str, str]:
        return {"text": text.upper()}


    server = Server("demo", extensions=[echo])
    ```

    The signature of a method's function is what its params must be, as of a tool; what it returns is the result, an
    object. With *needs_client*, a modern client has to declare the extension before it may use a method, or be heard.
    Subclasses for servers may override `declared`, `attach` and `added`.

    In `connect(target, extensions=[echo])` it is a client's: its functions hear notifications of the server, and answer
    requests of a legacy server, but for methods that take a `Context`. A modern server has no way to ask.
    """

    def __init__(
        self,
        id: str,
        settings: JSONObject | None = None,
        *,
        needs_client: bool = False,
        revisions: frozenset[Revision] = ALL,
    ) -> None:
        """Raises ValueError for an *id* without a prefix, or that is no name."""
        if "/" not in id or not is_valid_meta_key(id):
            raise ValueError(f"invalid extension id {id[:200]!r}: expected DOMAIN/NAME, such as com.example/echo")
        self.id: Final = id
        self.settings: Final[JSONObject] = dict(settings or {})
        self.needs_client: Final = needs_client
        self.revisions: Final = frozenset(revisions)
        self.notifications: Final[dict[str, Notified]] = {}
        self._entries: dict[str, HandlerEntry] = {}

    def method(self, name: str) -> Callable[[F], F]:
        """Have a function serve requests of this *name*. Raises ValueError if the specification has that name."""
        if name in METHODS:
            raise ValueError(f"the specification has the method {name!r}")

        def add(function: F) -> F:
            signature = Signature.of(function, context_type=Context, name=name, output_schema=False)
            self._entries[name] = HandlerEntry(function=function, signature=signature)
            return function

        return add

    def notification(self, name: str) -> Callable[[F], F]:
        """Have a plain function hear of notifications of this *name*, by their params: a dict. It must not wait: the
        connection is read no further meanwhile."""
        if name in METHODS:
            raise ValueError(f"the specification has the notification {name!r}")

        def add(function: F) -> F:
            if inspect.iscoroutinefunction(function):
                raise TypeError(f"notification {name!r}: expected a plain function, which must not wait")
            check_takes_params(function, name)
            self.notifications[name] = function
            return function

        return add

    def names(self) -> Iterator[str]:
        """The names of its methods and notifications."""
        yield from (*self._entries, *self.notifications)

    # What a client asks.

    def answers(self, limiter: trio.CapacityLimiter) -> Iterator[tuple[str, "ClientAnswer"]]:
        """The methods by name, as a client answers its server: those that take no `Context`."""
        for name, entry in self._entries.items():
            if entry.signature.context_parameter is None:
                yield name, partial(_answer, self.revisions, entry, limiter)

    def elsewhere(self, tell: Callable[[Notified], Notified], run: Callable[[Function], Function]) -> Self:
        """A copy for a client. Its functions run elsewhere: those for notifications by *tell*, and the others by
        *run*, which makes them async."""
        other = copy(self)
        other.__dict__["notifications"] = {name: tell(function) for name, function in self.notifications.items()}
        other.__dict__["_entries"] = {
            name: attrs.evolve(
                entry, function=run(entry.function), signature=attrs.evolve(entry.signature, is_async=True)
            )
            for name, entry in self._entries.items()
        }
        return other

    # What a server asks.

    def attach(self, server: ExtensionHost) -> None:
        """Called once, when it is added to *server*: the place to register tools and resources of its own."""

    def begin(self, root: Supervisor) -> None:
        """Called each time that the server begins to run, with its *root*: the place to start actors of its own."""

    def declared(self, revision: Revision, capabilities: ServerCapabilities) -> ServerCapabilities:
        """*capabilities*, with what the extension adds in *revision*."""
        if revision not in self.revisions:
            return capabilities
        known = {} if capabilities.extensions is UNSET else capabilities.extensions
        return attrs.evolve(capabilities, extensions={**known, self.id: self.settings})

    def around(self, run: ExtensionRun, method: str, handler: Handler) -> Handler:
        """What serves a *method* of the specification that the server has, instead of *handler*."""
        return handler

    def added(self, run: ExtensionRun) -> Iterator[tuple[str, AddedMethod]]:
        """The methods by name, for one run of the server."""
        needed = self.id if self.needs_client else None
        for name, entry in self._entries.items():
            row = added_row(name, extension=needed, revisions=self.revisions)
            yield name, AddedMethod(row=row, handler=_FunctionHandler(entry, run))


@attrs.frozen(eq=False)
class _FunctionHandler:
    """Serves a method by a function of the author's."""

    entry: HandlerEntry
    run: ExtensionRun

    async def __call__(self, exchange: Exchange) -> Forwarded:
        run, context = self.run, Context(exchange, self.run.server, self.run.lifespan)
        revision, shows = exchange.terms.revision, run.server.show_errors
        return await _served(self.entry, exchange.request, revision, run.limiter, context, show_errors=shows)


async def _answer(
    revisions: frozenset[Revision],
    entry: HandlerEntry,
    limiter: trio.CapacityLimiter,
    request: Request,
    revision: Revision,
) -> Forwarded:
    """Answer a request of a server."""
    if revision not in revisions:
        raise MethodNotFound(f"{request.method} is not supported")
    return await _served(entry, request, revision, limiter, None, show_errors=False)


async def _served(
    entry: HandlerEntry,
    request: Request,
    revision: Revision,
    limiter: trio.CapacityLimiter,
    context: Context | None,
    *,
    show_errors: bool,
) -> Forwarded:
    given = {name: value for name, value in request.members.items() if name != "_meta"}
    arguments = entry.signature.read(raw(given))
    try:
        return answered(revision, await entry.perform(arguments, context, limiter))
    except Exception as error:
        if not is_unexpected(error) and not isinstance(sole(error), ToolError):
            raise sole(error) from None
        if is_unexpected(error):
            log_failure(sole(error), request, request.method, entry.function)
        raise HandlerFailed(failure_text(error, show_errors=show_errors)) from None


def answered(revision: Revision, value: object) -> Forwarded:
    """The result of a method of an extension: an object, or nothing. Raises `TypeError` for anything else."""
    try:
        members = {} if value is None else dict(read_members(msgspec.json.encode(value, enc_hook=to_json)))
    except InvalidRequest:
        raise TypeError(f"the result must be an object, not {type(value).__name__}") from None
    if revision.dialect.typed_results:
        members.setdefault("resultType", COMPLETE)
    return Forwarded(members)


def added_by(extensions: Iterable[Extension], run: ExtensionRun) -> dict[str, AddedMethod]:
    """The methods of all *extensions* by name. Raises ValueError for one that two of them have: the first one's clients
    would be served by the other."""
    found: dict[str, AddedMethod] = {}
    for one in extensions:
        for name, method in one.added(run):
            if name in found:
                raise ValueError(f"extension {one.id!r}: another extension has the method {name!r} already")
            found[name] = method
    return found


def checked_extensions(extensions: Iterable[object], *, is_client: bool) -> tuple[Extension, ...]:
    """The *extensions* of a client, or of a broker. Raises TypeError for what is none, or has to do with what only a
    server has, and ValueError for two of one id."""
    found: dict[str, Extension] = {}
    for one in extensions:
        if not isinstance(one, Extension):
            raise TypeError(f"extensions: expected an Extension, not {type(one).__name__}")
        hooks = (*_OF_SERVERS, *_OF_BROKERS) if is_client else _OF_SERVERS
        if any(getattr(type(one), hook) is not getattr(Extension, hook) for hook in hooks):
            raise TypeError(f"extension {one.id!r}: {type(one).__name__} is for a Server")
        if one.id in found:
            raise ValueError(f"extension {one.id!r} already exists")
        found[one.id] = one
    return tuple(found.values())
