"""A storm of calls that end in every way there is: what its clients know of it, and what metrics say of the same."""

from collections import Counter
from collections.abc import Sequence
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import attrs
import trio
from prometheus_client.parser import text_string_to_metric_families

from callboard import Client, connect
from callboard.actors.client.negotiate import refusal
from callboard.actors.server.observer import CANCELLED, TOOL_ERROR
from callboard.errors import OVERLOADED, HttpRefused, ServerRefused
from callboard.observe.journal import UNKNOWN
from tests.observe.test_show_room import Place
from tests.transports.server.http.stage import Client as BareClient

FRONT: Final = "mcp_server_operation_duration_seconds_count"
BACK: Final = "mcp_client_operation_duration_seconds_count"
LEGACY: Final = "2025-11-25"
MODERN: Final = "2026-07-28"
REFUSED: Final = str(OVERLOADED)
COUNTED: Final = ("tools/call", "completion/complete", "initialize")
"""Methods that are compared: of these the clients know every request."""

Ends: TypeAlias = dict[tuple[str, str, str], int]
"""By method, name and error: how many requests ended like that."""


@attrs.define
class History:
    """What clients know, or what metrics say: how requests ended, in front and behind, and what was refused."""

    front: Ends = attrs.field(factory=Counter)
    behind: Ends = attrs.field(factory=Counter)
    refused: dict[str, int] = attrs.field(factory=Counter)

    def ended(self, tool: str, error: str) -> None:
        self.front["tools/call", tool, error] += 1
        if error != REFUSED and tool != UNKNOWN:  # neither gets as far as that
            self.behind["tools/call", tool, error] += 1


async def told(place: Place) -> History:
    """What is counted, as Prometheus gets it."""
    found = History()
    for family in text_string_to_metric_families((await place.ask("/metrics")).body.decode()):
        for one in family.samples:
            labels, count = one.labels, int(one.value)
            key = labels.get("mcp_method_name", ""), labels.get("gen_ai_tool_name", ""), labels.get("error_type", "")
            if one.name == FRONT and key[0] in COUNTED:
                found.front[key] += count
            elif one.name == BACK and key[0] in COUNTED:
                found.behind[key] += count
            elif one.name == "callboard_refused_total":
                found.refused[labels["reason"]] += count
    return found


@attrs.define(eq=False)
class Storm:
    """Clients that call, and note how each call ends."""

    place: Place
    rounds: int
    tools: Sequence[str] = ("echo", "fail")
    completes: bool = True
    known: History = attrs.field(factory=History, init=False)

    async def run(self, *, crowd: int = 3) -> None:
        """*crowd* clients of each transport and era."""
        async with trio.open_nursery() as nursery:
            for transport in ("http", "ws"):
                for revision in (LEGACY, MODERN):
                    for _ in range(crowd):
                        nursery.start_soon(self._client, transport, revision)
            nursery.start_soon(self._strangers)

    async def _client(self, transport: str, revision: str) -> None:
        async with connect(self.place.urls[transport], revision=revision, check_results=False) as client:
            if revision == LEGACY:
                self.known.front["initialize", "", ""] += 1
            for _ in range(self.rounds):
                async with trio.open_nursery() as nursery:
                    for tool in self.tools:
                        nursery.start_soon(self._call, client, tool)
                    nursery.start_soon(self._cancel, client)
                    nursery.start_soon(self._miss, client)
                if self.completes:
                    await self._complete(client, is_early=(transport, revision) == ("http", MODERN))

    async def _call(self, client: Client, tool: str) -> None:
        try:
            result = await client.call_with(tool, {"text": "x"} if tool == "echo" else {})
        except (ServerRefused, HttpRefused) as refused:
            self.known.ended(tool, _code(refused))
        else:
            self.known.ended(tool, TOOL_ERROR if result.is_error else "")

    async def _cancel(self, client: Client) -> None:
        try:
            async with client.call("hold") as call:
                async for _ in call.progress:  # so it runs
                    call.cancel()
        except (ServerRefused, HttpRefused) as refused:
            self.known.ended("hold", _code(refused))
        else:
            self.known.ended("hold", CANCELLED)

    async def _miss(self, client: Client) -> None:
        try:
            await client.call("no-such-tool")
        except (ServerRefused, HttpRefused) as refused:
            self.known.ended(UNKNOWN, _code(refused))

    async def _complete(self, client: Client, *, is_early: bool) -> None:
        """More often than one may. Where the request has an HTTP request of its own, it is refused before it begins."""
        try:
            await client.complete("brief", "topic", "x")
        except (ServerRefused, HttpRefused) as refused:
            if is_early:
                self.known.refused["quota"] += 1
            else:
                self.known.front["completion/complete", "", _code(refused)] += 1
        else:
            self.known.front["completion/complete", "", ""] += 1

    async def _strangers(self) -> None:
        """Who calls it by another name, or says nothing that can be read."""
        port = urlsplit(self.place.urls["http"]).port
        for name, body, reason in (
            ("evil.example", "{}", "host"),
            (f"127.0.0.1:{port}", "{", "invalid"),
        ) * self.rounds:
            bare = trio.socket.socket()
            await bare.connect(("127.0.0.1", port))
            client = BareClient(trio.SocketStream(bare), bare, name.encode())
            lines = ["POST /mcp HTTP/1.1", f"host: {name}", "content-type: application/json"]
            lines += ["accept: application/json, text/event-stream", f"content-length: {len(body)}", "", body]
            await client.send("\r\n".join(lines).encode())
            assert (await client.answer()).status in (400, 421)
            await client.aclose()
            self.known.refused[reason] += 1


def _code(refused: ServerRefused | HttpRefused) -> str:
    return str(refusal(refused)[0])


async def settled(storm: Storm) -> History:
    """What is counted when as many requests have ended as the clients know of: the last are still being cancelled."""
    wanted = sum(storm.known.front.values())
    found = await told(storm.place)
    while sum(found.front.values()) < wanted:
        await trio.sleep(0.02)
        found = await told(storm.place)
    return found
