"""A server made of bare handlers, and peers of any revision to try it with, in virtual time."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import attrs

from callboard import tree
from callboard.actors.changes import ListName
from callboard.actors.rules import AccessRules, Decision, Gate
from callboard.actors.server.exchange import Exchange, Handler
from callboard.actors.server.extensions import AddedMethod
from callboard.actors.server.host import Host
from callboard.actors.server.offer import Instant
from callboard.actors.server.parking import Parking
from callboard.actors.server.progress import ProgressTimer
from callboard.actors.server.session_tree import open_session
from callboard.actors.server.task_store import TaskStore
from callboard.codecs.caller import Caller
from callboard.codecs.mcp_headers.header_map import NO_HEADERS, HeaderMap
from callboard.codecs.revisions import (
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    InputRequiredResult,
    ListChangedCapability,
    ListToolsResult,
    ResourcesCapability,
    Revision,
    ServerCapabilities,
    TextContent,
    Tool,
)
from callboard.codecs.routing import Route
from callboard.supervisor import Supervisor, open_tree
from callboard.testing.peer import Answer, Peer
from callboard.transports.memory import MemoryConnection, memory_pair

ANSWERS: Mapping[str, Answer] = {
    "elicitation/create": lambda params: {"action": "accept", "content": {"name": "Ada"}},
    "sampling/createMessage": lambda params: {
        "role": "assistant",
        "model": "m",
        "content": {"type": "text", "text": "Oslo"},
    },
    "roots/list": lambda params: {"roots": [{"uri": "file:///home", "name": "home"}]},
}


def text(words: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=words)])


def said(result: dict[str, Any]) -> str:
    """The words of a tool result."""
    words: str = result["content"][0]["text"]
    return words


@attrs.define(eq=False)
class BareOffer:
    """An offer whose tools are plain functions of the exchange."""

    tools: Mapping[str, Handler]
    info: Implementation = attrs.field(factory=lambda: Implementation(name="bare", version="1"))
    instructions: str | None = None
    revisions: frozenset[Revision] = frozenset(Revision)
    instant: Mapping[str, Instant] = attrs.field(init=False)
    handlers: Mapping[str, Handler] = attrs.field(init=False)
    added: Mapping[str, AddedMethod] = attrs.field(factory=dict, init=False)
    task_store: TaskStore | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.instant = {"tools/list": self._list}
        self.handlers = {"tools/call": self._call}

    def capabilities(self, revision: Revision) -> ServerCapabilities:
        return ServerCapabilities(
            tools=ListChangedCapability(list_changed=True),
            resources=ResourcesCapability(subscribe=True, list_changed=True),
            logging={},
        )

    def header_map(self, method: str, route: Route) -> HeaderMap:
        return NO_HEADERS

    def owner_of(self, method: str, name: str) -> str | None:
        return "" if method == "tools/call" and name in self.tools else None

    def rule_name(self, method: str, name: str, exchange: Exchange | None = None) -> str:
        return name

    def offered(self) -> list[tuple[str, str, str]]:
        return [("tools/call", name, "") for name in self.tools]

    def guard(self, exchange: Exchange) -> None:
        pass

    def decide_resource(self, rules: AccessRules, caller: Caller, uri: str, method: str) -> Decision:
        return rules.decide(caller, "resource", "bare", uri, method=method)

    def gates(self, rules: AccessRules) -> dict[ListName, list[Gate]]:
        return {"tools": [rules.gate("tool", "bare", name) for name in self.tools], "prompts": [], "resources": []}

    def instructions_for(self, rules: AccessRules, caller: Caller) -> str | None:
        return self.instructions

    def _list(self, exchange: Exchange) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name=name, input_schema={"type": "object"}) for name in self.tools])

    async def _call(self, exchange: Exchange) -> CallToolResult | InputRequiredResult:
        result = await self.tools[exchange.params(CallToolRequestParams).name](exchange)
        assert isinstance(result, CallToolResult | InputRequiredResult)
        return result


@attrs.define(eq=False)
class Stage:
    """A hosted server, and the way to connect to it."""

    host: Host
    root: Supervisor
    _names: "count[int]" = attrs.field(factory=lambda: count(1), init=False)

    async def connect(self, principal: str = "anonymous") -> MemoryConnection:
        there, here = memory_pair()
        await open_session(self.host, here, f"s-{next(self._names)}", principal)
        return there

    async def peer(self, revision: Revision, *, principal: str = "anonymous", **more: Any) -> Peer:
        """A client that is ready to ask."""
        peer = Peer(await self.connect(principal), revision, **{"answers": ANSWERS, **more})
        if revision.era == "legacy":
            await peer.initialize()
        return peer


@asynccontextmanager
async def stage(tools: Mapping[str, Handler], **options: Any) -> AsyncIterator[Stage]:
    parking, reports = Parking("bare", **options), ProgressTimer()
    async with open_tree(tree.host("bare", lambda: parking, lambda: reports)) as root:
        yield Stage(Host(BareOffer(tools), root, parking, reports=reports), root)
