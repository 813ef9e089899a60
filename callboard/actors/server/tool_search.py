"""Tools that are searched for and not listed: `search_tools` finds them, `call_tool` calls them.

A call of `call_tool` is rewritten to one of the tool that it names when it arrives, before anything looks at it. So
rules, quotas, approvals, the audit log, tasks, questions and progress are those of that tool. A search asks for the
list of tools as its caller would: what rules or middlewares hide from a caller, it does not find.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeAlias

import attrs
import msgspec
import trio
from msgspec import UNSET, Raw

from callboard.actors.frames import Outcome
from callboard.actors.server.exchange import Exchange, Handler
from callboard.actors.server.offer import Instant, Offer
from callboard.codecs.bridge.results import Forwarded
from callboard.codecs.envelope import Request
from callboard.codecs.members import raw
from callboard.codecs.ranking import Terms, ranked, terms_of
from callboard.codecs.revisions import (
    CallToolResult,
    ListToolsResult,
    Model,
    TextContent,
    Tool,
    ToolAnnotations,
)
from callboard.codecs.revisions.calls import Structured
from callboard.codecs.routing import Route
from callboard.errors import InvalidParams, MethodNotFound, RequestFailed

SEARCH: Final = "search_tools"
CALL: Final = "call_tool"
NAMES: Final = frozenset((SEARCH, CALL))
"""The two tools that are listed."""

MAX_QUERY: Final = 1000
"""Longest query, in characters. A model that knows what it wants says it in a sentence."""

LIMIT: Final = 10
"""Tools that a search finds, unless it says otherwise."""

MAX_LIMIT: Final = 50
"""Most tools that a search finds: a model that needs more should ask for something else."""

MAX_SEARCHED: Final = 20_000
"""Most tools of a catalogue that are looked at."""

MANY: Final = 500
"""Tools that are ranked in the event loop, in a millisecond or two."""

MAX_FOUND_BYTES: Final = 256 * 1024
"""Most bytes of definitions in one answer, beyond the first one: each is read by a model, which pays for it."""

MAX_REMEMBERED: Final = 8 * 1024 * 1024
"""Bytes of pages of a broker's list of which the words are remembered. Each takes some ten times as much with them."""

_ARGUMENTS: Final = 200
"""Arguments of a tool, by their names, that are words of it."""

_SEARCHED_TEXT: Final = 4000
"""Characters of a description that are searched."""

_SHOWN: Final = ("name", "title", "description", "inputSchema")

_Found: TypeAlias = tuple[dict[str, Any], Terms]

_SEARCH_TOOL: Final = Tool(
    name=SEARCH,
    title="Search tools",
    description=(
        "Find tools by what they do. Returns the best matches with their names, descriptions and input schemas; an "
        f"empty query returns the first ones. Call what you find with {CALL}."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "A few words", "maxLength": MAX_QUERY, "default": ""},
            "limit": {
                "type": "integer",
                "description": "Most tools to return",
                "minimum": 1,
                "maximum": MAX_LIMIT,
                "default": LIMIT,
            },
        },
        "additionalProperties": False,
    },
    annotations=ToolAnnotations(read_only_hint=True),
)
_CALL_TOOL: Final = Tool(
    name=CALL,
    title="Call a tool",
    description=f"Call a tool that {SEARCH} has found. Its arguments must fit its input schema.",
    input_schema={
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "The tool's name"},
            "arguments": {"type": "object", "description": "The tool's arguments"},
        },
        "required": ["name"],
        "additionalProperties": False,
    },
)


