"""What the admin listener shows: the live page, the view as JSON and as a stream, and metrics.

A view is made once for all that look, and only while somebody does.
"""

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Never, Protocol
from urllib.parse import parse_qs

import attrs
import msgspec
import trio

from callboard import observe
from callboard.codecs.http.head import Head
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.http.writer import PLAIN, STREAM
from callboard.codecs.sse import encode_event
from callboard.observe.actions import ACTIONS
from callboard.observe.metrics import TEXT
from callboard.observe.rows import Row
from callboard.observe.view import TABLES
from callboard.serve.metrics_answer import GUARDS, answer_metrics, headers_of
from callboard.serve.operator_desk import Balanced, OperatorDesk
from callboard.serve.refused_names import RefusedNames
from callboard.serve.standing import standing
from callboard.serve.tokens import TokenTable
from callboard.supervisor import Actor, Fact, get_logger
from callboard.supervisor.ended import failure_text, where
from callboard.transports.server.http.response import Response

log = get_logger("callboard.admin")

EVERY: Final = 1.0
"""Seconds between two views of a stream."""

FRESH: Final = 0.5
"""Seconds for which a view that was made for one is shown to others, too."""

MOST_VIEWERS: Final = 8
"""Streams at once."""

_FOLDER: Final = Path(observe.__file__).parent / "page"

_PAGE: Final[Mapping[bytes, tuple[str, bytes]]] = {
    b"/": ("page.html", b"text/html; charset=utf-8"),
    b"/page.css": ("page.css", b"text/css; charset=utf-8"),
    **{f"/{file.name}".encode(): (file.name, b"text/javascript; charset=utf-8") for file in _FOLDER.glob("*.js")},
}
"""What a browser loads: by path, the file and its type."""

_GET: Final = ("GET", "HEAD")

ANY_OPERATOR: Final = "loopback"
"""The name of operators where no token is asked for: only this machine can connect."""

_REFUSED: Final[Mapping[str, tuple[int, str]]] = {
    "not found": (404, "there is none such"),
    "no answer": (504, "its process does not answer; it may still be done"),
    "failed": (500, "it failed; the log says why"),
}
"""Status and text for each outcome of an action but the good one."""
_TABLES: Final[Mapping[bytes, str]] = {f"/api/{name}".encode(): name for name in TABLES}
"""Parts of the view that can be asked for alone: by path, the name."""

_members: Final = msgspec.json.Decoder[dict[str, msgspec.Raw]](dict[str, msgspec.Raw])


class Overview(Protocol):
    """What is shown: one process, or all workers of a node."""

    async def view(self, *, with_history: bool = False) -> Row: ...

    async def metrics(self, form: bytes = TEXT) -> Sequence[bytes]:
        """For Prometheus, in pieces."""

    async def stderr(self, server: str) -> list[str] | None:
        """The last lines of a server on its standard error; None if there is none of that name."""

    async def act(self, action: str, subject: str) -> bool | None:
        """Do what the operator wants. Whether there is such a server, tool or client; None if that cannot be said."""


class Wanted(msgspec.Struct):
    """What an operator wants done."""

    action: str
    subject: str = ""


_wanted: Final = msgspec.json.Decoder[Wanted](Wanted)


@attrs.define(eq=False)
class ViewMaker:
    """Makes a view, written out as JSON, for all that ask at about the same time."""

    overview: Overview
    actions: Sequence[str] = ()
    """What operators may do: the page has buttons for that."""
    with_history: bool = False
    _making: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _latest: bytes = attrs.field(default=b"", init=False)
    _made_at: float = attrs.field(default=-math.inf, init=False)

    async def make(self) -> bytes:
        """A view that is at most `FRESH` seconds old. The first one to ask makes it, the others wait for it."""
        async with self._making:
            if self._made_at + FRESH <= trio.current_time():
                view = await self.overview.view(with_history=self.with_history)
                made_at = trio.current_time()
                await trio.lowlevel.checkpoint()
                self._latest = msgspec.json.encode({**view, "actions": self.actions})
                self._made_at = made_at
            return self._latest

    def forget(self) -> None:
        """Something was done: the next one to look sees it."""
        self._made_at = -math.inf


@attrs.define(eq=False)
class Viewers(Actor[Never]):
    """The clients that follow the view as a stream."""

    mailbox = None

    latest: ViewMaker
    first: ViewMaker
    """Of the view that each stream begins with: it has the history."""
    _streams: dict[Response, bool] = attrs.field(factory=dict, init=False)  # and whether it may be written to
    _come: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                if not self._streams:
                    self._come = trio.Event()
                    await self._come.wait()
                await trio.sleep(EVERY)
                if self._streams:
                    try:
                        self._tell(encode_event(await self.latest.make()), nursery)
                    except Exception as error:  # the next one may be better: viewers would wait for ever
                        log.warning("view_failed", failure=failure_text(error), where=where(error))

    def _tell(self, event: bytes, nursery: trio.Nursery) -> None:
        for response, is_free in list(self._streams.items()):
            if is_free and not response.try_write(event):  # it is large, or the viewer reads slowly
                self._streams[response] = False
                nursery.start_soon(self._write, response, event)

    async def _write(self, response: Response, event: bytes) -> None:
        """Views that come meanwhile are not for this viewer: one that reads slowly gets fewer."""
        await response.write(event)  # bounded by the deadline of a write
        self._set_free(response)

    def _set_free(self, response: Response) -> None:
        if response in self._streams:  # else it was lost meanwhile
            self._streams[response] = True

    async def add(self, response: Response) -> None:
        """Raises `HttpRefusal` for one too many."""
        if len(self._streams) >= MOST_VIEWERS:
            raise HttpRefusal(503, "too many viewers", headers=((b"retry-after", b"5"),))
        self._streams[response] = False
        response.on_lost = lambda: self._leave(response)
        try:
            await response.begin((*STREAM, *GUARDS), encode_event(await self.first.make()))
        except BaseException:
            self._leave(response)
            raise
        self._set_free(response)
        self._come.set()

    def _leave(self, response: Response) -> None:
        self._streams.pop(response, None)

    def facts(self) -> dict[str, Fact]:
        return {"viewers": len(self._streams)}


