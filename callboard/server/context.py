"""The context of a handler: questions, notifications and facts of its request, the same in every revision."""

import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar, cast, overload

import attrs
import msgspec
from msgspec import UNSET

from callboard.actors.changes import ListName
from callboard.actors.rules import NO_RULES
from callboard.actors.server.client_requests import ClientRequest
from callboard.actors.server.exchange import Exchange
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
    declares,
)
from callboard.errors import InsufficientScope
from callboard.server.content.errors import ToolError
from callboard.server.content.forms import form_for, form_of, read_form

_WEB: Final = re.compile(r"https?://[^\s/?#]", re.IGNORECASE)

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
ClientAbility: TypeAlias = Literal[
    "elicitation", "elicitation.form", "elicitation.url", "roots", "sampling", "sampling.context", "sampling.tools"
]


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
        return self.result.model

    @property
    def stop_reason(self) -> str | None:
        return None if self.result.stop_reason is UNSET else self.result.stop_reason


@attrs.frozen(eq=False)
class Asking(Generic[T]):
    """A question that is asked when it is awaited, or together with others by `ctx.ask_all`."""

    question: ClientRequest
    read: Callable[[Model], T]
    _exchange: Exchange

    def __await__(self) -> Generator[Any, None, T]:
        return self._ask().__await__()

    async def _ask(self) -> T:
        (answer,) = await self._exchange.ask([self.question])
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


@attrs.frozen(eq=False)
class Context:
    """The request that a handler serves, seen from inside. Take it as a parameter: `ctx: Context`."""

    _exchange: Exchange
    _news: News
    lifespan: Any = None

    # The client.

    @property
    def request_id(self) -> RequestId:
        return self._exchange.slot.request_id

    @property
    def method(self) -> str:
        """The method: `tools/call`, `resources/read`, `prompts/get` or `completion/complete`."""
        return self._exchange.request.method

    @property
    def principal(self) -> str:
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
        return self._exchange.terms.revision

    @property
    def client_info(self) -> Implementation | None:
        """The client's name as it says itself. Hearsay: for display, never for a decision."""
        return self._exchange.terms.client_info

    @property
    def client_capabilities(self) -> ClientCapabilities:
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

    # What to say.

    async def log(self, level: LoggingLevel, data: JSONValue, *, logger: str | None = None) -> None:
        """Send a log message to the client, if it wants any of this level."""
        await self._exchange.log(level, data, logger)

    async def report(self, progress: float, *, total: float | None = None, message: str | None = None) -> None:
        """Say how far the work has come. Cheap: the client gets at most one in ten milliseconds."""
        await self._exchange.report(progress, total, message)

    async def progress(self, items: Iterable[T], *, total: float | None = None) -> AsyncIterator[T]:
        """Yield *items*, and report after each."""
        if total is None and isinstance(items, Sequence):
            total = len(items)
        for number, item in enumerate(items, 1):
            yield item
            await self.report(number, total=total)

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

        return Asking(ClientRequest("elicitation/create", params, key), answer, self._exchange)

    def elicit_url(self, message: str, url: str, *, elicitation_id: str = "", key: str | None = None) -> Asking[None]:
        """Ask the user to open *url*: for what must not pass through the client. Accepted means opened, not done.

        Raises ValueError for what is no web address.
        """
        if _WEB.match(url) is None:
            raise ValueError(f"invalid URL {url[:200]!r}: expected an absolute https URL")
        elicitation_id = elicitation_id or secrets.token_urlsafe(9)
        params = ElicitRequestURLParams(message=message, url=url, elicitation_id=elicitation_id)

        def answer(model: Model) -> None:
            _accepted(model)

        return Asking(ClientRequest("elicitation/create", params, key), answer, self._exchange)

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
        key: str | None = None,
    ) -> Asking[Reply]:
        """Ask the client's model.

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
        )

        def answer(model: Model) -> Reply:
            return Reply(cast("CreateMessageResult", model))

        return Asking(ClientRequest("sampling/createMessage", params, key), answer, self._exchange)

    def roots(self, *, key: str | None = None) -> Asking[list[Root]]:
        """Ask for the folders that the client works in."""

        def answer(model: Model) -> list[Root]:
            return list(cast("ListRootsResult", model).roots)

        return Asking(ClientRequest("roots/list", ListRootsRequestParams(), key), answer, self._exchange)

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


def _accepted(model: Model) -> ElicitResult:
    result = cast("ElicitResult", model)
    match result.action:
        case "decline":
            raise Declined("the user declined")
        case "cancel":
            raise Dismissed("the user dismissed the question")
    return attrs.evolve(result, content={}) if result.content is UNSET else result
