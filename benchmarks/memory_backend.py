"""A server that makes a broker hold as much as it can: a program of its own. Nothing but the standard library.

    python -I -S memory_backend.py HOW

With HOW it misbehaves in its lists; the tools do the rest when they are called.
"""

import json
import os
import sys
import time
from typing import Any, Final

LARGEST: Final = 3_900_000
"""Bytes of what is just small enough to be one message."""
SECONDS: Final = 4.0
"""How long a flood takes."""
PAGES: Final = 60


def write(data: bytes, to: int = 1) -> None:
    while data:
        data = data[os.write(to, data) :]


def say(**message: Any) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def tool(name: str, size: int = 0) -> dict[str, Any]:
    return {"name": name, "description": "x" * size, "inputSchema": {"type": "object"}}


def listed(how: str, kind: str, cursor: str) -> dict[str, Any]:
    """A page of a list."""
    page = int(cursor or 0)
    if kind == "tools":
        names = ("noop", "result", "notify", "complain", "question", "update", "giant")
        if how == "lists":
            many = [tool(f"t{page}-{number}", 39_000) for number in range(100)]
            more = {"nextCursor": str(page + 1)} if page < PAGES else {}
            return {"tools": [*([tool(name) for name in names] if not page else []), *many], **more}
        fat = [tool("fat", LARGEST)] if how == "definitions" else []
        return {"tools": [*(tool(name) for name in names), *fat]}
    if kind == "resources":
        return {"resources": [{"uri": "memory://one", "name": "one"}]}
    if kind == "resources/templates":
        return {"resourceTemplates": [{"uriTemplate": "memory://one/{+path}", "name": "all"}]}
    return {kind: []}


def flood(line: bytes, to: int = 1) -> None:
    lump = line * max(1, 65_536 // len(line))
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        write(lump, to)


def act(name: str, request_id: object) -> None:
    """Do what a tool is for, before it answers."""
    if name == "notify":
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "error", "data": "x" * 60_000}}
        flood(json.dumps(note).encode() + b"\n")
    elif name == "complain":
        flood(b"x" * 4000 + b"\n", 2)
    elif name == "question":
        for number in range(2000):
            form = {"message": "x" * 60_000, "requestedSchema": {"type": "object", "properties": {}}}
            say(id=f"q{number}", method="elicitation/create", params=form)
    elif name == "update":
        for number in range(20_000):
            say(method="notifications/resources/updated", params={"uri": f"memory://one/{number}/{'x' * 4000}"})
    elif name == "giant":
        for _ in range(4096):
            write(b"x" * 65_536)
        write(b"\n")
    text = "x" * (LARGEST if name == "result" else 1)
    say(id=request_id, result={"content": [{"type": "text", "text": text}]})


def hear(how: str, message: dict[str, Any]) -> None:
    request_id, method, params = message.get("id"), message.get("method", ""), message.get("params", {})
    if request_id is None or not method:
        return
    if method == "initialize":
        able = {"tools": {}, "resources": {"subscribe": True}, "logging": {}}
        info = {"name": "memory", "version": "1"}
        about = {"protocolVersion": "2025-11-25", "capabilities": able, "serverInfo": info}
        say(id=request_id, result=about)
    elif method.endswith("/list"):
        say(id=request_id, result=listed(how, method.removesuffix("/list"), params.get("cursor", "")))
    elif method == "tools/call":
        act(params.get("name", ""), request_id)
    elif method in ("ping", "resources/subscribe", "resources/unsubscribe", "logging/setLevel"):
        say(id=request_id, result={})
    else:
        say(id=request_id, error={"code": -32601, "message": "not here"})


def main(how: str = "") -> None:
    for line in sys.stdin.buffer:
        hear(how, json.loads(line))


if __name__ == "__main__":
    main(*sys.argv[1:])
