"""The client of an admin address: the view of a running server, once or as a stream."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import attrs
import msgspec
import trio

from callboard.cli.arguments import BadArgument
from callboard.codecs.sse import Event, EventDecoder
from callboard.config.files import read_file
from callboard.errors import BadAnswer, CannotConnect, CannotServe, ConnectionLost, NotAuthorized
from callboard.serve.token_line import HASHED
from callboard.transports.bind import BindAddress
from callboard.transports.client.pool import Channel, Origin, reach

DEFAULT: Final = "127.0.0.1:8001"
ADDRESS_VARIABLE: Final = "CALLBOARD_ADMIN"
"""That of `--admin`: where a server and its operator have one environment, neither has to say it twice."""
TOKEN_VARIABLE: Final = "CALLBOARD_ADMIN_TOKEN"  # noqa: S105  # its name

MAX_VIEW: Final = 64 * 1024 * 1024
"""Largest view, in bytes. One worker with all tables full has one megabyte."""

SILENCE: Final = 10.0
"""Seconds without a view after which the server counts as lost. It sends one a second, and waits two for workers."""

MAX_TOKEN_FILE: Final = 4 * 1024 * 1024
NEWEST: Final = 1
"""Version of views that is known here."""

ACTIONS: Final = "/api/actions"
NONE_SUCH: Final = "there is none such"
"""What an admin listener says to an action about something that is not there."""

_REASON: Final = 200
_HOW: Final = "expected PORT, HOST:PORT, http://HOST:PORT, https://HOST:PORT or unix:/path"

AdminView: TypeAlias = Mapping[str, Any]


@attrs.frozen
class AdminClient:
    """Asks one admin address."""

    origin: Origin
    token: str | None = attrs.field(default=None, repr=False)

    @classmethod
    def of(cls, address: str | None, token_file: Path | None) -> "AdminClient":
        """By what was typed, and else by variables. Raises `BadArgument`."""
        written = address or os.environ.get(ADDRESS_VARIABLE) or DEFAULT
        return cls(origin_of(written), _token(token_file))

    @property
    def name(self) -> str:
        return str(self.origin)

    async def snapshot(self, *, with_history: bool = False) -> AdminView:
        """The view as it is now. Raises `CannotConnect`, `ConnectionLost`, `BadAnswer`, `NotAuthorized`."""
        with trio.move_on_after(SILENCE):
            with _connection(await self._reach()) as channel:
                await self._ask(channel, "/api/snapshot?history" if with_history else "/api/snapshot")
                return _decoded(await channel.whole(MAX_VIEW))
        raise ConnectionLost(f"{self.name}: no response within {SILENCE:g} s")

    async def follow(self, hear: Callable[[AdminView], None]) -> None:
        """Have each new view heard, the first one with its history, until the connection is lost.

        Raises `CannotConnect`, `ConnectionLost`, `BadAnswer`, `NotAuthorized`.
        """
        decoder = EventDecoder(MAX_VIEW)
        with _connection(await self._reach()) as channel, trio.move_on_after(SILENCE) as patience:
            await self._ask(channel, "/events")
            while (piece := await channel.piece()) is not None:
                for event in decoder.feed(piece):
                    if not isinstance(event, Event):
                        raise BadAnswer(f"{self.name}: {event}")
                    hear(_decoded(event.data))
                    patience.deadline = trio.current_time() + SILENCE
            raise ConnectionLost(f"{self.name}: connection closed by the server")
        raise ConnectionLost(f"{self.name}: no view within {SILENCE:g} s")

    async def _reach(self) -> Channel:
        try:
            return Channel(await reach(self.origin))
        except CannotConnect as error:
            where = self.origin.port if self.origin.path is None else self.name
            hint = f"; is a server running there with --admin {where}?" if error.is_refused else ""
            raise CannotConnect(f"{error}{hint}") from None

    async def act(self, action: str, subject: str) -> None:
        """Have the server do something. Raises as `snapshot` does; `BadAnswer` if it refuses, or has none such."""
        with trio.move_on_after(SILENCE):
            with _connection(await self._reach()) as channel:
                await self._ask(channel, ACTIONS, msgspec.json.encode({"action": action, "subject": subject}))
                await channel.whole(65_536)
                return
        raise ConnectionLost(f"{self.name}: no response within {SILENCE:g} s")

    async def _ask(self, channel: Channel, target: str, body: bytes | None = None) -> None:
        method = "GET" if body is None else "POST"
        lines = [f"{method} {target} HTTP/1.1", f"host: {self.origin.authority.decode()}", "connection: close"]
        if self.token is not None:
            lines.append(f"authorization: Bearer {self.token}")
        if body is not None:
            lines += ["x-callboard: 1", "content-type: application/json", f"content-length: {len(body)}"]
        await channel.send("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""))
        head = await channel.head()
        if head.status == 200:
            return
        said = " ".join((await channel.whole(65_536)).decode(errors="replace").split())[:_REASON]
        match head.status:
            case 401:
                how = f"--token-file FILE or ${TOKEN_VARIABLE}"
                problem = f"needs a token: {how}" if self.token is None else "the token is not accepted"
                raise NotAuthorized(f"{self.name}: {problem}")
            case 404 if target == ACTIONS:
                hint = said if said == NONE_SUCH else "actions are off there; see callboard serve --admin-actions"
                raise BadAnswer(f"{self.name}: {hint}")
            case 404:
                raise BadAnswer(f"{self.name}: HTTP 404: not the address of --admin, or of an older callboard")
        raise BadAnswer(f"{self.name}: HTTP {head.status}: {said}")


@contextmanager
def _connection(channel: Channel) -> Iterator[Channel]:
    try:
        yield channel
    finally:
        channel.wire.close()


def origin_of(written: str) -> Origin:
    """Where to connect. Raises `BadArgument`."""
    text = written.strip()
    try:
        if "://" in text:
            origin = Origin.of(text)
            if origin.scheme not in ("http", "https"):
                raise BadArgument(f"invalid address {text[:200]!r}: {_HOW}")
            return origin
        place = BindAddress.parse(text)
        if place.path is None and not place.port:
            raise BadArgument(f"invalid address {text[:200]!r}: port 0 is no port to connect to")
        return Origin.of(urlsplit(place.url("http")))
    except CannotServe:
        raise BadArgument(f"invalid address {text[:200]!r}: {_HOW}") from None
    except CannotConnect as error:
        raise BadArgument(str(error)) from None


def _token(file: Path | None) -> str | None:
    """The first token of *file*, which is a token file or has a token alone; else that of the variable."""
    if file is None:
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
        where = f"${TOKEN_VARIABLE}"
    else:
        token, where = _first_token(file.expanduser()), str(file)
    if not token.isascii() or not token.isprintable() or " " in token:
        raise BadArgument(f"{where}: not a token")
    return token or None


def _first_token(path: Path) -> str:
    try:
        text = read_file(path, MAX_TOKEN_FILE).data.decode()
    except OSError as error:
        raise BadArgument(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise BadArgument(f"{path}: not UTF-8") from None
    for line in text.splitlines():
        words = line.split()
        if words and not words[0].startswith("#"):
            token = words[0] if len(words) == 1 else words[1]
            if token.startswith(HASHED):
                raise BadArgument(f"{path}: has the hash of a token, and not the token itself")
            return token
    raise BadArgument(f"{path}: no token")


def _decoded(data: bytes) -> AdminView:
    try:
        view = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadAnswer(f"invalid view: {error}") from None
    if not isinstance(view, dict) or not isinstance(view.get("server"), dict):
        raise BadAnswer("invalid view: not of a callboard server")
    if view.get("version") != NEWEST:
        raise BadAnswer(f"views of version {str(view.get('version'))[:20]}: use the callboard of that server")
    return view
