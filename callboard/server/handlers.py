"""A server at work: the handlers behind each method, as the engine calls them."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

import attrs
import msgspec
import trio
from msgspec import UNSET, Raw

from callboard.actors.changes import ListName
from callboard.actors.rules import NO_RULES, NO_SCOPES, OPEN, AccessRules, Approval, Decision, Gate, GuardedKind
from callboard.actors.server.approvals import approved
from callboard.actors.server.client_requests import SessionKey
from callboard.actors.server.exchange import Exchange, Handler
from callboard.actors.server.extensions import AddedMethod
from callboard.actors.server.offer import Instant
from callboard.actors.server.task_store import TaskStore
from callboard.actors.terms import Terms
from callboard.codecs.caller import Caller
from callboard.codecs.envelope import Notification, Request
from callboard.codecs.mcp_headers.header_map import NO_HEADERS, HeaderMap
from callboard.codecs.revisions import (
    CallToolRequestParams,
    CallToolResult,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    CompletionReference,
    DiscoverResult,
    GetPromptRequestParams,
    GetPromptResult,
    Implementation,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    Model,
    PaginatedRequestParams,
    PromptReference,
    ReadResourceRequestParams,
    ReadResourceResult,
    Revision,
    ServerCapabilities,
)
from callboard.codecs.revisions.calls import Structured
from callboard.codecs.routing import Route
from callboard.errors import (
    HandlerFailed,
    InsufficientScope,
    InvalidParams,
    MissingCapability,
    Overloaded,
    ResourceNotFound,
    UrlRequired,
)
from callboard.server.content.content import to_contents, to_messages, to_result
from callboard.server.content.errors import BadArguments, Unfit
from callboard.server.content.failures import error_result, is_unexpected
from callboard.server.context import Context, InputRequired, News
from callboard.server.extension import Extension, ExtensionRun, added_by
from callboard.server.extension_listeners import ExtensionListeners
from callboard.server.faults import exited, log_failure
from callboard.server.middleware import Middleware, Serve, checked, guarded, layered_methods, modelled, through
from callboard.server.registry import (
    CacheHint,
    E,
    Function,
    HandlerEntry,
    PromptEntry,
    Registry,
    ResourceEntry,
    Section,
    TemplateEntry,
    ToolEntry,
)
from callboard.supervisor.ended import drop_frames
from callboard.supervisor.groups import sole

THREADS: Final = 40
"""Most plain functions that run in threads at once, unless the server says otherwise."""

MAX_VALUES: Final = 100
"""Most candidates of one completion. The specification's limit."""

_CALL: Final = frozenset(("name", "arguments", "_meta"))
_BRACE: Final = ord("{")


class Declarations(News, Protocol):
    """The declarations of a server that its handlers need."""

    registry: Registry
    middlewares: list[Middleware]
    extensions: list[Extension]
    lists_kept: CacheHint
    show_errors: bool
    threads: int
    info: Implementation
    instructions: str | None
    revisions: frozenset[Revision]


