"""The context of a handler: questions, notifications and facts of its request, the same in every revision."""

import re
import secrets
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, Self, TypeAlias, TypeVar, cast, overload

import attrs
import msgspec
import trio
from msgspec import UNSET

from callboard.actors.changes import ListName
from callboard.actors.frames import custom_frame
from callboard.actors.rules import NO_RULES
from callboard.actors.server.client_requests import ClientRequest, check_declared
from callboard.actors.server.exchange import Exchange
from callboard.actors.server.task import HostedTask
from callboard.actors.server.task_exchange import TaskExchange
from callboard.actors.turns import check_turns
from callboard.codecs.caller import Caller
from callboard.codecs.envelope import RequestId
from callboard.codecs.revisions import (
    ClientCapabilities,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    Implementation,
    JSONObject,
    JSONValue,
    ListRootsRequestParams,
    ListRootsResult,
    LoggingLevel,
    Model,
    ModelPreferences,
    Revision,
    Root,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    UnsetType,
    URLElicitationRequiredData,
    declares,
)
from callboard.errors import InsufficientScope, InvalidParams, UrlRequired
from callboard.server.content.errors import ToolError
from callboard.server.content.forms import form_for, form_of, read_form
from callboard.server.habits import CONTEXT, missing
from callboard.server.misuse import check_may_await

_WEB: Final = re.compile(r"https?://[^\s/?#]", re.IGNORECASE)

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
ClientAbility: TypeAlias = Literal[
    "elicitation", "elicitation.form", "elicitation.url", "roots", "sampling", "sampling.context", "sampling.tools"
]
IncludeContext: TypeAlias = Literal["none", "thisServer", "allServers"]


class Declined(ToolError):
    """The user said no."""


class Dismissed(ToolError):
    """The user closed the question without an answer."""


@attrs.frozen
class Reply:
    """Output of the client's model."""

    result: CreateMessageResult

    @property
    def content(self) -> Sequence[Any]:
        """All blocks, also when there is only one."""
        content = self.result.content
        return content if isinstance(content, Sequence) else (content,)

    @property
    def text(self) -> str:
        """The words of all text blocks."""
        return "".join(block.text for block in self.content if isinstance(block, TextContent))

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.result.model

    @property
    def stop_reason(self) -> str | None:
        """Why the model stopped, if the client says so: `endTurn`, `maxTokens`, `toolUse`, ..."""
        return None if self.result.stop_reason is UNSET else self.result.stop_reason


class Asker(Protocol):
    """Asks the client, and waits for its answers."""

    async def ask(self, questions: Sequence[ClientRequest], *, at_once: bool = False) -> list[Model]: ...


@attrs.frozen(eq=False)
class Asking(Generic[T]):
    """A question that is asked when it is awaited, or together with others by `ctx.ask_all`."""

    question: ClientRequest
    read: Callable[[Model], T]
    _asker: Asker

    def __await__(self) -> Generator[Any, None, T]:
        return self._ask().__await__()

    async def _ask(self) -> T:
        (answer,) = await self._asker.ask([self.question])
        return self.read(answer)


@attrs.frozen(eq=False)
class InputRequired:
    """Return it from a handler that keeps nothing between two rounds: the client is asked, and the handler runs anew.

    The new run finds the answers by `ctx.answered` and *state* in `ctx.state`. Every question needs a key.
    """

    askings: Sequence["Asking[Any]"]
    state: JSONValue = None

    def __attrs_post_init__(self) -> None:
        if any(asking.question.key is None for asking in self.askings):
            raise TypeError("a question in InputRequired needs a key: ctx.elicit(..., key=...)")


class News(Protocol):
    """Tells clients of changes: the server."""

    def notify_updated(self, uri: str) -> None: ...
    def notify_changed(self, name: ListName) -> None: ...
    def complete_elicitation(self, elicitation_id: str) -> bool: ...

    def own_name(self, name: str) -> str:
        """The name that the server itself gave to the tool or prompt *name*, if it is mounted in another one."""


@attrs.define(eq=False)
class _Reported(Generic[T]):
    """Items of `Context.progress`. No generator: one that a cancelled handler leaves would warn of not being closed."""

    _items: Iterator[T]
    _report: Callable[..., Awaitable[None]]
    _total: float | None
    _given: int = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if self._given:
            await self._report(self._given, total=self._total)
        for item in self._items:
            self._given += 1
            return item
        raise StopAsyncIteration


