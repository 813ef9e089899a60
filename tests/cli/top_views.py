"""Views for the tests of `top` and `status`: as a server makes them, and as a hostile one would."""

from typing import Any, Final

CLEAR: Final = "\x1b[2J\x1b]0;owned\x07\r\n\t\u202e\u200b\x9b31m"
"""Clears a terminal, sets its title, rings, moves the cursor, turns the direction of writing."""


def server(name: str, **more: Any) -> dict[str, Any]:
    figures = {"in_flight": 0, "max_in_flight": 1024, "connections": 1, "max_connections": 16, "restarts": 0}
    used = {"calls": 10, "errors": 0, "p50": 0.002, "p99": 0.02, "withheld": 0, "tools": 2}
    told = {"name": name, "state": "up", "is_up": True, "why": None, "next_try": None, "transport": "stdio"}
    return {**told, **figures, **used, **more}


def down(name: str, why: str, **more: Any) -> dict[str, Any]:
    return server(name, state="down", is_up=False, why=why, next_try=12.0, restarts=3, **more)


def view(**more: Any) -> dict[str, Any]:
    """A broker with two servers, one of them down."""
    servers = [server("weather"), down("tickets", "Connection refused")]
    calls = [("echo", 0.004), ("slow_one", 2.5)]
    past = [
        {"ago": 3.0, "method": "tools/call", "target": name, "seconds": took, "error": None} for name, took in calls
    ]
    tree = {
        "name": "callboard",
        "kind": "Supervisor",
        "state": "running",
        "age": 99.0,
        "children": [
            {"name": "backends", "kind": "Supervisor", "state": "running", "age": 99.0, "hidden": 9000},
            {"name": "sampler", "kind": "Sampler", "state": "running", "age": 99.0, "mailbox": [3, 64, 1000]},
        ],
    }
    told: dict[str, Any] = {
        "version": 1,
        "at": 1.0,
        "server": {"name": "callboard", "version": "1.2.3", "state": "ready", "pid": 7, "uptime": 3700.0},
        "totals": {
            "sessions": 12,
            "in_flight": 3,
            "parked": 1,
            "connections": 14,
            "dead_letters": 0,
            "subscriptions": 0,
            "servers": 2,
            "servers_up": 1,
            "requests": 1234,
            "errors": 5,
            "resident": 80 * 2**20,
        },
        "latest": {"requests": 42.0, "errors": 0, "loop_lag": 0.0004, "cpu": 0.12, "p50_10s": 0.001, "p99_10s": 0.008},
        "point": {"requests": 42.0, "errors": 0, "p99": 0.008, "cpu": 0.12},
        "servers": servers,
        "clients": [{"name": "session-1", "client": "desk", "principal": "ada", "in_flight": 1, "idle": 4.0}],
        "running": [
            {"age": 75.0, "method": "tools/call", "target": "hang", "state": "running", "progress": 3, "total": 9}
        ],
        "slowest": list(reversed(past)),
        "failed": [{**past[0], "target": "broken", "error": "tool_error"}],
        "tools": [
            {"name": "echo", "kind": "tool", "server": "weather", "calls": 9, "errors": 0, "p50": 0.001, "p99": 0.2},
            {"name": "broken", "kind": "tool", "server": "weather", "calls": 70, "errors": 70, "p50": 0.1, "p99": 0.1},
            {"name": "unused", "kind": "tool", "server": "weather", "calls": 0, "errors": 0, "p50": None, "p99": None},
        ],
        "topics": [{"topic": "tools list", "listeners": 3, "server": None}],
        "dead_letters": {"total": 0, "counts": [], "recent": []},
        "tree": tree,
    }
    return {**told, **more}


def spoilt(value: Any, text: str = CLEAR) -> Any:
    """*value* with every text in it, names of members too, followed by *text*."""
    match value:
        case str():
            return value + text
        case list():
            return [spoilt(one, text) for one in value]
        case dict():
            return {name: spoilt(one, text) for name, one in value.items()}
    return value


def nonsense(value: Any, depth: int = 0) -> Any:
    """*value* with everything in it of another kind than it should be."""
    match value:
        case dict() if depth < 2:
            return {name: nonsense(one, depth + 1) for name, one in value.items()}
        case list() if depth < 2:
            return [*(nonsense(one, depth + 1) for one in value), 7, None, "text", []]
        case str():
            return {"not": ["a", {"text": None}]}
        case int() | float():
            return float("nan") if depth % 2 else "9" * 500
    return [[1e300, True], "x" * 5000]
