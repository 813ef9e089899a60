"""A client made of JSON: says what it is told to say, and remembers what it heard."""

from collections import deque
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final, Never, TypeAlias

import attrs
import msgspec

from callboard.codecs.revisions import Revision, meta
from callboard.transports.memory import MemoryConnection

Json: TypeAlias = dict[str, Any]
Answer: TypeAlias = Callable[[Json], Json]
"""Answers one question: params in, result out. Raises `Refusal` to answer with an error."""

EVERYTHING: Final[Json] = {
    "sampling": {"tools": {}, "context": {}},
    "elicitation": {"form": {}, "url": {}},
    "roots": {},
}
"""Capabilities of a client that can do all there is."""


class Refusal(Exception):
    """An error that a peer answered with, or shall answer with."""

    def __init__(self, code: int, message: str = "no", data: Any = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.data = data


@attrs.define(eq=False)
class Peer:
    """One end of a connection that speaks one revision.

    `request` waits for the answer; all else that arrives meanwhile is answered (questions) or kept (`heard`).
    """

    connection: MemoryConnection
    revision: Revision
    capabilities: Json = attrs.field(factory=lambda: dict(EVERYTHING))
    answers: Mapping[str, Answer] = attrs.field(factory=dict)
    log_level: str | None = None
    heard: deque[Json] = attrs.field(factory=deque, init=False)
    agreed: Json = attrs.field(factory=dict, init=False)
    """The result of `initialize`."""
    _ids: "count[int]" = attrs.field(factory=lambda: count(1), init=False)

    async def initialize(self) -> Json:
        """Shake hands; a modern peer does not."""
        self.agreed = await self.request(
            "initialize",
            protocolVersion=self.revision.value,
            capabilities=self.capabilities,
            clientInfo={"name": "peer", "version": "1"},
        )
        await self.say({"method": "notifications/initialized"})
        return self.agreed

    async def request(self, method: str, *, meta: Json | None = None, **params: Any) -> Json:
        """Ask, answer what the server asks back, and return the result. Raises `Refusal` for an error."""
        request_id = await self.begin(method, meta=meta, **params)
        return await self.finish(request_id)

    async def call(self, tool: str, /, *given: Never, **arguments: Any) -> Json:
        """Call a tool to its end: in the modern era as many rounds as it takes."""
        if given:
            raise TypeError("call() takes arguments by name: call('name', a=1), or call('name', **arguments)")
        params: Json = {"name": tool, "arguments": arguments}
        result = await self.request("tools/call", **params)
        while result.get("resultType") == "input_required":
            answered = self.answered(result)
            result = await self.request("tools/call", **params, **answered)
        return result

    def answered(self, result: Json) -> Json:
        """The params of a retry after an `input_required` result."""
        responses = {
            key: self.answers[asked["method"]](asked.get("params", {}))
            for key, asked in result["inputRequests"].items()
        }
        return {"inputResponses": responses, "requestState": result["requestState"]}

    async def begin(self, method: str, *, meta: Json | None = None, **params: Any) -> int:
        """Send a request and return its id, without waiting."""
        request_id = next(self._ids)
        body = {**params, "_meta": {**self._meta(), **(meta or {})}}
        if not body["_meta"]:
            del body["_meta"]
        await self.say({"id": request_id, "method": method, **({"params": body} if body else {})})
        return request_id

    async def finish(self, request_id: int) -> Json:
        """Wait for the answer to a request that was begun, unless it is there. Raises `Refusal` for an error."""
        while (message := self._answer_to(request_id)) is None:
            await self._deal_with(await self.hear())
        self.heard.remove(message)
        if "error" in message:
            raise Refusal(**message["error"])
        result: Json = message["result"]
        return result

    def _answer_to(self, request_id: int) -> Json | None:
        answers = (one for one in self.heard if one.get("id") == request_id and "method" not in one)
        return next(answers, None)

    async def say(self, message: Json) -> None:
        """Send a message as it is."""
        await self.connection.send(msgspec.json.encode({"jsonrpc": "2.0", **message}))

    async def hear(self) -> Json:
        """The next message, of any kind."""
        message: Json = msgspec.json.decode(await self.connection.receive())
        return message

    def notifications(self, method: str) -> list[Json]:
        """The params of all notifications of this method so far."""
        return [message.get("params", {}) for message in self.heard if message.get("method") == method]

    async def _deal_with(self, message: Json) -> None:
        if "method" not in message or "id" not in message:
            self.heard.append(message)
            return
        try:
            result = self.answers[message["method"]](message.get("params", {}))
        except Refusal as refusal:
            await self.say({"id": message["id"], "error": {"code": refusal.code, "message": refusal.message}})
        else:
            await self.say({"id": message["id"], "result": result})

    def _meta(self) -> Json:
        if not self.revision.dialect.terms_per_request:
            return {}
        mine = {
            meta.PROTOCOL_VERSION: self.revision.value,
            meta.CLIENT_CAPABILITIES: self.capabilities,
            meta.CLIENT_INFO: {"name": "peer", "version": "1"},
        }
        return mine if self.log_level is None else {**mine, meta.LOG_LEVEL: self.log_level}