class _Called(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: Raw | msgspec.UnsetType = UNSET


class _Searched(msgspec.Struct, forbid_unknown_fields=True):
    query: str = ""
    limit: int = LIMIT


class SearchedHost(Protocol):
    """The host whose tools are searched."""

    offer: Offer


@attrs.frozen
class ToolSearch:
    """What a host that has it shows in the place of its tools."""

    ttl_ms: int = 0
    _known: "dict[int, tuple[Tool, _Found]]" = attrs.field(factory=dict, init=False)
    """Tools of a hosted server, with their words, by their identity."""
    _pages: "_RememberedPages" = attrs.field(factory=lambda: _RememberedPages(), init=False)

    def reword(self, request: Request, route: Route) -> tuple[Request, Route]:
        """A call of `call_tool` as one of the tool that it names; anything else as it is."""
        if request.method != "tools/call" or route.name != CALL:
            return request, route
        try:
            called = msgspec.json.decode(request.members.get("arguments", b""), type=_Called)
        except (msgspec.DecodeError, RecursionError):
            return request, route  # `handler` says so
        members = {**request.members, "name": raw(called.name)}
        members.pop("arguments", None)
        if called.arguments is not UNSET and bytes(called.arguments) != b"null":  # models mean none by it
            members["arguments"] = called.arguments
        return msgspec.structs.replace(request, params=members), msgspec.structs.replace(route, name=called.name)

    def answer(self, exchange: Exchange) -> Model | None:
        """The list, if that is asked for."""
        if exchange.request.method != "tools/list":
            return None
        return ListToolsResult(tools=[_SEARCH_TOOL, _CALL_TOOL], ttl_ms=self.ttl_ms, cache_scope="private")

    def handler(self, host: SearchedHost, exchange: Exchange) -> Handler | None:
        """What serves a call of one of the two tools."""
        if exchange.request.method != "tools/call" or exchange.route.name not in NAMES:
            return None
        if exchange.route.name == CALL:
            return _misused

        async def search(asked: Exchange) -> Outcome:
            try:
                return await self._search(host.offer, asked)
            except InvalidParams as error:
                return _failed(str(error))

        return search

    async def _search(self, offer: Offer, exchange: Exchange) -> Outcome:
        asked = _asked(exchange)
        _check_lists(exchange)
        found = await self._all_tools(offer, exchange)
        places: Sequence[int] = range(len(found))
        if asked.query.strip():
            places = await _ranked(asked.query, [terms for _, terms in found])
        chosen: list[dict[str, Any]] = []
        size = 0
        for place in places[: asked.limit]:
            definition = found[place][0]
            size += len(msgspec.json.encode(definition))
            if chosen and size > MAX_FOUND_BYTES:
                break
            chosen.append(definition)
        data = {"tools": chosen, "matches": len(places)}
        return Structured(msgspec.json.encode(data).decode(), data)

    async def _all_tools(self, offer: Offer, exchange: Exchange) -> list[_Found]:
        """All tools that this caller would be shown, page by page."""
        found: list[_Found] = []
        cursor: str | None = None
        while len(found) < MAX_SEARCHED:
            page, cursor = self._read(await _listed(offer, _listing(exchange, cursor)))
            found += page
            if cursor is None:
                break
            await trio.lowlevel.checkpoint()
        return found

    def _read(self, outcome: Outcome) -> tuple[Sequence[_Found], str | None]:
        if isinstance(outcome, Forwarded):
            cursor = outcome.members.get("nextCursor")
            tools = self._pages.words_of(bytes(outcome.members["tools"]))
            return tools, None if cursor is None else msgspec.json.decode(cursor, type=str)
        if not isinstance(outcome, ListToolsResult):
            raise RequestFailed("the list of tools is none")
        return [self._words_of(tool) for tool in outcome.tools], outcome.next_cursor or None

    def _words_of(self, tool: Tool) -> _Found:
        known = self._known.get(id(tool))
        if known is None or known[0] is not tool:
            if len(self._known) >= MAX_SEARCHED:
                self._known.clear()
            shown = {
                "name": tool.name,
                "title": tool.title,
                "description": tool.description,
                "inputSchema": tool.input_schema,
            }
            known = self._known[id(tool)] = tool, _with_words(shown)
        return known[1]


async def _ranked(query: str, texts: Sequence[Terms]) -> list[int]:
    """A large catalogue is ranked in a thread: others go on meanwhile."""
    if len(texts) <= MANY:
        return ranked(query, texts)
    return await trio.to_thread.run_sync(ranked, query, texts)


async def _misused(_: Exchange) -> Outcome:
    return _failed(f'invalid arguments for {CALL}: expected {{"name": a tool\'s name, "arguments": an object}}')


def _failed(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], is_error=True)


def _asked(exchange: Exchange) -> _Searched:
    """Raises `InvalidParams`."""
    given = exchange.request.members.get("arguments")
    try:
        asked = _Searched() if given is None else msgspec.json.decode(given, type=_Searched)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidParams(f"invalid arguments for {SEARCH}: {str(error)[:200]}") from None
    if len(asked.query) > MAX_QUERY or not 1 <= asked.limit <= MAX_LIMIT:
        raise InvalidParams(
            f"invalid arguments for {SEARCH}: a query has at most {MAX_QUERY} characters, and limit is 1 to {MAX_LIMIT}"
        )
    return asked


def _check_lists(exchange: Exchange) -> None:
    """Raises what a caller is told that may not list tools."""
    rules = exchange.engine.rules
    if rules is None or not rules.guards_methods:
        return
    decision = rules.decide_method(exchange.terms.caller, "tools/list")
    if decision.is_hidden:
        raise MethodNotFound("tools/list is not supported by this server")
    decision.check()


def _listing(exchange: Exchange, cursor: str | None) -> Exchange:
    """The request for a page, as the caller of *exchange* would make it."""
    params = {} if cursor is None else {"cursor": raw(cursor)}
    if "_meta" in exchange.request.members:
        params["_meta"] = exchange.request.members["_meta"]
    request = Request(exchange.request.id, "tools/list", params)
    route = msgspec.structs.replace(exchange.route, name=None, request_state=None)
    listing = Exchange(exchange.engine, request, route, exchange.slot, exchange.supervisor)
    listing.session, listing.passed = exchange.session, exchange.passed
    return listing


async def _listed(offer: Offer, listing: Exchange) -> Outcome:
    instant: Instant | None = offer.instant.get("tools/list")
    outcome: Outcome | None = None if instant is None else instant(listing)
    return await offer.handlers["tools/list"](listing) if outcome is None else outcome


@attrs.define(eq=False)
class _RememberedPages:
    """Pages of a broker's list with the words of their tools. The one that was asked for longest ago is forgotten."""

    size: int = attrs.field(default=0, init=False)
    _found: dict[bytes, tuple[_Found, ...]] = attrs.field(factory=dict, init=False)

    def words_of(self, page: bytes) -> tuple[_Found, ...]:
        found = self._found.pop(page, None)
        if found is None:
            found = tuple(_with_words(tool) for tool in msgspec.json.decode(page, type=list[dict[str, Any]]))
            self.size += len(page)
        self._found[page] = found
        while self.size > MAX_REMEMBERED:
            oldest = next(iter(self._found))
            del self._found[oldest]
            self.size -= len(oldest)
        return found


def _with_words(tool: dict[str, Any]) -> _Found:
    """What a search tells of a tool, and the words that it is found by."""
    shown = {key: tool[key] for key in _SHOWN if tool.get(key, UNSET) is not UNSET}
    properties = shown["inputSchema"].get("properties")
    names = list(properties)[:_ARGUMENTS] if isinstance(properties, dict) else []
    fields = (
        (3.0, str(shown["name"])),
        (2.0, str(shown.get("title", ""))),
        (1.0, str(shown.get("description", ""))[:_SEARCHED_TEXT]),
        (0.5, " ".join(names)),
    )
    return shown, terms_of(fields)
