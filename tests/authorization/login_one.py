"""The official Python SDK of the legacy era (PyPI: mcp 1) logs in at a guarded server. Runs in its environment.

Usage: login_one.py URL legacy. Prints what it heard as JSON.
"""

import asyncio
import json
import sys
from functools import partial
from typing import Any

import httpx
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

from tests.authorization.browse import REDIRECT, Login


async def come_back(login: Login) -> tuple[str, str | None]:
    return login.found["code"], login.found.get("state")


async def main(url: str, _: str) -> dict[str, Any]:
    login = Login()
    said: Any = {"client_name": "login", "redirect_uris": [REDIRECT], "token_endpoint_auth_method": "none"}
    metadata = OAuthClientMetadata(**said)
    provider = OAuthClientProvider(url, metadata, login, login.visit, partial(come_back, login))
    async with (
        httpx.AsyncClient(auth=provider, timeout=30) as http,
        streamable_http_client(url, http_client=http) as (read, write, *_),
        ClientSession(read, write) as session,
    ):
        agreed = await session.initialize()
        tools = [tool.name for tool in (await session.list_tools()).tools]
        who = (await session.call_tool("who", {})).content[0].text
        written = (await session.call_tool("write", {})).content[0].text
    said = {"revision": str(agreed.protocolVersion), "tools": tools, "who": who, "write": written}
    return {**said, "scopes": login.scopes}


sys.stdout.write(json.dumps(asyncio.run(main(*sys.argv[1:]))) + "\n")
