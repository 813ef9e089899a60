"""Cache of lists and resources, kept as long as the server allows."""

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

import attrs
import msgspec
import trio
from msgspec import UNSET, Raw

from callboard.actors.client.conversation import ROUNDS_TIME, Conversation, Patience
from callboard.actors.client.hearer import OnProgress
from callboard.actors.client.negotiate import refusal
from callboard.codecs.bridge.definitions import KINDS
from callboard.codecs.bridge.guard import mended_list
from callboard.codecs.envelope import ErrorResponse
from callboard.codecs.mcp_headers.header_map import NO_HEADERS, HeaderMap
from callboard.codecs.members import raw
from callboard.codecs.revisions import (
    CacheableResult,
    CallToolRequestParams,
    CallToolResult,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    InputResponseRequestParams,
    Model,
    Prompt,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    Tool,
    UnsetType,
    read_result,
)
from callboard.codecs.schema_cost import SchemaCost
from callboard.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    BadAnswer,
    CallboardError,
    HttpRefused,
    InvalidDefinition,
    InvalidParams,
    ServerRefused,
)
from callboard.supervisor import get_logger

if TYPE_CHECKING:
    from callboard.server.signature.schemas import Validator

log = get_logger("callboard.client")

T = TypeVar("T")

MAX_PAGES: Final = 1000
"""Most pages of one list: a server that never comes to an end is not followed for ever."""

MAX_ENTRIES: Final = 100_000
"""And most entries of one."""

MAX_LIST: Final = 16 * 1024 * 1024
"""And most bytes of one, as they came. In memory they take many times as much."""

MAX_TTL: Final = 3600.0
"""Longest time that anything is kept, in seconds; a server's longer wish is clipped."""

MAX_KEPT: Final = 256
"""Maximum number of cached resources."""

_CONTENTS: Final = "contents"
_LISTS: Final = {
    "notifications/tools/list_changed": ("tools",),
    "notifications/prompts/list_changed": ("prompts",),
    "notifications/resources/list_changed": ("resources", "resource_templates"),
}


class _BadCursor(ServerRefused):
    """The server no longer knows a cursor that it gave."""


@attrs.frozen
class _Kept:
    value: Any
    until: float


@attrs.frozen(eq=False)
class _Promise:
    """The output schema of a tool."""

    tool: str
    validator: "Validator"
    work: SchemaCost

    @classmethod
    def of(cls, tool: Tool) -> Self:
        """Raises `InvalidDefinition` if it cannot be understood."""
        schema = cast("Mapping[str, Any]", tool.output_schema)
        from callboard.server.signature.schemas import compile_schema  # most tools promise nothing to hold them to

        return cls(tool.name, compile_schema(schema, is_strange=True), SchemaCost.of(schema))

    def is_kept(self, result: CallToolResult) -> bool:
        if result.is_error is True:
            return True
        if result.structured_content is UNSET:
            return False
        if not self.work.is_bearable(result.structured_content):
            log.warning("output_not_validated", tool=self.tool[:128])  # validation would block the event loop
            return True
        return self.validator.is_valid(result.structured_content)


