"""The official Python SDK of both eras (PyPI: mcp 2) logs in at a guarded server. Runs in its environment.

Usage: login_two.py URL modern|legacy. Prints what it heard as JSON.
"""

import asyncio
import json
import sys
from typing import Any

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

from tests.authorization.browse import REDIRECT, log_in


class Login:
    """Keeps what a login brings."""

    def __init__(self) -> None:
        self.tokens: Any = None
        self.client: Any = None
        self.found: dict[str, str] = {}
        self.scopes: list[str] = []

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info

    async def visit(self, url: str) -> None:
        self.scopes.append(httpx2.URL(url).params.get("scope", ""))
        self.found = await asyncio.to_thread(log_in, url)

    async def come_back(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult(**{name: self.found.get(name) for name in ("code", "state", "iss")})


async def main(url: str, era: str) -> dict[str, Any]:
    login = Login()
    said: Any = {"client_name": "login", "redirect_uris": [REDIRECT], "token_endpoint_auth_method": "none"}
    metadata = OAuthClientMetadata(**said)
    provider = OAuthClientProvider(url, metadata, login, login.visit, login.come_back)
    async with (
        httpx2.AsyncClient(auth=provider, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), mode="auto" if era == "modern" else "legacy") as client,
    ):
        tools = [tool.name for tool in (await client.list_tools()).tools]
        who = (await client.call_tool("who", {})).content[0].text
        write = (await client.call_tool("write", {})).content[0].text
        revision = str(client.protocol_version)
    return {"revision": revision, "tools": tools, "who": who, "write": write, "scopes": login.scopes}


sys.stdout.write(json.dumps(asyncio.run(main(*sys.argv[1:]))) + "\n")
