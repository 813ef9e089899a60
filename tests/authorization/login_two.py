"""The official Python SDK of both eras (PyPI: mcp 2) logs in at a guarded server. Runs in its environment.

Usage: login_two.py URL modern|legacy. Prints what it heard as JSON.
"""

import asyncio
import json
import sys
from functools import partial
from typing import Any

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

from tests.authorization.browse import REDIRECT, Login


async def come_back(login: Login) -> AuthorizationCodeResult:
    return AuthorizationCodeResult(**{name: login.found.get(name) for name in ("code", "state", "iss")})


async def main(url: str, era: str) -> dict[str, Any]:
    login = Login()
    said: Any = {"client_name": "login", "redirect_uris": [REDIRECT], "token_endpoint_auth_method": "none"}
    metadata = OAuthClientMetadata(**said)
    provider = OAuthClientProvider(url, metadata, login, login.visit, partial(come_back, login))
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
