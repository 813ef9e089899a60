"""A bare server of 2025-11-25 for tests of what is shown: its calls become tasks, and its errors say secrets."""

import json
import sys

STANDING = {
    "taskId": "canary-task-behind",
    "status": "working",
    "ttl": 60_000,
    "pollInterval": 1000,
    "createdAt": "2026-01-01T00:00:00Z",
    "lastUpdatedAt": "2026-01-01T00:00:00Z",
}
TOOLS = [
    {"name": "book", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}},
    {"name": "refuse", "inputSchema": {"type": "object"}},
]
ANSWERS = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}},
        "serverInfo": {"name": "bare", "version": "1"},
    },
    "tools/list": {"tools": TOOLS},
    "tools/call": {"task": STANDING},
    "tasks/get": STANDING,
    "ping": {},
}

for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {"jsonrpc": "2.0", "id": asked["id"]}
    if asked["method"] in ANSWERS and asked.get("params", {}).get("name") != "refuse":
        answer["result"] = ANSWERS[asked["method"]]
    else:
        answer["error"] = {"code": -32050, "message": "canary-error-text", "data": {"why": "canary-error-data"}}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
