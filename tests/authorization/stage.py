"""A guarded server as its operator starts it: `callboard run` with a file of issuers and rules, and one of tokens."""

import json
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import trio

from callboard import Revision
from callboard.codecs.oauth.challenge import Challenge, read_challenges
from callboard.codecs.revisions.revision import R4
from tests.authorization.authority import RSA, Authority, sign
from tests.fork_server import forked
from tests.oauth.house import open_house
from tests.process import Process, started
from tests.shared import APPS
from tests.transports.server.http.sessions import OpenSession
from tests.transports.server.http.stage import Answer, Client, Json

APP: Final = str(APPS / "scoped.py")
PATIENCE: Final = 60.0
"""Seconds for a whole test with servers and issuers. Most take two."""

TABLES: Final = """
[authorization]
scopes = ["mcp:use"]

[[authorization.issuers]]
issuer = "{issuer}"
tenant = "claim:org"
trust = ["127.0.0.1"]
"""


@attrs.define(eq=False)
class Guarded:
    """A running server, and the issuer whose tokens it takes."""

    process: Process
    authority: Authority
    listening: Sequence[Json]
    folder: Path
    tls: ssl.SSLContext | None
    _clients: AsyncExitStack

    def url(self, transport: str = "http") -> str:
        found: str = next(one["url"] for one in self.listening if one["transport"] == transport)
        return found

    @property
    def port(self) -> int:
        return urlsplit(self.url()).port or 0

    @property
    def file(self) -> Path:
        """The file of issuers and rules."""
        return self.folder / "authorization.toml"

    @property
    def tokens(self) -> Path:
        return self.folder / "tokens"

    @property
    def pid(self) -> int:
        return self.process.process.pid

    def token(self, key: Any = RSA, algorithm: str = "RS256", **changes: Any) -> str:
        """A token of the issuer for this server; a claim that is None is left out."""
        return sign(self.claims(**changes), key, algorithm)

    def claims(self, **changes: Any) -> Json:
        """Those of such a token."""
        return self.authority.claims(time.time(), **({"aud": self.url(), "scope": "mcp:use", "org": "acme"} | changes))

    async def connect(self, port: int | None = None) -> Client:
        """A connection of its own; closed at the end of the test at the latest."""
        bare = trio.socket.socket()
        await bare.connect(("127.0.0.1", port or self.port))
        stream: trio.abc.Stream = trio.SocketStream(bare)
        if self.tls is not None:
            stream = trio.SSLStream(trio.SocketStream(bare), self.tls, server_hostname="localhost")
        client = Client(stream, bare, urlsplit(self.url()).netloc.encode())
        await self._clients.enter_async_context(aclosing(client))
        return client

    async def send(self, data: bytes) -> Answer:
        """Send *data* on a new connection, and return the answer."""
        client = await self.connect()
        await client.send(data)
        answer = await client.answer()
        await client.aclose()
        return answer

    ask = send

    async def modern(self, method: str, *lines: str, token: str | None = None, **params: Any) -> Answer:
        """A modern request on a connection of its own."""
        client = await self.connect()
        await client.send(client.modern(method, *self.lines(token), *lines, **params))
        answer = await client.answer()
        await client.aclose()
        return answer

    async def call(self, tool: str, token: str | None = None, **arguments: Any) -> Answer:
        return await self.modern("tools/call", token=token, name=tool, arguments=arguments)

    async def session(self, token: str | None = None, revision: Revision = R4) -> OpenSession:
        """A session of an older client."""
        place: Any = self  # it connects, and that is all that a session needs of its place
        return await OpenSession.open(place, revision, *self.lines(token))

    @staticmethod
    def lines(token: str | None) -> tuple[str, ...]:
        return () if token is None else (f"Authorization: Bearer {token}",)


@asynccontextmanager
async def guarded(
    folder: Path,
    *options: str,
    tables: str = TABLES,
    tokens: str | None = None,
    authority: Authority | None = None,
    tls: ssl.SSLContext | None = None,
    command: Sequence[str] | None = None,
    target: Sequence[str] = ("run", APP),
    http: str = "127.0.0.1:0",
) -> AsyncIterator[Guarded]:
    """Run a server that goes by *tables* and *tokens*, until the block is over. `{issuer}` is the issuer's URL."""
    authority = authority or Authority()
    async with open_house(authority.house), AsyncExitStack() as clients:
        file, listed = folder / "authorization.toml", folder / "tokens"
        file.write_text(tables.replace("{issuer}", authority.url))
        access = ["--authorization", str(file)]
        if tokens is not None:
            replace(listed, tokens)
            access += ["--token-file", str(listed)]
        arguments = (*target, "--http", http, *access, "--json", *options)
        usual = forked()
        async with started(*(command or usual), *arguments, patience=PATIENCE) as process:
            while not (line := await process.line() or b"").startswith(b"{"):
                assert line, process.words
            yield Guarded(process, authority, json.loads(line)["listening"], folder, tls, clients)
            process.signal()


def replace(file: Path, text: str) -> None:
    """Replace a file in one step, as operators should: no reader sees half of it."""
    new = file.with_name(f"{file.name}.new")
    new.touch(0o600)
    new.write_text(text)
    new.replace(file)


def text_of(answer: Answer) -> str:
    assert answer.status == 200, answer
    words: str = message_of(answer)["result"]["content"][0]["text"]
    return words


def message_of(answer: Answer) -> Json:
    """The last message of an answer, streamed or not."""
    if answer.headers["content-type"] == "application/json":
        return answer.json
    message: Json = json.loads([event for event in answer.events if event.data][-1].data)
    return message


def challenge_of(answer: Answer) -> Challenge:
    (found,) = read_challenges([answer.headers["www-authenticate"].encode()])
    return found


async def wait_file(file: Path) -> None:
    """Wait for a file that another process makes."""
    while not file.exists():  # noqa: ASYNC110, ASYNC240  # there is no event for it
        await trio.sleep(0.01)


async def ask_at(url: str, method: str, *lines: str, token: str | None = None, **params: Any) -> Answer:
    """A modern request to any server, on a connection of its own."""
    at = urlsplit(url)
    stream = await trio.open_tcp_stream(at.hostname or "", at.port or 0)
    async with stream:
        client = Client(stream, stream.socket, at.netloc.encode())
        await client.send(client.modern(method, *Guarded.lines(token), *lines, **params))
        return await client.answer()