@attrs.frozen(eq=False)
class Context:
    """The request that a handler serves, seen from inside. Take it as a parameter: `ctx: Context`."""

    _exchange: Exchange
    _news: News
    lifespan: Any = None
    """The value of the server's lifespan."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return missing(self, name, CONTEXT)

    # The client.

    @property
    def request_id(self) -> RequestId:
        """The id that the client gave to the request."""
        return self._exchange.slot.request_id

    @property
    def method(self) -> str:
        """The method: `tools/call`, `resources/read`, `prompts/get` or `completion/complete`. A middleware also stands
        before `tools/list`, `resources/list`, `resources/templates/list`, `prompts/list` and methods of extensions."""
        return self._exchange.request.method

    @property
    def target(self) -> str:
        """The name of the tool or prompt, or the URI of the resource, that the request is about. Empty for a list."""
        route, ref = self._exchange.route, self._exchange.request.members.get("ref")
        if ref is not None:
            said = _object(ref)
            return self._news.own_name(str(said["name"])) if "name" in said else str(said.get("uri", ""))
        return self._news.own_name(route.name) if route.name else route.uri or ""

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of a call or a prompt as the client sent them: JSON, not held to any type. A copy.

        Raises `InvalidParams` if they are no object.
        """
        said = self._exchange.request.members.get("arguments")
        return {} if said is None else _object(said)

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the client's HTTP request, by their names in lower case: those that `Server(headers=[...])` names.
        Empty on other transports. The client may say anything in them."""
        return {name.decode(): value.decode() for name, value in self._exchange.passed}

    @property
    def principal(self) -> str:
        """The name of the caller, as its token says; `anonymous` without one."""
        return self._exchange.terms.principal

    @property
    def caller(self) -> Caller:
        """The caller: the principal, tenant, scopes and claims of the token. `ANONYMOUS` without one."""
        return self._exchange.terms.caller

    def require_scopes(self, *scopes: str) -> None:
        """Go on only if the caller's token has all of these scopes, implied ones counted.

        Raises `InsufficientScope`, which is for the client: over HTTP a 403 that names the scopes, if nothing was sent
        yet. A peer at standard input, or in this process, has no token and needs none.
        """
        if not (self._exchange.engine.rules or NO_RULES).holds(self.caller, scopes):
            raise InsufficientScope(scopes)

    @property
    def revision(self) -> Revision:
        """The revision of the protocol that the client uses."""
        return self._exchange.terms.revision

    @property
    def client_info(self) -> Implementation | None:
        """The client's name as it says itself. Hearsay: for display, never for a decision."""
        return self._exchange.terms.client_info

    @property
    def client_capabilities(self) -> ClientCapabilities:
        """The capabilities that the client declares."""
        return self._exchange.terms.capabilities

    def client_can(self, what: ClientAbility) -> bool:
        """Whether the client declares that it can answer such a question. Asked without, it is told what it lacks."""
        return declares(self.client_capabilities, what)

    @property
    def meta(self) -> dict[str, Any]:
        """`_meta` of the request, as the client wrote it."""
        said = self._exchange.request.members.get("_meta")
        found: dict[str, Any] = {} if said is None else msgspec.json.decode(said)
        return found

    @property
    def task(self) -> HostedTask | None:
        """The task that this call is, or may become: its `status_message` and `poll_interval` may be set. None for a
        call that its client waits for."""
        task = self._exchange.task if isinstance(self._exchange, TaskExchange) else None
        return task if isinstance(task, HostedTask) else None

    # What to say.

    def log(self, level: LoggingLevel, data: JSONValue, *, logger: str | None = None) -> Coroutine[Any, Any, None]:
        """Send a log message to the client, if it wants any of this level: `debug`, `info`, `notice`, `warning`,
        `error`, `critical`, `alert` or `emergency`. Raises ValueError for another one."""
        check_may_await("log")
        return self._exchange.log(level, data, logger)

    def report(
        self, progress: float, total: float | None = None, *, message: str | None = None
    ) -> Coroutine[Any, Any, None]:
        """Say how far the work has come. Cheap: the client gets at most one in ten milliseconds.

        To be awaited. In a plain function, which runs in a thread: `trio.from_thread.run(ctx.report, 1)`.
        """
        check_may_await("report")
        return self._exchange.report(progress, total, message)

    def progress(self, items: Iterable[T], *, total: float | None = None) -> AsyncIterator[T]:
        """Yield *items*, and report after each."""
        if total is None and isinstance(items, Sequence):
            total = len(items)
        return _Reported(iter(items), self.report, total)

    async def notify(self, method: str, /, **params: JSONValue) -> None:
        """Send the client a notification of an extension, on the way of its request. A client that does not know it
        ignores it; it is lost while the client is asked something, and once a task goes on without its request.

        Raises ValueError for a name of the specification, or params that are too large.
        """
        frame = custom_frame(method, params)
        await trio.lowlevel.checkpoint()  # also for a handler that says much, and is not wanted any more
        await self._exchange.tell(frame)

    def notify_updated(self, uri: str) -> None:
        """Tell all subscribers, not only this client, that a resource has another content now."""
        self._news.notify_updated(uri)

    def notify_changed(self, name: ListName) -> None:
        """Tell all subscribers that a list is another one now. Adding and removing do so by themselves."""
        self._news.notify_changed(name)

    async def close_stream(self, *, retry: float = 1.0) -> None:
        """Let a client of 2025-11-25 go and come back: its HTTP stream ends, and it resumes after *retry* seconds.

        For work that takes long. The handler goes on; where there is no stream to end, nothing happens.
        """
        await self._exchange.slot.outlet.close_stream(retry)

    # What to ask.

    @property
    def _asker(self) -> Asker:
        return self._exchange

    @overload
    def elicit(self, message: str, form: type[T], *, key: str | None = None) -> Asking[T]: ...
    @overload
    def elicit(self, message: str, form: Mapping[str, Any], *, key: str | None = None) -> Asking[dict[str, Any]]: ...
    def elicit(self, message: str, form: Any, *, key: str | None = None) -> Asking[Any]:
        """Ask the user to fill in a form: a flat class, or a ready schema.

        Awaited, it is what the user gave. Raises `Declined` or `Dismissed` if that is nothing.
        """
        schema = form_of(form)
        if self.revision in schema.known:  # where there are no forms at all, asking says so
            schema = form_for(self.revision, schema)
        params = ElicitRequestFormParams(message=message, requested_schema=schema)

        def answer(model: Model) -> Any:
            return read_form(form, _accepted(model).content or {})

        return Asking(ClientRequest("elicitation/create", params, key), answer, self._asker)

    def elicit_url(self, message: str, url: str, *, elicitation_id: str = "", key: str | None = None) -> Asking[None]:
        """Ask the user to open *url*: for what must not pass through the client. Accepted means opened, not done.

        Raises ValueError for what is no web address.
        """
        if _WEB.match(url) is None:
            raise ValueError(f"invalid URL {url[:200]!r}: expected an absolute https URL")
        elicitation_id = elicitation_id or secrets.token_urlsafe(9)
        session = self._exchange.session
        if session is not None and self.revision.dialect.has_elicitation_ids:
            session.sent_to(elicitation_id)
        params = ElicitRequestURLParams(message=message, url=url, elicitation_id=elicitation_id)

        def answer(model: Model) -> None:
            _accepted(model)

        return Asking(ClientRequest("elicitation/create", params, key), answer, self._asker)

    def require_url(self, message: str, url: str, *, elicitation_id: str = "") -> InputRequired:
        """Return it from a handler that can do nothing before the user has been at *url*; the client calls again.

        A client of 2025-11-25 gets the error -32042, a later one is asked to open the page and to try again. Tell the
        former with `complete_elicitation` when the user is done there. Raises ValueError for what is no web address,
        `MissingCapability` if the client declares no URLs, and that error.
        """
        asking = self.elicit_url(message, url, elicitation_id=elicitation_id, key="url")
        terms = self._exchange.terms
        if terms.revision.dialect.asks_in_results:
            return InputRequired([asking])
        check_declared(asking.question, terms)
        pages = cast("ElicitRequestURLParams", asking.question.params)
        raise UrlRequired(message, URLElicitationRequiredData(elicitations=[pages]))

    def complete_elicitation(self, elicitation_id: str) -> bool:
        """See `Server.complete_elicitation`."""
        return self._news.complete_elicitation(elicitation_id)

    def sample(
        self,
        messages: str | Sequence[SamplingMessage],
        *,
        max_tokens: int,
        system: str | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] = (),
        preferences: ModelPreferences | None = None,
        tools: Sequence[Tool] = (),
        tool_choice: ToolChoice | None = None,
        include_context: IncludeContext | None = None,
        metadata: JSONObject | None = None,
        key: str | None = None,
    ) -> Asking[Reply]:
        """Ask the client's model.

        *include_context* asks the client to add what it knows from this server, or from all of its servers. A client of
        2025-11-25 or later declares `sampling.context` if it does; one that does not is asked without it. *metadata* is
        for the provider of the model, and passed on as it is.

        Raises ValueError for messages in which tools are not answered as the protocol wants.
        """
        if isinstance(messages, str):
            messages = [SamplingMessage(role="user", content=TextContent(text=messages))]
        check_turns(messages)
        params = CreateMessageRequestParams(
            messages=messages,
            max_tokens=max_tokens,
            system_prompt=UNSET if system is None else system,
            temperature=UNSET if temperature is None else temperature,
            stop_sequences=stop_sequences or UNSET,
            model_preferences=UNSET if preferences is None else preferences,
            tools=tools or UNSET,
            tool_choice=UNSET if tool_choice is None else tool_choice,
            include_context=self._context_for(include_context),
            metadata=UNSET if metadata is None else metadata,
        )

        def answer(model: Model) -> Reply:
            return Reply(cast("CreateMessageResult", model))

        return Asking(ClientRequest("sampling/createMessage", params, key), answer, self._asker)

    def _context_for(self, wanted: IncludeContext | None) -> IncludeContext | UnsetType:
        """What a client may be asked to include: it is advice, and no reason to ask nothing."""
        if wanted is None or wanted == "none":
            return UNSET if wanted is None else wanted
        is_understood = not self.revision.dialect.declares_sampling_context or self.client_can("sampling.context")
        return wanted if is_understood else UNSET

    def roots(self, *, key: str | None = None) -> Asking[list[Root]]:
        """Ask for the folders that the client works in."""

        def answer(model: Model) -> list[Root]:
            return list(cast("ListRootsResult", model).roots)

        return Asking(ClientRequest("roots/list", ListRootsRequestParams(), key), answer, self._asker)

    def answered(self, asking: Asking[T]) -> T | None:
        """The answer to a question that an earlier run asked by `InputRequired`; None if it was not answered."""
        answer = self._exchange.answer_to(asking.question)
        return None if answer is None else asking.read(answer)

    @property
    def state(self) -> Any:
        """The state that an earlier run gave to `InputRequired`; None in the first run."""
        carried = self._exchange.carried
        return None if carried is None else msgspec.json.decode(carried)

    @overload
    def ask_all(self, one: Asking[A], /) -> Awaitable[tuple[A]]: ...
    @overload
    def ask_all(self, one: Asking[A], two: Asking[B], /) -> Awaitable[tuple[A, B]]: ...
    @overload
    def ask_all(self, one: Asking[A], two: Asking[B], three: Asking[C], /) -> Awaitable[tuple[A, B, C]]: ...
    @overload
    def ask_all(self, *askings: Asking[Any]) -> Awaitable[tuple[Any, ...]]: ...
    async def ask_all(self, *askings: Asking[Any]) -> tuple[Any, ...]:
        """Ask several questions together: in the modern era the client gets them in one round."""
        answers = await self._exchange.ask([asking.question for asking in askings], at_once=True)
        return tuple(asking.read(answer) for asking, answer in zip(askings, answers, strict=True))


def _object(said: msgspec.Raw) -> dict[str, Any]:
    try:
        return msgspec.json.decode(said, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as reason:
        raise InvalidParams(f"params: expected an object ({reason})") from None


def _accepted(model: Model) -> ElicitResult:
    result = cast("ElicitResult", model)
    match result.action:
        case "decline":
            raise Declined("the user declined")
        case "cancel":
            raise Dismissed("the user dismissed the question")
    return attrs.evolve(result, content={}) if result.content is UNSET else result
