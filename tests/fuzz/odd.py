"""A server that is nearly right: it knows what a good one says, and a seeded hand spoils some of it.

It decides, and does no I/O: a line in, acts out. `play` performs them on any connection.

    python -m tests.fuzz.odd SEED [ODDNESS]

is such a server at a pipe.
"""

import json
import os
import random
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any, Final, TypeAlias

import attrs
import trio

from callboard.codecs.revisions import MODERN, Revision
from tests.fuzz import offers
from tests.fuzz.mutate import TOKENS, mutated
from tests.fuzz.offers import Json
from tests.fuzz.values import odd, spoiled, written

Act: TypeAlias = bytes | float | None
"""A line to write, seconds to wait, or (None) the end of the connection."""

GONE: Final = (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError)

ODDNESS: Final = (0.0, 0.02, 0.1, 0.1, 0.3, 0.6)
"""How much of what it says is spoiled: a server that is wrong in everything is soon left alone."""

GARBAGE: Final = (
    *(
        b"",
        b" ",
        b"not json",
        b"{",
        b"[]",
        b"[1,2]",
        b"null",
        b"1e400",
        b"\xff\xfe\x00",
        b'{"jsonrpc":"2.0"}',
        b"[" * 5000,
    ),
    *(b'{"jsonrpc":"2.0","id":999999,"result":{}}', b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"no"}}'),
    *(
        b'{"jsonrpc":"2.0","id":true,"result":{}}',
        b'{"jsonrpc":"2.0","id":1,"id":2,"result":{}}',
        b"\r",
        b"x" * 100_000,
    ),
    *(
        b'{"jsonrpc":"2.0","method":5}',
        b'{"jsonrpc":"1.0","method":"ping","id":1}',
        b'[{"jsonrpc":"2.0","method":"ping","id":1}]',
    ),
)
CURSORS: Final[tuple[Any, ...]] = ("", "again", "next", 5, None, [], "x" * 5000, "\x00")
ERRORS: Final[tuple[Json, ...]] = (
    {"code": -32603, "message": "boom"},
    {"code": -32601, "message": "no such method"},
    {"code": -32602, "message": "wrong", "data": {"deep": [1]}},
    {"code": -32002, "message": "no such resource", "data": {"uri": "notes://one"}},
    {"code": -32042, "message": "go there first", "data": {"elicitations": [offers.PAGE]}},
    {"code": -32021, "message": "needs sampling", "data": {"requiredCapabilities": {"sampling": {}}}},
    {"code": -32022, "message": "versions", "data": {"supported": ["2025-06-18"], "requested": "2026-07-28"}},
    {"code": 0, "message": ""},
)


