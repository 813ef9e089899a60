"""What people write by hand, for `hosting_websocket.py`: JSON-RPC on the library `websockets`, in its environment.

    python hosting_websockets_floor.py PORT

It answers what a client says first in either era, and echoes. Nothing is checked, and each socket has one call at a
time.
"""

import asyncio
import json
import sys
from typing import Any

from websockets.asyncio.server import ServerConnection, serve

ABOUT = {"name": "by hand", "version": "0"}


def answer(message: dict[str, Any]) -> dict[str, Any]:
    match message["method"]:
        case "tools/call":
            said = message["params"]["arguments"]["text"]
            return {"content": [{"type": "text", "text": said}], "resultType": "complete"}
        case "initialize":
            version = message["params"]["protocolVersion"]
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": ABOUT}
        case "server/discover":
            meta = {"io.modelcontextprotocol/serverInfo": ABOUT}
            found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "_meta": meta}
            return {**found, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        case "tools/list":
            schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
            return {"tools": [{"name": "echo", "inputSchema": schema}], "resultType": "complete", "ttlMs": 0}
    return {}


async def talk(client: ServerConnection) -> None:
    async for said in client:
        message = json.loads(said)
        if "id" in message:
            await client.send(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer(message)}))


async def main() -> None:
    # No compression: nobody else has it here, and it would cost more than all the rest.
    async with serve(talk, "127.0.0.1", int(sys.argv[1]), subprotocols=["mcp"], compression=None) as server:
        await server.serve_forever()


asyncio.run(main())
