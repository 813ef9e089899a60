"""What must never be shown: whatever clients and servers confide to each other is in no view, metric or log line."""

import json
import sys
from pathlib import Path
from urllib.parse import urlsplit

import trio

from callboard import connect
from tests.process import CALLBOARD, started
from tests.shared import APPS
from tests.transports.server.http.stage import Client

TOKEN = "0123456789-canary-token"  # noqa: S105
ADMIN = "0123456789-canary-admin"
CANARIES = (
    *("canary-argument", "canary-result", "canary-progress", "canary-log", "canary-question"),
    *("canary-contents", "canary-prompt", "canary-topic", "canary-query", "canary-environment", "canary-argv"),
    *(TOKEN, ADMIN),
)
"""`canary-exception` and `canary-stderr` are for the operator's own log, and for nothing else."""


async def _get(port: int, path: str) -> str:
    bare = trio.socket.socket()
    await bare.connect(("127.0.0.1", port))
    client = Client(trio.SocketStream(bare), bare, f"127.0.0.1:{port}".encode())
    lines = [f"GET {path} HTTP/1.1", f"host: 127.0.0.1:{port}", f"authorization: Bearer {ADMIN}", "", ""]
    await client.send("\r\n".join(lines).encode())
    try:
        if path == "/events":
            return json.dumps(await (await client.stream_of()).message())
        return (await client.answer()).body.decode()
    finally:
        await client.aclose()


async def _open_session(port: int) -> str:
    """The id of a legacy session, which is a handle: whoever has it may use the session."""
    bare = trio.socket.socket()
    await bare.connect(("127.0.0.1", port))
    client = Client(trio.SocketStream(bare), bare, f"127.0.0.1:{port}".encode())
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    opening = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about}
    await client.send(client.post(opening, authorization=f"Bearer {TOKEN}"))
    answer = await client.answer()
    await client.aclose()
    return answer.headers["mcp-session-id"]


async def test_nothing_that_was_confided_is_shown(tmp_path: Path) -> None:
    for name, token in (("tokens", f"ada {TOKEN}"), ("admins", f"ops {ADMIN}")):
        (tmp_path / name).write_text(f"{token}\n")
        (tmp_path / name).chmod(0o600)
    entry = {
        "command": sys.executable,
        "args": ["-m", "callboard", "run", str(APPS / "confiding.py"), "--log-level", "error"],
        "env": {"PASSWORD": "canary-environment"},
    }
    lost = {"command": "sh", "args": ["-c", "exit 3", "canary-argv"]}
    config = tmp_path / "servers.json"
    config.write_text(json.dumps({"mcpServers": {"back": entry, "lost": lost}}))
    flags = ["--http", "0", "--admin", "0", "--json", "--access-log", "--token-file", str(tmp_path / "tokens")]
    flags += ["--admin-token-file", str(tmp_path / "admins"), "--log-level", "info"]
    shown: dict[str, str] = {}
    async with started(*CALLBOARD, "serve", str(config), *flags) as process:
        told = await process.hear()
        urls: dict[str, str] = {one["transport"]: one["url"] for one in told["listening"]}
        port = urlsplit(urls["admin"]).port or 0
        session_id = await _open_session(urlsplit(urls["http"]).port or 0)
        for revision in ("2025-06-18", "2026-07-28"):
            bearer = {"Authorization": f"Bearer {TOKEN}"}
            async with connect(urls["http"], revision=revision, headers=bearer) as client:
                await client.call("back__tell", word="canary-argument")
                await client.call("back__fail")
                await client.read("notes://shelf/a?page=canary-query")
                await client.prompt("back__brief", topic="canary-topic")
                for path in ("/", "/page.js", "/api/snapshot?history", "/events", "/metrics"):
                    shown[f"{path} {revision}"] = await _get(port, path)
        process.signal()
    shown["log"] = process.words
    found = {(where, canary) for where, text in shown.items() for canary in CANARIES if canary in text}
    assert found == set()
    views = {where: text for where, text in shown.items() if where != "log"}
    assert not {where for where, text in views.items() if "canary" in text}
    assert not {where for where, text in shown.items() if session_id in text}
    assert "canary-exception" not in shown["log"]  # it is in the backend's own log, one level lower
    assert '"back"' in shown["/api/snapshot?history 2026-07-28"]
