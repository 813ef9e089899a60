"""An operator: asks an admin listener, with a token."""

import json
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from tests.transports.server.http.stage import Answer, Client

TOKEN: Final = "0123456789abcdef-admin"  # noqa: S105
BEARER: Final = f"authorization: Bearer {TOKEN}"
OWN: Final = "x-callboard: 1"


def token_file(folder: Path, name: str = "admins", line: str = f"ops {TOKEN}") -> str:
    """A file with one token."""
    file = folder / name
    file.write_text(f"{line}\n")
    file.chmod(0o600)
    return str(file)


@attrs.frozen
class Operator:
    """Somebody with the token, at the listener's port."""

    port: int

    async def ask(self, path: str, *headers: str, method: str = "GET", body: str = "") -> Answer:
        bare = trio.socket.socket()
        await bare.connect(("127.0.0.1", self.port))
        client = Client(trio.SocketStream(bare), bare, f"127.0.0.1:{self.port}".encode())
        try:
            lines = [f"{method} {path} HTTP/1.1", f"host: 127.0.0.1:{self.port}", *headers, "", body]
            await client.send("\r\n".join(lines).encode())
            return await client.answer()
        finally:
            await client.aclose()

    async def post(self, action: str, subject: str, *headers: str) -> Answer:
        body = json.dumps({"action": action, "subject": subject})
        return await self.ask("/api/actions", *headers, f"content-length: {len(body)}", method="POST", body=body)

    async def act(self, action: str, subject: str = "") -> int:
        """The status of an action."""
        return (await self.post(action, subject, BEARER, OWN)).status

    async def view(self) -> Any:
        return json.loads((await self.ask("/api/snapshot", BEARER)).body)