@attrs.define(eq=False)
class ShowRoom:
    """Answers for all of it. Without *tokens*, all that can connect may look: then it is a loopback address."""

    overview: Overview
    tokens: TokenTable | None = None
    may_act: bool = False
    """Whether operators may do more than look."""
    health: Balanced | None = None
    refused: RefusedNames | None = None
    """Logs requests without a valid token."""
    viewers: Viewers = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        actions = tuple(ACTIONS) if self.may_act else ()
        first = ViewMaker(self.overview, actions, with_history=True)
        self.viewers = Viewers(ViewMaker(self.overview, actions), first)

    def methods(self, head: Head) -> tuple[str, ...]:
        """With which methods the path may be used; none if there is no such path."""
        if head.path == b"/api/actions":
            return ("POST",) if self.may_act else ()
        is_known = head.path in _PAGE or head.path in _TABLES
        return _GET if is_known or head.path in (b"/api/snapshot", b"/api/stderr", b"/events", b"/metrics") else ()

    async def serve(self, head: Head, body: bytes, response: Response) -> None:
        try:
            operator = await self._operator(head, response.peer)
            await (self._act(operator, head, body, response) if head.method == "POST" else self._answer(head, response))
        except HttpRefusal as refusal:
            await response.answer(refusal.status, (*PLAIN, *refusal.headers), f"{refusal}\n".encode())

    async def operator(self, head: Head) -> str | None:
        """The name of the operator, by the token; None if there is no valid one."""
        if self.tokens is None:
            return ANY_OPERATOR
        token = _token(head.get(b"authorization") or b"")
        caller = None if token is None else self.tokens.known(token)
        return None if caller is None else caller.key

    async def why(self, head: Head) -> str:
        """Lines on what is up and what is not, for operators; nothing for others."""
        return (
            "" if await self.operator(head) is None else standing(msgspec.json.decode(await self.viewers.latest.make()))
        )

    async def _operator(self, head: Head, peer: str) -> str:
        """Raises `HttpRefusal` (401) for a request without a valid token."""
        operator = await self.operator(head)
        if operator is None:
            if self.refused is not None:
                self.refused.token(peer, None if head.get(b"authorization") is None else "unknown token")
            challenge = (b"www-authenticate", b'Basic realm="callboard", Bearer')  # a browser asks for the first
            raise HttpRefusal(401, "a token is required", headers=(challenge,))
        return operator

    async def _act(self, operator: str, head: Head, body: bytes, response: Response) -> None:
        """Raises `HttpRefusal`. Pages of others cannot set the header, even in a browser that knows the token."""
        if head.get(b"x-callboard") is None:
            raise HttpRefusal(403, "the header X-Callboard is required")
        try:
            wanted = _wanted.decode(body)
        except msgspec.DecodeError as error:
            raise HttpRefusal(400, str(error)) from None
        if wanted.action not in ACTIONS:
            raise HttpRefusal(400, f"unknown action; there are {', '.join(ACTIONS)}")
        outcome = await OperatorDesk(self.overview, self.health).act(operator, wanted.action, wanted.subject)
        for maker in (self.viewers.latest, self.viewers.first):
            maker.forget()
        if outcome != "done":
            raise HttpRefusal(*_REFUSED[outcome])
        await response.answer(200, (*headers_of(b"application/json"), *GUARDS), b"true")

    async def _answer(self, head: Head, response: Response) -> None:
        path, is_head = head.path, head.method == "HEAD"
        if path in _PAGE:
            name, kind = _PAGE[path]
            body = (_FOLDER / name).read_bytes()
            await response.answer(200, (*headers_of(kind), *GUARDS), b"" if is_head else body)
        elif path == b"/metrics":
            await answer_metrics(head, response, self.overview.metrics)
        elif path == b"/events" and not is_head:
            await self.viewers.add(response)
        elif path == b"/api/stderr":
            lines = await self.overview.stderr(_asked(head).get("server", [""])[0])
            if lines is None:
                raise HttpRefusal(404, "there is no server of that name: /api/stderr?server=NAME")
            await response.answer(200, (*headers_of(b"application/json"), *GUARDS), msgspec.json.encode(lines))
        else:
            asked = _asked(head)
            maker = self.viewers.first if "history" in asked else self.viewers.latest
            body = b"" if is_head else await maker.make()
            if path in _TABLES and body:
                body = bytes(_members.decode(body)[_TABLES[path]])
            await response.answer(200, (*headers_of(b"application/json"), *GUARDS), body)


def _asked(head: Head) -> dict[str, list[str]]:
    return parse_qs(head.target.partition(b"?")[2].decode("latin-1"), keep_blank_values=True)


def _token(said: bytes) -> str | None:
    """The token of an `Authorization` header: a bearer's, or the password of any user."""
    scheme, _, rest = said.decode("latin-1").partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    if scheme.lower() == "basic":
        with suppress(binascii.Error, UnicodeDecodeError):
            return base64.b64decode(rest.strip(), validate=True).decode().partition(":")[2]
    return None
