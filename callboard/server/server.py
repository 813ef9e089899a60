"""The hosting API: a server is an object; its tools, resources and prompts are functions."""

import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Final, TypeAlias, TypeVar, overload

import trio

from callboard import tree
from callboard.actors.changes import Change, ListChanged, ListName, ResourceUpdated
from callboard.actors.rate import Rate, RateLimit
from callboard.actors.rules import checked_scopes
from callboard.actors.server.host import Host
from callboard.actors.server.parking import Parking
from callboard.actors.server.progress import ProgressTimer
from callboard.actors.server.request import HARD_CAP
from callboard.codecs.mcp_headers.header_map import HeaderMap
from callboard.codecs.revisions import (
    ALL,
    UNSET,
    Annotations,
    CacheScope,
    Icon,
    Implementation,
    JSONObject,
    Prompt,
    PromptArgument,
    Resource,
    ResourceTemplate,
    Revision,
    Tool,
    ToolAnnotations,
    UnsetType,
)
from callboard.codecs.revisions.meta import is_valid_meta_key
from callboard.codecs.seal import Seal
from callboard.codecs.uri_template.template import UriTemplate
from callboard.server.context import Context, InputRequired
from callboard.server.handlers import THREADS, Middleware, ServerOffer
from callboard.server.registry import (
    CacheHint,
    HandlerEntry,
    Offered,
    PromptEntry,
    Registry,
    ResourceEntry,
    TemplateEntry,
    ToolEntry,
)
from callboard.server.served import Behind, Served
from callboard.server.signature.signature import Signature
from callboard.supervisor import get_logger, open_tree

log = get_logger("callboard.handlers")

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:.")

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
W = TypeVar("W", bound=Middleware)
Lifespan: TypeAlias = Callable[["Server"], AbstractAsyncContextManager[Any]]
"""Lifespan of a server: an async context manager with the value of `ctx.lifespan`."""


DEFAULT_RATES: Final[Mapping[str, Rate]] = {"completion/complete": Rate(100)}
"""How often one principal may ask, by method. A person types no faster; what tools cost only their author knows."""


