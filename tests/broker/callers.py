"""Servers that write down all that reaches them, and callers with tokens."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import attrs

from callboard.actors.broker.policy import BackendSettings
from callboard.actors.server.host import Host
from callboard.codecs.caller import Caller
from callboard.codecs.revisions import LATEST, Revision
from callboard.config import BackendSpec, Remote, UpstreamAuth
from callboard.testing import Peer
from callboard.transports.client.process import Command
from tests.broker.front import peer
from tests.oauth.house import Asked, House, Said
from tests.oauth.town import RESULTS, TOOL

SCRIPT = """
import json, os, sys
with open(sys.argv[1], "a", buffering=1) as out:
    out.write(json.dumps([dict(os.environ), sys.argv]) + "\\n")
    for line in sys.stdin:
        out.write(line)
        asked = json.loads(line)
        if "id" not in asked:
            continue
        result = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "dump", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": os.environ.get("WHO", "")}]},
        }.get(asked["method"])
        said = {"result": result} if result else {"error": {"code": -32601, "message": "no"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)
"""
"""A legacy server, which answers a call with the variable WHO."""


LEGACY_RESULTS: dict[str, dict[str, Any]] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "dump", "version": "1"},
    },
    "tools/list": {"tools": [TOOL]},
    "tools/call": {"content": [{"type": "text", "text": "seen"}]},
}


def dumping(file: Path, **env: str) -> Command:
    return Command(args=(sys.executable, "-c", SCRIPT, str(file)), env=env)


@attrs.define(eq=False)
class Dump:
    """An MCP server by HTTP, of either era. *good* is asked about each header `Authorization`."""

    is_modern: bool = True
    needs_token: bool = False
    good: set[str] = attrs.field(factory=set)
    issuer: str = ""
    house: House = attrs.field(factory=House)

    def __attrs_post_init__(self) -> None:
        self.house.rooms |= {"/mcp": self._mcp, "/.well-known/oauth-protected-resource/mcp": self._metadata}

    @property
    def url(self) -> str:
        return f"{self.house.url}/mcp"

    def calls(self) -> list[Asked]:
        return [asked for asked in self.house.asked if asked.body and asked.json.get("method") == "tools/call"]

    def said(self) -> str:
        """All that came, as text."""
        return "".join(f"{asked.head.target!r}{asked.head.headers!r}{asked.body!r}" for asked in self.house.asked)

    def _metadata(self, _: Asked) -> Said:
        return Said.json({"resource": self.url, "authorization_servers": [self.issuer]})

    def _mcp(self, asked: Asked) -> Said:
        if self.needs_token and (asked.header("authorization") or "").removeprefix("Bearer ") not in self.good:
            return Said(401, b"", {"www-authenticate": 'Bearer error="invalid_token"'})
        if asked.head.method != "POST":
            return Said(405)
        message = asked.json
        if "id" not in message:
            return Said(202)
        result = self._result(message["method"])
        said = {"result": result} if result else {"error": {"code": -32601, "message": "no"}}
        return Said.json({"jsonrpc": "2.0", "id": message["id"], **said}, 200 if result else 404)

    def _result(self, method: str) -> dict[str, Any] | None:
        if self.is_modern:
            return RESULTS.get(method)
        return LEGACY_RESULTS.get(method)


def spec(target: object, name: str = "back", auth: UpstreamAuth | None = None, **said: Any) -> BackendSpec:
    """One backend, whose tools have no prefix."""
    settings = BackendSettings(**{"prefix": "", "max_connections": 64, **said})
    return BackendSpec(name=name, target=cast("Any", target), settings=settings, auth=auth)


def exchanged(url: str, issuer: str, **said: Any) -> BackendSpec:
    """A backend that gets a token in exchange for the caller's."""
    given = {"client_id": "me", "client_secret": "hush", "issuer": issuer, **said}
    return spec(Remote(url=url), auth=UpstreamAuth(grant="token_exchange", **given))


@asynccontextmanager
async def calling(host: Host, caller: Caller, revision: Revision = LATEST) -> AsyncIterator[Peer]:
    """A client of *caller*'s."""
    async with peer(host, revision, principal=cast("str", caller), capabilities={}) as client:
        yield client


def written(file: Path) -> list[Any]:
    """What the script wrote down: its environment and arguments, and then all that it was told."""
    return [json.loads(line) for line in file.read_text().splitlines()]