class ServerOffer:
    """One run of a server: what the engine is handed as its offer."""

    def __init__(
        self, server: Declarations, lifespan: Any, around_lists: Callable[[Serve], Serve] | None = None
    ) -> None:
        self._server = server
        self._registry = server.registry
        self._lifespan = lifespan
        self._limiter = trio.CapacityLimiter(server.threads)
        self._kept: dict[str, Any] = attrs.asdict(server.lists_kept)
        self._kept_by_one: dict[str, Any] = {**self._kept, "cache_scope": "private"}
        self.info: Implementation = server.info
        self.instructions: str | None = server.instructions
        self.revisions: frozenset[Revision] = server.revisions
        lists: Mapping[str, Instant] = {
            "tools/list": self._list_tools,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "prompts/list": self._list_prompts,
        }
        handlers: Mapping[str, Serve] = {
            "tools/call": self._call_tool,
            "resources/read": self._read_resource,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
        }
        self.instant: Mapping[str, Instant] = {"server/discover": self._discover}
        self.handlers: Mapping[str, Handler]
        waiting: dict[str, Serve] = {name: partial(_awaited, instant) for name, instant in lists.items()}
        if around_lists is not None:
            waiting = {name: around_lists(listed) for name, listed in waiting.items()}
        if server.middlewares:
            self.handlers = {name: self._layered(inner) for name, inner in {**handlers, **waiting}.items()}
        else:
            # A call has a result of its own for a tool that fails: without middlewares nothing else can.
            guarded_ones = {name: self._guarded(inner) for name, inner in handlers.items() if name != "tools/call"}
            slow_lists = {} if around_lists is None else waiting
            guarded_lists = {name: self._guarded(listed) for name, listed in slow_lists.items()}
            self.instant = {**self.instant, **({} if slow_lists else lists)}
            self.handlers = {"tools/call": self._call_tool, **guarded_ones, **guarded_lists}
        run = ExtensionRun(server=server, lifespan=lifespan, limiter=self._limiter, guard=self.guard)
        for one in server.extensions:
            self.handlers = {name: one.around(run, name, handler) for name, handler in self.handlers.items()}
        self.added: Mapping[str, AddedMethod] = self.around_added(added_by(server.extensions, run))
        stores = (run.kept[one.id] for one in server.extensions if isinstance(run.kept.get(one.id), TaskStore))
        self.task_store: TaskStore | None = next(stores, None)
        self._listeners = ExtensionListeners(server.extensions)
        self._declared: dict[Revision, tuple[ServerCapabilities, ServerCapabilities]] = {}

    def capabilities(self, revision: Revision) -> ServerCapabilities:
        """The kinds that the server offers now, or declared for later. The same object until that changes."""
        offered = self._registry.capabilities
        if not self._server.extensions:
            return offered
        known = self._declared.get(revision)
        if known is None or known[0] is not offered:
            found = offered
            for extension in self._server.extensions:
                found = extension.declared(revision, found)
            known = self._declared[revision] = offered, found
        return known[1]

    def hear(self, notification: Notification, terms: Terms | None, _: SessionKey) -> bool:
        """Tell the extensions of a notification. False if none of them knows it."""
        return self._listeners.hear_client(notification, terms)

    def header_map(self, method: str, route: Route) -> HeaderMap:
        entry = self._registry.tools.entries.get(route.name or "") if method == "tools/call" else None
        return NO_HEADERS if entry is None else entry.headers

    def owner_of(self, method: str, name: str) -> str | None:
        section = self._registry.tools if method == "tools/call" else self._registry.prompts
        return "" if name in section.entries else None

    def rule_name(self, method: str, name: str, exchange: Exchange | None = None) -> str:
        return name

    def offered(self) -> Iterator[tuple[str, str, str]]:
        yield from (("tools/call", name, "") for name in self._registry.tools.entries)
        yield from (("prompts/get", name, "") for name in self._registry.prompts.entries)

    # What is answered at once.

    def _discover(self, exchange: Exchange) -> Model:
        return DiscoverResult(
            supported_versions=sorted(self.revisions),
            capabilities=self.capabilities(exchange.terms.revision),
            instructions=UNSET if self.instructions is None else self.instructions,
            **self._kept,
        )

    def _list_tools(self, exchange: Exchange) -> Model:
        shown, cursor = self._page(exchange, self._registry.tools, "tool")
        return ListToolsResult(tools=shown, next_cursor=cursor, **self._list_kept(exchange))

    def _list_resources(self, exchange: Exchange) -> Model:
        shown, cursor = self._page(exchange, self._registry.resources, "resource")
        return ListResourcesResult(resources=shown, next_cursor=cursor, **self._list_kept(exchange))

    def _list_templates(self, exchange: Exchange) -> Model:
        shown, cursor = self._page(exchange, self._registry.templates, "resource")
        return ListResourceTemplatesResult(resource_templates=shown, next_cursor=cursor, **self._list_kept(exchange))

    def _list_prompts(self, exchange: Exchange) -> Model:
        shown, cursor = self._page(exchange, self._registry.prompts, "prompt")
        return ListPromptsResult(prompts=shown, next_cursor=cursor, **self._list_kept(exchange))

    def _page(self, exchange: Exchange, shelf: Section[Any], kind: GuardedKind) -> tuple[list[Any], Any]:
        cursor = exchange.params(PaginatedRequestParams).cursor
        rules, caller, server = exchange.engine.rules, exchange.terms.caller, self.info.name

        def is_listed(name: str, entry: HandlerEntry) -> bool:
            return rules is None or rules.decide(caller, kind, server, name, scopes=entry.scopes).is_listed

        entries, following = shelf.page(
            None if cursor is UNSET else cursor,
            self._registry.cursors,
            time.time(),
            is_listed=None if rules is None else is_listed,
        )
        return [entry.shown for entry in entries], UNSET if following is None else following

    def _list_kept(self, exchange: Exchange) -> dict[str, Any]:
        """A list that depends on its caller is no other's."""
        is_for_all = exchange.engine.rules is None and not self._server.middlewares
        return self._kept if is_for_all else self._kept_by_one

    # What a caller may use.

    def _allowed(
        self, exchange: Exchange, kind: GuardedKind, name: str, entry: E | None, method: str | None = None
    ) -> E | None:
        """*entry*; None, as if there were none, if the caller may not know of it. Raises `InsufficientScope`."""
        rules = exchange.engine.rules
        if entry is None or (rules is None and not entry.scopes):
            return entry
        decision = (rules or NO_RULES).decide(
            exchange.terms.caller, kind, self.info.name, name, method=method, scopes=entry.scopes
        )
        if decision.is_hidden:
            return None
        decision.check()
        return entry

    def guard(self, exchange: Exchange) -> None:
        match exchange.request.method:
            case "tools/call":
                self._tool(exchange, exchange.route.name or "")
            case "prompts/get":
                self._prompt(exchange, exchange.route.name or "")
            case "resources/read":
                self._resource(exchange, exchange.route.uri or "")

    def decide_resource(self, rules: AccessRules, caller: Caller, uri: str, method: str) -> Decision:
        found = self._registry.find_resource(uri)
        scopes = NO_SCOPES if found is None else found[0].scopes
        return rules.decide(caller, "resource", self.info.name, uri, method=method, scopes=scopes)

    def instructions_for(self, _: AccessRules, __: Caller) -> str | None:
        return self.instructions

    def gates(self, rules: AccessRules) -> Mapping[ListName, Sequence[Gate]]:
        server, sections = self.info.name, self._registry

        def of(kind: GuardedKind, section: Section[Any]) -> list[Gate]:
            return [rules.gate(kind, server, name, scopes=one.scopes) for name, one in section.entries.items()]

        resources = of("resource", sections.resources) + of("resource", sections.templates)
        return {"tools": of("tool", sections.tools), "prompts": of("prompt", sections.prompts), "resources": resources}

    def _tool(self, exchange: Exchange, name: str) -> ToolEntry:
        entry = self._allowed(exchange, "tool", name, self._registry.tools.entries.get(name))
        if entry is None:
            raise InvalidParams(f"Unknown tool: {name[:128]}")
        return entry

    def _prompt(self, exchange: Exchange, name: str) -> PromptEntry:
        entry = self._allowed(exchange, "prompt", name, self._registry.prompts.entries.get(name))
        if entry is None:
            raise InvalidParams(f"Unknown prompt: {name[:128]}")
        return entry

    def _resource(self, exchange: Exchange, uri: str) -> tuple[ResourceEntry | TemplateEntry, str, Mapping[str, Any]]:
        found = self._registry.find_resource(uri)
        if found is None or self._allowed(exchange, "resource", uri, found[0]) is None:
            raise ResourceNotFound(uri)
        return found

    def _has(self, exchange: Exchange, ref: CompletionReference, of: str) -> bool | None:
        """Whether there is what *ref* names. None: there is not; False: the caller may not know. Raises
        `InsufficientScope`."""
        sections = self._registry
        kind: GuardedKind = "prompt" if isinstance(ref, PromptReference) else "resource"
        if kind == "prompt":
            entry: HandlerEntry | None = sections.prompts.entries.get(of)
        else:
            entry = sections.templates.entries.get(of) or sections.resources.entries.get(of)
        if entry is None:
            return None
        return self._allowed(exchange, kind, of, entry, "completion/complete") is not None

    def _is_private(self, exchange: Exchange, uri: str, entry: HandlerEntry) -> bool:
        """Whether another caller may not read it, so that no cache may hand it to one."""
        rules = exchange.engine.rules
        if rules is None:
            return bool(entry.scopes)
        return rules.gate("resource", self.info.name, uri, scopes=entry.scopes).is_private

    # What takes an author's function.

    async def _call_tool(self, exchange: Exchange) -> Model | Structured | str:
        name, given = self._called(exchange)
        entry = self._registry.tools.entries.get(name)
        rules = exchange.engine.rules
        is_open = rules is None or rules.decide(exchange.terms.caller, "tool", self.info.name, name) is OPEN
        if entry is None or entry.scopes or not is_open:
            entry = self._tool(exchange, name)
            if rules is not None and rules.approves:
                entry = await self._approved(exchange, name)
        signature = entry.signature
        try:
            if signature.is_async:  # as `_perform` does it, without two calls in between: every call comes by here
                arguments = signature.read(given)
                if signature.context_parameter is not None:
                    arguments[signature.context_parameter] = Context(exchange, self._server, self._lifespan)
                value = await entry.function(**arguments)
                if type(value) is InputRequired:
                    value = await self._perform_again(entry, signature.read(given), exchange, value)
            else:
                value = await self._perform(entry, signature.read(given), exchange)
            if type(value) is str and signature.output is None:
                return value  # most say only that, and it needs no model
            return value if isinstance(value, InputRequiredResult) else to_result(value, signature)
        except Exception as error:
            if _is_for_client(exchange.terms.revision, sole(error)):
                raise sole(error) from None
            return self._failed(exchange.request, entry, sole(error))
        except (SystemExit, BaseExceptionGroup) as error:
            return self._failed(exchange.request, entry, exited(error))

    async def _approved(self, exchange: Exchange, name: str) -> ToolEntry:
        """The tool, once the call is approved. Raises as `approved` does."""

        def decide() -> Approval | None:
            entry, rules = self._tool(exchange, name), exchange.engine.rules or NO_RULES
            return rules.decide(exchange.terms.caller, "tool", self.info.name, name, scopes=entry.scopes).approve

        await approved(exchange, self.info.name, name, exchange.request.members.get("arguments"), decide)
        return self._tool(exchange, name)

    def _called(self, exchange: Exchange) -> tuple[str, Mapping[str, Any] | Raw | None]:
        """The tool and its arguments. Params without other members are read without a model.

        Raises `InvalidParams`, also for arguments that are no object.
        """
        members, name = exchange.request.params, exchange.route.name
        if members is not UNSET and name is not None and members.keys() <= _CALL:
            given = members.get("arguments")
            if given is not None and memoryview(given)[0] != _BRACE:
                raise InvalidParams("params.arguments: expected an object")
            return name, given
        params = exchange.params(CallToolRequestParams)
        return params.name, None if params.arguments is UNSET else params.arguments

    def _failed(self, request: Request, entry: ToolEntry, error: Exception) -> CallToolResult:
        """A tool that fails has a result that says so, and the model can act on it."""
        if is_unexpected(error):
            log_failure(error, request, entry.shown.name, entry.function)
        result = error_result(error, show_errors=self._server.show_errors)
        drop_frames(error)  # a thread's exception holds the task that waited for it, and is held by it
        return result

    def _layered(self, handler: Serve) -> Serve:
        """A handler with the middlewares around it, for callers that may use what they ask for."""

        inner = partial(modelled, handler)
        return self._guarded(checked(through(self._server.middlewares, inner, self._context), self.guard))

    def around_added(self, methods: Mapping[str, AddedMethod]) -> Mapping[str, AddedMethod]:
        """*methods* of extensions, with the middlewares around them."""
        return layered_methods(methods, self._layered) if self._server.middlewares else methods

    def _context(self, exchange: Exchange) -> Context:
        return Context(exchange, self._server, self._lifespan)

    def _guarded(self, handler: Serve) -> Serve:
        passes = (HandlerFailed,)  # a mounted server has said already what failed
        return guarded(handler, self._report, show_errors=self._server.show_errors, passes=passes)

    def _report(self, error: Exception, exchange: Exchange) -> None:
        log_failure(error, exchange.request, *self._asked_for(exchange))

    def _asked_for(self, exchange: Exchange) -> tuple[str, Function | None]:
        """The name in a request, and the function behind it, as far as they are known."""
        request, route, shelves = exchange.request, exchange.route, self._registry
        if request.method == "resources/read":
            found = shelves.find_resource(route.uri or "")
            return route.uri or "", None if found is None else found[0].function
        if request.method == "completion/complete":
            params = request.members
            return bytes(params.get("ref", b"")).decode(), None
        shelf: Mapping[str, HandlerEntry] = (
            shelves.tools if request.method == "tools/call" else shelves.prompts
        ).entries
        entry = shelf.get(route.name or "")
        return route.name or "", None if entry is None else entry.function

    async def _read_resource(self, exchange: Exchange) -> Model:
        uri = exchange.params(ReadResourceRequestParams).uri
        entry, mime_type, values = self._resource(exchange, uri)
        try:
            arguments = entry.signature.read_text(values)
        except BadArguments:
            raise ResourceNotFound(uri) from None
        value = await self._perform(entry, arguments, exchange)
        if isinstance(value, InputRequiredResult):
            return value
        if value is None:
            raise ResourceNotFound(uri)
        if not isinstance(value, ReadResourceResult):
            value = ReadResourceResult(contents=to_contents(uri, value, mime_type or None), **attrs.asdict(entry.kept))
        if value.cache_scope == "public" and self._is_private(exchange, uri, entry):
            value = attrs.evolve(value, cache_scope="private")
        return value

    async def _get_prompt(self, exchange: Exchange) -> Model:
        params = exchange.params(GetPromptRequestParams)
        entry = self._prompt(exchange, params.name)
        arguments = entry.signature.read_text({} if params.arguments is UNSET else params.arguments)
        value = await self._perform(entry, arguments, exchange)
        if isinstance(value, GetPromptResult | InputRequiredResult):
            return value
        return GetPromptResult(messages=to_messages(value), description=entry.shown.description)

    async def _complete(self, exchange: Exchange) -> Model:
        params = exchange.params(CompleteRequestParams)
        of = self._server.own_name(params.ref.name) if isinstance(params.ref, PromptReference) else params.ref.uri
        has = self._has(exchange, params.ref, of)
        entry = self._registry.completions.get((of, params.argument.name)) if has is not False else None
        if entry is None:
            if not has:
                raise InvalidParams(f"Nothing to complete: {of[:128]}")
            return CompleteResult(completion=Completion(values=[]))
        settled = UNSET if params.context is UNSET else params.context.arguments
        known = {parameter.name for parameter in entry.signature.parameters}
        others = {} if settled is UNSET else {name: value for name, value in settled.items() if name in known}
        arguments = entry.signature.read_text({**others, "value": params.argument.value})
        value = await self._perform(entry, arguments, exchange)
        if isinstance(value, CompleteResult):
            return value
        values = list(value)
        more = len(values) > MAX_VALUES
        completion = Completion(values=values[:MAX_VALUES], total=len(values), has_more=more or UNSET)
        return CompleteResult(completion=completion)

    async def _perform(self, entry: HandlerEntry, arguments: Mapping[str, Any], exchange: Exchange) -> Any:
        """Run an author's function; one that returns `InputRequired` runs anew when the client has answered."""
        value = await entry.perform(arguments, Context(exchange, self._server, self._lifespan), self._limiter)
        if not isinstance(value, InputRequired):
            return value
        return await self._perform_again(entry, arguments, exchange, value)

    async def _perform_again(
        self, entry: HandlerEntry, arguments: Mapping[str, Any], exchange: Exchange, value: InputRequired
    ) -> Any:
        """Ask what *value* wants to know, and run the function anew; in the modern era the retry does that."""
        while True:
            questions = [asking.question for asking in value.askings]
            carried = msgspec.json.encode(value.state)
            if exchange.hands_over():
                return await exchange.parking.hand_over(exchange, questions, carried)
            answers = await exchange.ask(questions, at_once=True)
            exchange.answers = {question.key or "": answer for question, answer in zip(questions, answers, strict=True)}
            exchange.carried = carried
            result = await entry.perform(arguments, Context(exchange, self._server, self._lifespan), self._limiter)
            if not isinstance(result, InputRequired):
                return result
            value = result


async def _awaited(instant: Instant, exchange: Exchange) -> Any:
    """What is answered at once, for a middleware that may wait."""
    return instant(exchange)


def _is_for_client(revision: Revision, error: Exception) -> bool:
    """Whether a tool's failure is an error and no result. A modern client that lacks a capability, or brought an answer
    to another question, is told in the specification's own way; and no model can do anything about a server that has
    too much to do, or about a token; a mounted server has said already what failed."""
    if isinstance(error, Overloaded | InsufficientScope | UrlRequired | HandlerFailed):
        return True
    is_clients = isinstance(error, MissingCapability | InvalidParams) and not isinstance(error, Unfit)
    return is_clients and revision.dialect.asks_in_results
