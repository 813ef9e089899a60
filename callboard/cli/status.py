"""`callboard status`: what of a running server is up, and if not, why."""

import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from cyclopts import App
from rich.console import Console
from rich.text import Text

from callboard.cli.admin_client import AdminClient, AdminView
from callboard.cli.codes import Exit
from callboard.cli.serve_flags import Json
from callboard.cli.top import Address, AdminToken, look
from callboard.cli.top_tables import server_state, server_why
from callboard.cli.top_text import count, duration, number, part, rows_of, size, span, word

STATUS_EXAMPLES: Final = """\
Examples:

  callboard serve mcp.json --admin 8001    a server that can be looked at
  callboard status                         it, from another terminal
  callboard status unix:/run/callboard.sock
  callboard status --json | jq .down       for scripts
  callboard status > /dev/null || page-the-operator

Without ADDRESS: that of $CALLBOARD_ADMIN, else 127.0.0.1:8001. A token is
read from --token-file or from $CALLBOARD_ADMIN_TOKEN.

Exit codes: 0 ready, and all servers and workers are up; 1 not all of that;
2 wrong arguments; 3 cannot connect; 4 not an admin address, or the token is
not accepted; 5 timed out; 130 Ctrl-C.
"""

MOST_DOWN: Final = 30
"""Servers that are listed with why they are not up: one screen."""

_COUNTS: Final = (
    "sessions",
    "connections",
    "in_flight",
    "parked",
    "subscriptions",
    "requests",
    "errors",
    "dead_letters",
)


def status(address: Address = None, /, *, json: Json = False, token_file: AdminToken = None) -> int:
    """What is up at a running server, and if not, why. Needs a server with --admin."""

    async def act(client: AdminClient) -> Exit:
        summary = summarized(await client.snapshot(), client.name)
        if json:
            sys.stdout.write(msgspec.json.encode(summary).decode() + "\n")
        else:
            console = Console()
            for line in lines(summary):
                if console.is_terminal:
                    console.print(line)
                else:
                    sys.stdout.write(line.plain + "\n")
        return Exit.FINE if summary["ok"] else Exit.NOT_UP

    return look(address, token_file, act, is_json=json)


def summarized(view: AdminView, address: str) -> dict[str, Any]:
    """What `--json` prints."""
    server, totals, latest = part(view, "server"), part(view, "totals"), part(view, "latest")
    workers = [_worker(row) for row in rows_of(server, "workers")]
    down = [_down(row) for row in rows_of(view, "servers") if row.get("is_up") is not True]
    servers, up = number(totals.get("servers")) or 0, number(totals.get("servers_up")) or 0
    is_ready = server.get("state") == "ready"
    return {
        "ok": is_ready and not down and up >= servers and all(worker["is_up"] for worker in workers),
        "address": address,
        "name": server.get("name"),
        "version": server.get("version"),
        "state": server.get("state"),
        "uptime": server.get("uptime"),
        "listening": rows_of(server, "listening"),
        "workers": workers,
        "nodes": rows_of(server, "nodes"),
        "servers": int(servers),
        "servers_up": int(up),
        "down": down,
        "asleep": [word(row.get("name")) for row in rows_of(view, "servers") if row.get("state") == "asleep"],
        "withheld": {word(row.get("name")): row["withheld"] for row in rows_of(view, "servers") if row.get("withheld")},
        "overrides": {
            word(row.get("name")): row["overrides"] for row in rows_of(view, "servers") if row.get("overrides")
        },
        "restarts": {word(row.get("name")): row["restarts"] for row in rows_of(view, "servers") if row.get("restarts")},
        "waiting_calls": len(rows_of(view, "waiting_calls")),
        "counts": {name: totals.get(name) for name in _COUNTS},
        "latest": {name: latest.get(name) for name in ("requests", "errors", "p50_60s", "p99_60s", "loop_lag", "cpu")},
        "resident": totals.get("resident"),
    }


def _worker(row: Mapping[str, Any]) -> dict[str, Any]:
    is_up = row.get("answers") is True and row.get("state") == "serving"
    return {**{name: row.get(name) for name in ("name", "state", "pid", "generation", "answers")}, "is_up": is_up}


def _down(row: Mapping[str, Any]) -> dict[str, Any]:
    known = {name: row.get(name) for name in ("name", "state", "why", "next_try", "restarts")}
    said = row.get("said")
    return {**known, "said": [word(line) for line in said] if isinstance(said, list) else []}


