"""The judge of a fuzz, and a client that holds every message to the official schema of its revision."""

import re
from collections import Counter
from contextlib import suppress
from functools import cache
from itertools import count
from random import Random
from typing import Any, Final, cast

import attrs
import jsonschema
import jsonschema_rs
import msgspec
import trio

from callboard.codecs.revisions import LEGACY, MODERN, Revision, meta
from callboard.codecs.revisions.revision import R4
from callboard.supervisor.logs import LINES
from callboard.transports.memory import MemoryConnection
from tests.by_the_book import definition_of, judged, validator
from tests.fuzz.odd import GONE
from tests.fuzz.values import odd, written
from tests.shared import PROTOCOL
from tests.transports.server.websocket.stage import Gone as SocketGone
from tests.transports.server.websocket.stage import Socket

Json = dict[str, Any]

PATIENCE: Final = 1500.0
"""Seconds of virtual time in which any request is answered, whatever its backend does: a client that does not answer a
question has 600 of them."""

ANSWERS: Final[dict[str, Json]] = {
    "elicitation/create": {"action": "accept", "content": {"name": "Ada"}},
    "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "ok"}, "model": "m"},
    "roots/list": {"roots": [{"uri": "file:///home"}]},
    "ping": {},
}


@cache
def _quick(revision: Revision, name: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(cast("Json", validator(revision, name).schema), validate_formats=False)


def _fits(revision: Revision, name: str, value: Any) -> bool:
    """Whether *value* is certainly valid. Where not, the reference validator has the last word."""
    try:
        return _quick(revision, name).is_valid(value)
    except ValueError:  # nested too deep for it
        return False


def _judged(revision: Revision, message: Any, asked: dict[Any, str]) -> list[tuple[str, Any]]:
    """As `judged`, with what a request that became a task is answered with."""
    if isinstance(message.get("result"), dict) and "task" in message["result"] and revision == R4:
        return [("JSONRPCResultResponse", message), ("CreateTaskResult", message["result"])]
    if "error" in message and "id" not in message:
        # To a message without an id that can be told; the older schemas have no words for that.
        return judged(revision, {**message, "id": 0}, asked)
    return judged(revision, message, asked)


def _judged_request(revision: Revision, message: Any) -> list[tuple[str, Any]]:
    """The definitions that a client's request or notification must fit."""
    kind = "Request" if "id" in message else "Notification"
    return [(f"JSONRPC{kind}", message), (definition_of(revision, message["method"], kind), message)]


def complaint_of(revision: Revision, message: Any, asked: dict[Any, str] | None) -> str:
    """What the schema of *revision* has against *message*; nothing where there is no schema. *asked* is None for what a
    client says."""
    if not PROTOCOL.is_dir():
        return ""
    try:
        definitions = _judged_request(revision, message) if asked is None else _judged(revision, message, asked)
        for name, value in definitions:
            if not _fits(revision, name, value):
                validator(revision, name).validate(value)
    except jsonschema.ValidationError as error:
        place = re.sub(r"\[\d+\]", "[]", error.json_path)
        what = message.get("method") or (asked or {}).get(message.get("id"), "error")
        return f"invalid {what} ({revision}): {place}: {error.validator}"
    except (AssertionError, KeyError, TypeError, AttributeError) as error:
        return f"impossible message ({revision}): {type(error).__name__} {error}"
    return ""


@attrs.define(eq=False)
class Complaints:
    """What went wrong in a fuzz, by kind: the first case of each, with the round in which it happened."""

    round: str = ""
    first: dict[str, str] = attrs.field(factory=dict)
    counted: Counter[str] = attrs.field(factory=Counter)
    messages: int = 0
    """How many messages were judged."""

    def add(self, kind: str, example: object = "") -> None:
        self.counted[kind] += 1
        self.first.setdefault(kind, f"[{self.round}] {str(example)[:1500]}")

    def judge(self, revision: Revision, message: Any, asked: dict[Any, str]) -> None:
        """Hold *message* to the schema of *revision*."""
        self.messages += 1
        if found := complaint_of(revision, message, asked):
            self.add(found, message)

    def heed(self, logs: list[Any]) -> None:
        """Take the crashes from what was logged."""
        for line in logs:
            if line["event"] in ("actor_crashed", "supervisor_escalated", "request_failed"):
                kind = line.get("kind", line.get("child", ""))
                self.add(f"{line['event']} {kind} {line.get('failure', '')[:80]} at {line.get('where', '')}", line)
        logs.clear()
        LINES.forget()  # else the log would merge the next round's lines with these

    def report(self) -> str:
        return "\n".join(f"{self.counted[kind]} x {kind}\n      {text}" for kind, text in self.first.items())


@attrs.define(eq=False)
class Customer:
    """A client that may have many requests open, answers questions, and tells the judge of all it hears."""

    connection: MemoryConnection | Socket
    revision: Revision
    complaints: Complaints
    draw: Random
    capabilities: Json = attrs.field(factory=dict)
    log_level: str | None = None
    sloppiness: float = 0.0
    """How often it answers a question with nonsense, or not at all."""
    heard: Counter[str] = attrs.field(factory=Counter, init=False)
    is_gone: bool = attrs.field(default=False, init=False)
    _asked: dict[Any, str] = attrs.field(factory=dict, init=False)
    _answers: dict[Any, Json] = attrs.field(factory=dict, init=False)
    _came: dict[Any, trio.Event] = attrs.field(factory=dict, init=False)
    _ids: "count[int]" = attrs.field(factory=lambda: count(1), init=False)

    async def read(self) -> None:
        """Take in whatever comes, until the connection ends."""
        with suppress(*GONE, SocketGone):
            while True:
                await self._take(msgspec.json.decode(await self.connection.receive()))
        self.is_gone = True
        for event in self._came.values():
            event.set()

    async def _take(self, message: Json) -> None:
        self.complaints.judge(self.revision, message, self._asked)
        if "method" in message:
            self.heard[message["method"]] += 1
            if "id" in message:
                await self._reply(message)
            return
        known = self._came.get(message.get("id"))
        if known is None or known.is_set():
            self.complaints.add("an answer to nothing that was asked, or a second one", message)
            return
        self._answers[message["id"]] = message
        known.set()

    async def _reply(self, question: Json) -> None:
        chance = self.draw.random()
        if chance < self.sloppiness / 2:
            return
        result = odd(self.draw) if chance < self.sloppiness else ANSWERS.get(question["method"])
        if result is None:
            await self.say({"id": question["id"], "error": {"code": -32601, "message": "no"}})
        else:
            await self.say({"id": question["id"], "result": result})

    async def say(self, message: Json) -> None:
        with suppress(*GONE):
            await self.connection.send(written({"jsonrpc": "2.0", **message}))

    async def initialize(self) -> None:
        """Shake hands, in the legacy era."""
        if self.revision in LEGACY:
            hello: Json = {"protocolVersion": self.revision.value, "capabilities": self.capabilities}
            await self.ask("initialize", **hello, clientInfo={"name": "customer", "version": "1"})
            await self.say({"method": "notifications/initialized"})

    async def ask(self, method: str, *, more: Json | None = None, **params: Any) -> Json:
        """Ask, and wait for the answer: a result, an error, or `{}` if none came, which is complained about."""
        request_id = await self.begin(method, more=more, **params)
        return await self.finish(request_id, method)

    async def begin(self, method: str, *, more: Json | None = None, **params: Any) -> int:
        request_id = next(self._ids)
        self._asked[request_id], self._came[request_id] = method, trio.Event()
        about = {**self._meta(), **(more or {})}
        await self.say(
            {"id": request_id, "method": method, "params": {**params, **({"_meta": about} if about else {})}}
        )
        return request_id

    async def finish(self, request_id: int, method: str, within: float = PATIENCE) -> Json:
        with trio.move_on_after(within):
            await self._came[request_id].wait()
        answer = self._answers.pop(request_id, None)
        if answer is None:
            kind = "hung up on" if self.is_gone else "no answer"
            self.complaints.add(f"{kind}: {method} ({self.revision})", f"after {within:g} s")
            return {}
        return answer

    async def give_up(self, request_id: int) -> None:
        """Say that an answer is no longer wanted: it may come, or not."""
        await self.say({"method": "notifications/cancelled", "params": {"requestId": request_id, "reason": "tired"}})

    def _meta(self) -> Json:
        if self.revision not in MODERN:
            return {}
        mine: Json = {meta.PROTOCOL_VERSION: self.revision.value, meta.CLIENT_CAPABILITIES: self.capabilities}
        mine[meta.CLIENT_INFO] = {"name": "customer", "version": "1"}
        return mine if self.log_level is None else {**mine, meta.LOG_LEVEL: self.log_level}