@attrs.define(eq=False)
class ListCache:
    """Asks for lists page by page, reads, and calls with what the lists say about a tool."""

    conversation: Conversation
    patience: Patience
    is_manual: bool = False
    """Whether what the server asks is handed to the caller."""
    checks_results: bool = True
    """Whether results are held to what their tool promises."""
    _lists: dict[str, _Kept] = attrs.field(factory=dict, init=False)
    _contents: dict[str, _Kept] = attrs.field(factory=dict, init=False)
    _listed: Sequence[Tool] | None = attrs.field(default=None, init=False)
    _usable: Sequence[Tool] = attrs.field(default=(), init=False)
    """The tools of the latest list that can be called."""
    _headers: dict[str, HeaderMap] | None = attrs.field(default=None, init=False)
    _outputs: dict[str, _Promise] = attrs.field(factory=dict, init=False)
    _learning: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _news: Counter[str] = attrs.field(factory=Counter, init=False)
    """How often each kind was said to be another one: what was asked for before is not kept."""

    async def tools(self) -> Sequence[Tool]:
        """All tools that can be called. Over HTTP, tools with invalid header annotations cannot."""
        listed: Sequence[Tool] = await self._list("tools/list", "tools")
        if listed is not self._listed:
            self._listed, self._usable = listed, self._learn(listed)
        return self._usable

    async def resources(self) -> Sequence[Resource]:
        return await self._list("resources/list", "resources")

    async def templates(self) -> Sequence[ResourceTemplate]:
        return await self._list("resources/templates/list", "resource_templates")

    async def prompts(self) -> Sequence[Prompt]:
        return await self._list("prompts/list", "prompts")

    async def call(
        self, params: CallToolRequestParams, patience: Patience, on_progress: OnProgress | None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool. If the server says that headers are missing, its list is fetched anew, once."""
        result = await self.with_headers(
            params.name, lambda headers: self._ask("tools/call", params, patience, on_progress, headers)
        )
        if isinstance(result, CallToolResult):
            return await self.checked(params.name, result)
        return cast("InputRequiredResult", result)

    async def with_headers(self, tool: str, ask: Callable[[HeaderMap], Awaitable[T]]) -> T:
        """Make a call of *tool*. If the server says that headers are missing, its list is fetched anew, once."""
        try:
            return await ask((self._headers or {}).get(tool, NO_HEADERS))
        except (ServerRefused, HttpRefused) as refused:
            if refusal(refused)[0] != HEADER_MISMATCH or not self.conversation.link.is_http:
                raise
        self._lists.pop("tools", None)
        await self.tools()
        return await ask((self._headers or {}).get(tool, NO_HEADERS))

    async def checked(self, tool: str, result: CallToolResult) -> CallToolResult:
        """*result*, if it is what the tool promises. Raises `BadAnswer`."""
        if not self.checks_results:
            return result
        if self._listed is None and result.structured_content is not UNSET:
            await self._learn_late()
        if not self._keeps_promise(tool, result):
            await self.tools()  # it may promise something else by now
            if not self._keeps_promise(tool, result):
                raise BadAnswer(f"{tool[:128]}: the result does not match the tool's output schema")
        return result

    async def read(
        self, params: ReadResourceRequestParams, patience: Patience
    ) -> ReadResourceResult | InputRequiredResult:
        kept = self._contents.get(params.uri)
        if kept is not None and trio.current_time() < kept.until:
            return cast("ReadResourceResult", kept.value)
        before = self._news[_CONTENTS]
        result = await self.conversation.once("resources/read", params, patience=patience)
        if isinstance(result, ReadResourceResult):
            if self._news[_CONTENTS] == before:
                self._keep(self._contents, params.uri, result, _until(result))
            return result
        # What took a question is not kept: another one might be answered otherwise.
        asked = cast("InputRequiredResult", result)
        if self.is_manual:
            return asked
        retried = await self.conversation.retry_of(params, asked, trio.current_time() + ROUNDS_TIME)
        return cast("ReadResourceResult", await self.conversation.request("resources/read", retried, patience=patience))

    async def prompt(self, params: GetPromptRequestParams, patience: Patience) -> GetPromptResult | InputRequiredResult:
        return cast("GetPromptResult | InputRequiredResult", await self._ask("prompts/get", params, patience))

    async def again(
        self, params: InputResponseRequestParams, patience: Patience, on_progress: OnProgress | None
    ) -> Model:
        """Ask again, with answers to what the server wanted to know. Nothing of it is kept."""
        if isinstance(params, CallToolRequestParams):
            return await self.call(params, patience, on_progress)
        method = "resources/read" if isinstance(params, ReadResourceRequestParams) else "prompts/get"
        return await self._ask(method, params, patience, on_progress)

    async def _ask(
        self,
        method: str,
        params: Model,
        patience: Patience,
        on_progress: OnProgress | None = None,
        header_map: HeaderMap = NO_HEADERS,
    ) -> Model:
        ask = self.conversation.once if self.is_manual else self.conversation.request
        return await ask(method, params, patience=patience, on_progress=on_progress, header_map=header_map)

    def forget(self) -> None:
        """Drop the whole cache: it is another session."""
        self._lists.clear()
        self._contents.clear()
        self._news.update((_CONTENTS, *(name for names in _LISTS.values() for name in names)))

    def changed(self, method: str, params: Mapping[str, Raw]) -> None:
        """The server says that something is another one now."""
        for name in _LISTS.get(method, ()):
            self._news[name] += 1
            self._lists.pop(name, None)
        if method == "notifications/resources/updated" and "uri" in params:
            self._news[_CONTENTS] += 1
            uri = str(msgspec.json.decode(params["uri"]))
            for known in [known for known in self._contents if known.startswith(uri) or uri.startswith(known)]:
                del self._contents[known]

    async def _list(self, method: str, member: str) -> Sequence[Any]:
        kept = self._lists.get(member)
        if kept is not None and trio.current_time() < kept.until:
            return cast("Sequence[Any]", kept.value)
        before = self._news[member]
        try:
            items, until = await self._pages(method, member)
        except _BadCursor:
            items, until = await self._pages(method, member)  # the list has changed meanwhile: all of it anew, once
        if self._news[member] == before:
            self._keep(self._lists, member, items, until)
        return items

    async def _pages(self, method: str, member: str) -> tuple[list[Any], float]:
        """All items, and until when they may be kept: as long as every page may."""
        items: list[Any] = []
        cursor: Any = UNSET
        until, size = math.inf, 0
        for _ in range(MAX_PAGES):
            try:
                page, more = await self._page(method, cursor)
            except ServerRefused as refused:
                if cursor is UNSET or refused.error_code != INVALID_PARAMS:
                    raise
                raise _BadCursor(refused.error_code, refused.error_message, refused.data) from None
            items += getattr(page, member)
            size += more
            if size > MAX_LIST:
                raise BadAnswer(f"{method}: list larger than {MAX_LIST} bytes")
            if len(items) > MAX_ENTRIES:
                raise BadAnswer(f"{method}: more than {MAX_ENTRIES} entries")
            until = min(until, _until(page))
            cursor = page.next_cursor
            if cursor is UNSET:
                return items, until
        raise BadAnswer(f"{method}: more than {MAX_PAGES} pages")

    async def _page(self, method: str, cursor: str | UnsetType) -> tuple[Any, int]:
        """One page, and its size in bytes. Definitions that are not what the protocol says are mended or left out."""
        body: dict[str, Any] = {"_meta": dict(self.conversation.said())}
        if cursor is not UNSET:
            body["cursor"] = cursor
        answer = await self.conversation.send(method, body, patience=self.patience)
        if isinstance(answer, ErrorResponse):
            raise ServerRefused(answer.code, answer.message, None if answer.data is UNSET else answer.data)
        size = sum(map(len, answer.result.values()))
        try:
            return self._read(method, answer.result), size
        except InvalidParams:
            kind = next(kind for kind in KINDS if kind.method == method)
            kept, refused = mended_list(kind, answer.result.get(kind.member))
            for one in refused:
                log.warning("definition_left_out", kind=kind.name, name=(one.name or "")[:128], reason=one.reason[:200])
        try:
            return self._read(method, {**answer.result, kind.member: raw(kept)}), size
        except InvalidParams as error:
            raise BadAnswer(f"{method}: {error}") from None

    def _read(self, method: str, result: Mapping[str, Raw]) -> Model:
        decoded = {key: msgspec.json.decode(value) for key, value in result.items()}
        return read_result(self.conversation.revision, method, decoded)

    def _keep(self, where: dict[str, _Kept], key: str, value: object, until: float) -> None:
        where.pop(key, None)
        if until > trio.current_time():
            if len(where) >= MAX_KEPT:
                del where[next(iter(where))]
            where[key] = _Kept(value, until)

    def _learn(self, listed: Sequence[Tool]) -> Sequence[Tool]:
        """Keep what calls need to know of the tools, and leave out those that cannot be called."""
        self._headers, self._outputs = {}, {}
        usable = []
        for tool in listed:
            if not self._learn_headers(tool):
                continue
            usable.append(tool)
            if tool.output_schema is not UNSET:
                self._learn_output(tool)
        return usable

    async def _learn_late(self) -> None:
        """Ask what tools promise, after the fact: it was not needed before. A server may not tell, but once."""
        async with self._learning:
            if self._listed is not None:
                return  # many were called at once
            try:
                await self.tools()
            except CallboardError as error:
                self._listed = ()
                log.warning("outputs_not_validated", reason=str(error)[:200])

    def _learn_headers(self, tool: Tool) -> bool:
        is_mirrored = self.conversation.link.is_http and self.conversation.revision.dialect.mirrors_headers
        if not is_mirrored or self._headers is None:
            return True
        try:
            self._headers[tool.name] = HeaderMap.compile(tool.input_schema)
        except InvalidDefinition as error:
            log.warning("tool_left_out", tool=tool.name[:128], reason=str(error)[:200])
            return False
        return True

    def _learn_output(self, tool: Tool) -> None:
        try:
            self._outputs[tool.name] = _Promise.of(tool)
        except InvalidDefinition as error:
            log.warning("output_schema_unusable", tool=tool.name[:128], reason=str(error)[:200])

    def _keeps_promise(self, tool: str, result: CallToolResult) -> bool:
        """Whether a result is what the tool promises, as far as that is known."""
        promised = self._outputs.get(tool)
        return promised is None or promised.is_kept(result)


def _until(result: Model) -> float:
    """Until when a result that came just now may be kept: not at all, unless it says so."""
    ttl = result.ttl_ms if isinstance(result, CacheableResult) else UNSET
    return trio.current_time() + (0.0 if ttl is UNSET else max(0.0, min(ttl / 1000, MAX_TTL)))