@attrs.define(eq=False)
class Oddity:
    """One server for a while: all that it will do is decided by its seed and by what it is asked."""

    seed: str
    oddness: float = -1.0
    draw: random.Random = attrs.field(init=False)
    revision: Revision = attrs.field(init=False)
    lists: dict[str, Any] = attrs.field(factory=dict, init=False)
    """What it lists, by method: the same each time, unless it changes."""
    heard: int = attrs.field(default=0, init=False)
    strays: bool = attrs.field(default=False, init=False)
    """Whether it cannot be told which revision it is spoken to in: it spoiled a handshake."""
    _listening: list[Any] = attrs.field(factory=list, init=False)
    _tokens: list[Any] = attrs.field(factory=list, init=False)
    _asked: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.revision = self.draw.choice(tuple(Revision))
        if self.oddness < 0:
            self.oddness = self.draw.choice(ODDNESS)

    def is_odd(self, factor: float = 1.0) -> bool:
        """Whether the next thing is spoiled."""
        return self.draw.random() < self.oddness * factor

    def begin(self) -> list[Act]:
        """What it says before anything was said to it."""
        return list(self._unasked()) if self.is_odd(0.3) else []

    def hear(self, line: bytes) -> list[Act]:
        """What it does about one message."""
        self.heard += 1
        message = json.loads(line)
        if "method" not in message or "id" not in message:
            return list(self._unasked()) if self.is_odd(0.5) else []
        params = message.get("params") or {}
        token = params.get("_meta", {}).get("progressToken")
        if token is not None:
            self._tokens = [*self._tokens[-3:], token]
        acts: list[Act] = list(self._unasked()) if self.is_odd(0.5) else []
        acts += (
            self._listens(message) if message["method"] == "subscriptions/listen" else self._answers(message, params)
        )
        if self.is_odd(0.5) or (self.oddness and self.heard > 6 and self.draw.random() < 0.05):
            acts += self._unasked()
        return acts

    # Answers.

    def _listens(self, message: Json) -> list[Act]:
        if self.revision not in MODERN:
            return [self._error(message["id"], {"code": -32601, "message": "no such method"})]
        self._listening = [*self._listening[-3:], message["id"]]
        wanted = message["params"]["notifications"]
        params = {"notifications": wanted, "_meta": {"io.modelcontextprotocol/subscriptionId": message["id"]}}
        if self.is_odd():
            if (choice := self.draw.random()) < 0.5:
                return [self._error(message["id"], self.draw.choice(ERRORS))] if choice < 0.25 else []
            params = spoiled(self.draw, params)
        return [self._line({"method": "notifications/subscriptions/acknowledged", "params": params})]

    def _answers(self, message: Json, params: Json) -> list[Act]:
        method, request_id = message["method"], message["id"]
        result = offers.answer(self.revision, method, params, self.draw.randrange(60))
        if method in offers.LISTS and result is not None:
            result = self._listed(method, params, result)
        if result is None:
            return [self._error(request_id, {"code": -32601, "message": "no such method"})]
        if (
            method == "tools/call"
            and self.revision in MODERN
            and self.draw.random() < 0.2
            and "requestState" not in params
        ):
            result = offers.asks_first(self.draw.randrange(8))
        is_handshake = method in ("initialize", "server/discover")
        # Hardly anything is found behind a handshake that fails.
        if not self.is_odd(0.15 if is_handshake else 1.0):
            return [self._line({"id": request_id, "result": result})]
        self.strays = self.strays or is_handshake
        return self._odd_answer(request_id, result)

    def _odd_answer(self, request_id: Any, result: Any) -> list[Act]:
        good = {"id": request_id, "result": result}
        line = self._line(good)
        match self.draw.randrange(14):
            case 0:
                return []  # never
            case 1:
                return [self.draw.choice((0.1, 1.0, 4.9, 5.0, 30.0)), line]
            case 2:
                return [line, line]
            case 3:
                return [self._line({**good, "id": odd(self.draw)}), line]
            case 4:
                return [self._error(request_id, spoiled(self.draw, self.draw.choice(ERRORS), self.draw.randrange(3)))]
            case 5:
                return [self._line({**good, "error": self.draw.choice(ERRORS)})]
            case 6:
                return [mutated(self.draw, [line]).replace(b"\n", b" ")]
            case 7:
                return [line[: self.draw.randrange(len(line))], None]
            case 8:
                return [None]
            case 9:
                return [self._line({"id": request_id, "result": odd(self.draw)})]
            case _:
                return [
                    self._line({"id": request_id, "result": spoiled(self.draw, result, self.draw.choice((1, 1, 2, 4)))})
                ]

    def _listed(self, method: str, params: Json, result: Json) -> Json:
        member, entries = offers.LISTS[method]
        if method not in self.lists:
            self.lists[method] = [
                self._definition(entry) for entry in entries for _ in range(self.draw.choice((1, 1, 2)))
            ]
        found = {**result, member: self.lists[method]}
        if self.is_odd(0.3):
            found["nextCursor"] = self.draw.choice(CURSORS)
        elif self.is_odd(0.1):
            found["nextCursor"] = f"page {self.heard}"  # it never ends
        return found

    def _definition(self, entry: Json) -> Any:
        if not self.is_odd(2.0):
            return entry
        if self.draw.random() < 0.1:
            return odd(self.draw)
        return spoiled(self.draw, entry, self.draw.choice((1, 1, 2, 5)))

    # What it says unasked.

    def _unasked(self) -> Iterator[Act]:
        kind = self.draw.randrange(10)
        if kind < 4:
            yield from self._notifies()
        elif kind < 6:
            yield self._question()
        elif kind == 6:
            yield self.draw.choice(GARBAGE)
        elif kind == 7:
            yield b"".join(self.draw.choices(TOKENS, k=8)).replace(b"\n", b" ")
        elif kind == 8:
            yield from [self._question() for _ in range(self.draw.choice((2, 30)))]
        elif self.is_odd(0.3):
            yield None
        if self.is_odd(0.2):
            self.lists.clear()

    def _notifies(self) -> Iterator[Act]:
        subscription = self.draw.choice(self._listening) if self._listening else None
        token = self.draw.choice(self._tokens) if self._tokens else 1
        method, params = self.draw.choice(offers.notifications(subscription, token))
        body: Json = {"method": method, "params": spoiled(self.draw, params, self.draw.choice((0, 0, 1, 2)))}
        for _ in range(self.draw.choice((1, 1, 1, 3, 200))):
            yield self._line(body)

    def _question(self) -> bytes:
        method, params = self.draw.choice(offers.QUESTIONS)
        self._asked += 1
        request_id: Any = f"q{self._asked}" if not self.is_odd(0.2) else odd(self.draw)
        return self._line(
            {"id": request_id, "method": method, "params": spoiled(self.draw, params, self.draw.randrange(3))}
        )

    def _error(self, request_id: Any, error: Any) -> bytes:
        return self._line({"id": request_id, "error": error})

    def _line(self, message: Json) -> bytes:
        return written({"jsonrpc": "2.0", **message})


async def play(
    oddity: Oddity,
    receive: Callable[[], Awaitable[bytes]],
    send: Callable[[bytes], Awaitable[None]],
    hang_up: Callable[[], None],
) -> None:
    """Be that server on one connection, until either side ends it."""

    async def perform(acts: list[Act]) -> None:
        with suppress(*GONE):
            for act in acts:
                if act is None:
                    hang_up()
                    nursery.cancel_scope.cancel()
                elif isinstance(act, float):
                    await trio.sleep(act)
                else:
                    await send(act)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(perform, oddity.begin())
        with suppress(*GONE):
            while True:
                nursery.start_soon(perform, oddity.hear(await receive()))
        nursery.cancel_scope.cancel()


async def _at_a_pipe(seed: str, oddness: float) -> None:
    incoming, outgoing = trio.lowlevel.FdStream(0), trio.lowlevel.FdStream(1)
    rest = bytearray()

    async def receive() -> bytes:
        while (end := rest.find(b"\n")) < 0:
            data = await incoming.receive_some(65_536)
            if not data:
                raise trio.EndOfChannel
            rest.extend(data)
        line = bytes(rest[:end])
        del rest[: end + 1]
        return line

    writing = trio.Lock()

    async def send(line: bytes) -> None:
        async with writing:
            await outgoing.send_all(line + b"\n")

    await play(Oddity(seed, oddness), receive, send, lambda: None)


def main(seed: str, oddness: str = "-1") -> None:
    seed = f"{seed} {os.getpid()}"  # another one each time that it is started
    sys.stderr.write(f"odd backend {seed!r}\n")
    trio.run(_at_a_pipe, seed, float(oddness))


if __name__ == "__main__":
    main(*sys.argv[1:])
