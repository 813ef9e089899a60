"""A server of PyPI's mcp, 1 or 2, that gives its own tokens. Runs in its environment: `resource PORT`, `origin PORT`.

By `resource` it has metadata that names the authorization server, as since 2025-06-18; by `origin` it has none.
"""

import secrets
import sys
import time
from importlib import import_module
from typing import Any

from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.shared.auth import OAuthToken
from pydantic import AnyHttpUrl

way, port = sys.argv[1], int(sys.argv[2])
origin = f"http://127.0.0.1:{port}"


class Giver:
    """Gives leave to everybody. A code and a refresh token are good once."""

    def __init__(self) -> None:
        self._clients: dict[str, Any] = {}
        self._codes: dict[str, Any] = {}
        self._tokens: dict[str, Any] = {}
        self._refreshers: dict[str, Any] = {}

    async def get_client(self, client_id: str) -> Any:
        return self._clients.get(client_id)

    async def register_client(self, client_info: Any) -> None:
        self._clients[client_info.client_id] = client_info

    async def authorize(self, client: Any, params: AuthorizationParams) -> str:
        code = secrets.token_hex()
        self._codes[code] = AuthorizationCode(
            code=code,
            client_id=client.client_id,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            expires_at=time.time() + 60,
            scopes=params.scopes or [],
            code_challenge=params.code_challenge,
            resource=params.resource,
        )
        return str(construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state))

    async def load_authorization_code(self, client: Any, authorization_code: str) -> Any:
        return self._codes.pop(authorization_code, None)

    async def exchange_authorization_code(self, client: Any, authorization_code: Any) -> Any:
        return self._give(client, authorization_code.scopes)

    async def load_refresh_token(self, client: Any, refresh_token: str) -> Any:
        return self._refreshers.pop(refresh_token, None)

    async def exchange_refresh_token(self, client: Any, refresh_token: Any, scopes: list[str]) -> Any:
        return self._give(client, scopes)

    async def load_access_token(self, token: str) -> Any:
        return self._tokens.get(token)

    def _give(self, client: Any, scopes: list[str]) -> Any:
        access, refresh = secrets.token_hex(), secrets.token_hex()
        self._tokens = {access: AccessToken(token=access, client_id=client.client_id, scopes=scopes)}
        self._refreshers[refresh] = RefreshToken(token=refresh, client_id=client.client_id, scopes=scopes)
        return OAuthToken(access_token=access, token_type="Bearer", expires_in=3600, refresh_token=refresh)  # noqa: S106


guarded = {
    "auth_server_provider": Giver(),
    "auth": AuthSettings(
        issuer_url=AnyHttpUrl(origin),
        resource_server_url=AnyHttpUrl(f"{origin}/mcp") if way == "resource" else None,
        client_registration_options=ClientRegistrationOptions(enabled=True),
    ),
}
here = {"host": "127.0.0.1", "port": port}


def look() -> str:
    return "seen"


try:
    server = import_module("mcp.server.mcpserver").MCPServer("guarded", log_level="WARNING", **guarded)
except ImportError:
    server = import_module("mcp.server.fastmcp").FastMCP("guarded", log_level="WARNING", **guarded, **here)
    here = {}
server.tool()(look)
server.run("streamable-http", **here)