class Server(Served):
    """An MCP server. Decorate functions to offer them; they may come and go while it runs."""

    def __init__(
        self,
        name: str,
        *,
        version: str = "0",
        title: str | None = None,
        description: str | None = None,
        website_url: str | None = None,
        icons: Sequence[Icon] = (),
        instructions: str | None = None,
        revisions: frozenset[Revision] = ALL,
        lifespan: Lifespan | None = None,
        rates: Mapping[str, Rate] = DEFAULT_RATES,
        ttl: float = 0,
        cache_scope: CacheScope = "private",
        show_errors: bool = False,
        timeout: float = HARD_CAP,
        threads: int = THREADS,
        offers: Collection[Offered] = (),
    ) -> None:
        """*ttl* and *cache_scope*: how many seconds a client may keep a list, and whether for all its users.

        When a handler raises, the log gets the exception, its text and its place. The client gets the text of a
        `ToolError`, and of any other exception only the type; with *show_errors* the text of all of them.

        A request that takes longer than *timeout* seconds ends with an error; the time that it waits for an answer of
        its client does not count. At most *threads* plain functions run at once; further calls wait for a thread.

        Clients are told of tools, resources, prompts and completions if the server has any, and of log messages if a
        handler takes a context or there is a middleware. *offers* names the kinds whose first handler is added while
        the server runs: a client that was not told of prompts never asks for any. A server that is empty when it starts
        offers every kind, unless *offers* says which.
        """
        if not timeout > 0 or threads < 1:
            raise ValueError("timeout must be positive, and threads at least 1")
        self.info = Implementation(
            name=name,
            version=version,
            title=_or_unset(title),
            description=_or_unset(description),
            website_url=_or_unset(website_url),
            icons=tuple(icons) or UNSET,
        )
        self.instructions = instructions
        self.revisions = frozenset(revisions)
        self.registry = Registry()
        self.registry.offer(*offers)
        self.middlewares: list[Middleware] = []
        self.lists_kept = CacheHint.of(ttl, cache_scope)
        self.show_errors = show_errors
        self.timeout = timeout
        self.threads = threads
        self._rates = dict(rates)
        self._lifespan = lifespan
        self._hosts: set[Host] = set()

    # What it offers.

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = ...,
        title: str | None = ...,
        description: str | None = ...,
        annotations: ToolAnnotations | None = ...,
        icons: Sequence[Icon] = ...,
        meta: JSONObject | None = ...,
        scopes: Iterable[str] = ...,
        input_schema: Mapping[str, Any] | None = ...,
        output_schema: Mapping[str, Any] | bool = ...,
    ) -> Callable[[F], F]: ...
    def tool(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: Sequence[Icon] = (),
        meta: JSONObject | None = None,
        scopes: Iterable[str] = (),
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | bool = True,
    ) -> Any:
        """Offer a function as a tool. Its signature is the schema, its docstring the description.

        A caller whose token lacks one of the *scopes* is told so, and the function is not run.
        """
        needed = checked_scopes(scopes)

        def add(function: F) -> F:
            signature = Signature.of(
                function,
                context_type=Context,
                name=name,
                description=description,
                input_schema=input_schema,
                output_schema=output_schema,
                plain=(InputRequired,),
            )
            tool = Tool(
                name=_tool_name(signature.name),
                title=_or_unset(title),
                description=_or_unset(signature.description or None),
                input_schema=signature.input_schema,
                output_schema=UNSET if signature.output is None else signature.output.schema,
                annotations=_or_unset(annotations),
                icons=tuple(icons) or UNSET,
                meta=_checked(meta),
            )
            headers = HeaderMap.compile(signature.input_schema)
            entry = ToolEntry(function=function, signature=signature, scopes=needed, shown=tool, headers=headers)
            self.registry.tools.add(tool.name, entry)
            self._offer("tools", signature)
            self._changed(ListChanged("tools"))
            return function

        return add if function is None else add(function)

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        annotations: Annotations | None = None,
        icons: Sequence[Icon] = (),
        meta: JSONObject | None = None,
        scopes: Iterable[str] = (),
        ttl: float = 0,
        cache_scope: CacheScope = "private",
    ) -> Callable[[F], F]:
        """Offer a function as a resource, or with `{variables}` in *uri* as a template of resources.

        A client may keep what was read for *ttl* seconds, and share it among its users if *cache_scope* is public.
        A function that returns None says that there is no such resource. *scopes* are those that a token needs to read.

        Raises ValueError if *uri* has no scheme, and TypeError if the function does not take just these variables.
        """
        if _SCHEME.match(uri) is None:
            raise ValueError(f"invalid URI {uri!r}: no scheme; expected for example notes://{uri}")
        template, kept, needed = UriTemplate.parse(uri), CacheHint.of(ttl, cache_scope), checked_scopes(scopes)

        def add(function: F) -> F:
            signature = Signature.of(
                function, context_type=Context, name=name, description=description, output_schema=False
            )
            _check_variables(signature, template)
            common: dict[str, Any] = {
                "name": signature.name,
                "title": _or_unset(title),
                "description": _or_unset(signature.description or None),
                "mime_type": _or_unset(mime_type),
                "annotations": _or_unset(annotations),
                "icons": tuple(icons) or UNSET,
                "meta": _checked(meta),
            }
            if template.variables:
                many = ResourceTemplate(uri_template=uri, **common)
                self.registry.templates.add(
                    uri,
                    TemplateEntry(
                        function=function,
                        signature=signature,
                        scopes=needed,
                        shown=many,
                        template=template,
                        kept=kept,
                    ),
                )
            else:
                one = Resource(uri=uri, size=_or_unset(size), **common)
                self.registry.resources.add(
                    uri,
                    ResourceEntry(function=function, signature=signature, scopes=needed, shown=one, kept=kept),
                )
            self._offer("resources", signature)
            self._changed(ListChanged("resources"))
            return function

        return add

    @overload
    def prompt(self, function: F, /) -> F: ...
    @overload
    def prompt(
        self,
        /,
        *,
        name: str | None = ...,
        title: str | None = ...,
        description: str | None = ...,
        icons: Sequence[Icon] = ...,
        meta: JSONObject | None = ...,
        scopes: Iterable[str] = ...,
    ) -> Callable[[F], F]: ...
    def prompt(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Sequence[Icon] = (),
        meta: JSONObject | None = None,
        scopes: Iterable[str] = (),
    ) -> Any:
        """Offer a function as a prompt. What it returns are the messages. *scopes* are those that a token needs."""
        needed = checked_scopes(scopes)

        def add(function: F) -> F:
            signature = Signature.of(
                function, context_type=Context, name=name, description=description, output_schema=False
            )
            arguments = [
                PromptArgument(
                    name=parameter.name,
                    description=_or_unset(parameter.schema.get("description")),
                    required=parameter.required,
                )
                for parameter in signature.parameters
            ]
            prompt = Prompt(
                name=signature.name,
                title=_or_unset(title),
                description=_or_unset(signature.description or None),
                arguments=arguments or UNSET,
                icons=tuple(icons) or UNSET,
                meta=_checked(meta),
            )
            entry = PromptEntry(function=function, signature=signature, scopes=needed, shown=prompt)
            self.registry.prompts.add(prompt.name, entry)
            self._offer("prompts", signature)
            self._changed(ListChanged("prompts"))
            return function

        return add if function is None else add(function)

    def completion(self, of: str, argument: str) -> Callable[[F], F]:
        """Offer a function that completes an *argument* of a prompt (by name) or of a template (by its text).

        It takes what was typed so far as `value`, and by keyword the arguments that are settled already, if it names
        any; it returns the candidates.
        """

        def add(function: F) -> F:
            signature = Signature.of(function, context_type=Context, output_schema=False)
            self.registry.completions[of, argument] = HandlerEntry(function=function, signature=signature)
            self._offer("completions", signature)
            return function

        return add

    def middleware(self, function: W) -> W:
        """Have every call of a handler pass through *function*, the first one added outermost.

        ```python
        @server.middleware
        async def timed(ctx, go_on):
            started = trio.current_time()
            result = await go_on()
            ...
            return result
        ```
        """
        self.middlewares.append(function)
        self._offer("logging")
        return function

    def remove_tool(self, name: str) -> None:
        """Raises LookupError if there is none."""
        self.registry.tools.remove(name)
        self._changed(ListChanged("tools"))

    def remove_resource(self, uri: str) -> None:
        """Remove a resource, or a template. Raises LookupError if there is none."""
        shelf = self.registry.templates if uri in self.registry.templates.entries else self.registry.resources
        shelf.remove(uri)
        self._changed(ListChanged("resources"))

    def remove_prompt(self, name: str) -> None:
        """Raises LookupError if there is none."""
        self.registry.prompts.remove(name)
        self._changed(ListChanged("prompts"))

    def notify_updated(self, uri: str) -> None:
        """Tell subscribers that a resource has another content now."""
        self._changed(ResourceUpdated(uri))

    def notify_changed(self, name: ListName) -> None:
        """Tell subscribers that a list is another one now. Adding and removing do so by themselves."""
        self._changed(ListChanged(name))

    # How it runs.

    @asynccontextmanager
    async def host(self, *, parking: Parking | None = None) -> AsyncIterator[Host]:
        """Run the server, without any transport yet: for a caller that brings connections of its own."""
        lot, reports = Parking(self.info.name) if parking is None else parking, ProgressTimer()
        context = nullcontext() if self._lifespan is None else self._lifespan(self)
        spec = tree.host(self.info.name.replace("/", "-"), lambda: lot, lambda: reports)
        async with context as value, open_tree(spec) as root:
            meters = {method: RateLimit(rate) for method, rate in self._rates.items()}
            self.registry.offer_anything()
            self.registry.cursors = Seal(lot.ring, "cursor")  # workers share the ring: any of them goes on with a list
            host = Host(ServerOffer(self, value), root, lot, cap=self.timeout, meters=meters, reports=reports)
            self._hosts.add(host)
            try:
                yield host
            finally:
                self._hosts.discard(host)

    def is_ready(self) -> bool:
        """Whether it runs."""
        return bool(self._hosts)

    def join_workers(self) -> None:
        """It runs, and is one of several workers: what it offers stays the same from now on."""
        self.registry.fix()

    def behind(self) -> Behind | None:
        """None: only a broker stands in front of other servers."""
        return None

    def _offer(self, kind: Offered, signature: Signature | None = None) -> None:
        """Declare the kind of a handler, and log messages if it takes a context.

        The clients of a running server were told once what it offers: the author should know that these miss it.
        """
        logs = signature is not None and signature.context_parameter is not None
        late = self.registry.offer(kind, "logging") if logs else self.registry.offer(kind)
        if late and self._hosts:
            hint = f"clients see it after they reconnect; declare it at the start with Server(offers={late})"
            log.warning("registered_after_start", server=self.info.name, kinds=late, hint=hint)

    def _changed(self, change: Change) -> None:
        if not self._hosts:
            return
        if trio.lowlevel.in_trio_run():
            self._publish(change)
        else:  # a plain function, in its thread
            trio.from_thread.run_sync(self._publish, change)

    def _publish(self, change: Change) -> None:
        for host in self._hosts:
            host.topics.publish(change)


def _tool_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"invalid tool name {name[:200]!r}: expected 1 to 128 of A-Z a-z 0-9 _ - .")
    return name


def _checked(meta: JSONObject | None) -> JSONObject | UnsetType:
    for key in meta or ():
        if not is_valid_meta_key(key):
            raise ValueError(
                f"invalid key {key[:200]!r} for _meta: expected NAME or PREFIX/NAME, such as example.com/name"
            )
    return _or_unset(meta)


def _or_unset(value: T | None) -> T | UnsetType:
    return UNSET if value is None else value


def _check_variables(signature: Signature, template: UriTemplate) -> None:
    taken = {parameter.name for parameter in signature.parameters}
    needed = {parameter.name for parameter in signature.parameters if parameter.required}
    if not needed <= set(template.variables) <= taken:
        raise TypeError(f"{signature.name}(): takes {sorted(taken)}, but the template has {sorted(template.variables)}")
    if template.unmatchable is not None and template.variables:
        raise TypeError(f"{signature.name}(): URIs cannot be matched with this template: {template.unmatchable}")