def lines(summary: Mapping[str, Any]) -> list[Text]:
    """The same for people."""
    state = word(summary["state"])
    first = Text(f"{word(summary['name'])} {word(summary['version'])} is ")
    first.append(state, "bold green" if summary["ok"] else "bold red" if state != "ready" else "bold yellow")
    first.append(f", up {span(summary['uptime'])}, at {word(summary['address'])}")
    found = [first, *(Text(f"  {word(one.get('transport'))}  {word(one.get('url'))}") for one in summary["listening"])]
    found += _worker_lines(summary["workers"])
    if nodes := summary["nodes"]:
        known = (word(one.get("name")) + (" (leaving)" if one.get("is_leaving") is True else "") for one in nodes)
        found.append(Text(f"nodes: {', '.join(known)}"))
    found += [*_server_lines(summary), *_waiting_lines(summary["waiting_calls"])]
    counts, latest = summary["counts"], summary["latest"]
    if counts["requests"] is None:
        return [*found, Text("no worker answers yet", "yellow")]
    found.append(
        Text(
            f"requests: {count(counts['requests'])}, errors: {count(counts['errors'])}; "
            f"last minute p50 {duration(latest['p50_60s'])}, p99 {duration(latest['p99_60s'])}"
        )
    )
    names = (("clients", "sessions"), ("connections", "connections"), ("in flight", "in_flight"), ("parked", "parked"))
    now = ", ".join(f"{title} {count(counts[name])}" for title, name in (*names, ("dead letters", "dead_letters")))
    found.append(Text(f"now: {now}; memory {size(summary['resident'])}, lag {duration(latest['loop_lag'])}"))
    return found


def _worker_lines(workers: list[dict[str, Any]]) -> list[Text]:
    if not workers:
        return []
    up = sum(worker["is_up"] for worker in workers)
    found = [Text(f"workers: {up} of {len(workers)} serve", "" if up == len(workers) else "bold yellow")]
    for worker in workers:
        if not worker["is_up"]:
            silent = "" if worker["answers"] else ", does not answer"
            found.append(Text(f"  {word(worker['name'])}  {word(worker['state'])}{silent}, pid {word(worker['pid'])}"))
    return found


def _waiting_lines(waiting: int) -> list[Text]:
    return [Text(f"calls that wait for approval: {waiting} (callboard approve calls)", "yellow")] if waiting else []


def _server_lines(summary: Mapping[str, Any]) -> list[Text]:
    if not summary["servers"]:
        return []
    up, of, down = summary["servers_up"], summary["servers"], summary["down"]
    asleep = f", asleep: {', '.join(summary['asleep'][:MOST_DOWN])}" if summary["asleep"] else ""
    found = [Text(f"servers: {up} of {of} up{asleep}", "" if up == of else "bold yellow")]
    wide = max((len(word(row["name"])) for row in down[:MOST_DOWN]), default=0)
    state = max((len(server_state(row)) for row in down[:MOST_DOWN]), default=0)
    for row in down[:MOST_DOWN]:
        line = Text(f"  {word(row['name']):{wide}}  ")
        line.append(f"{server_state(row):{state}}", "red")
        line.append(f"  {server_why(row)}")
        restarts = number(row["restarts"])
        line.append(f", {restarts:,.0f} restart{'s' if restarts != 1 else ''}" if restarts else "")
        found.append(line)
    if len(down) > MOST_DOWN:
        found.append(Text(f"  ... and {len(down) - MOST_DOWN:,} more"))
    has_line = {word(row["name"]) for row in down}
    again = [f"{name} {count(times)}" for name, times in summary["restarts"].items() if name not in has_line]
    if again:
        more = f" and {len(again) - MOST_DOWN:,} more" if len(again) > MOST_DOWN else ""
        found.append(Text(f"  restarts: {', '.join(again[:MOST_DOWN])}{more}"))
    for name, tools in summary["withheld"].items():
        found.append(Text(f"  {name}: {count(tools)} definitions wait for approval (callboard approve)", "yellow"))
    for name, problems in summary["overrides"].items():
        found += [Text(f"  {name}: {word(problem)}", "yellow") for problem in problems]
    return found


APP: Final = App(name="status", help_epilogue=STATUS_EXAMPLES)
APP.default(status)
