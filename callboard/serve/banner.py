"""The startup message: for users, with a snippet for an MCP host; or JSON for scripts."""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from callboard._version import __version__
from callboard.serve.options import Ready
from callboard.supervisor.printable import clean

if TYPE_CHECKING:
    from callboard.server.served import Behind

_COMMAND: Final = "callboard"

NO_VERSION: Final = "0"
"""Version of a server whose author has named none."""


def announce(ready: Ready) -> None:
    """Say where the server is, and how to connect."""
    _say(ready, clean(as_text(ready)))  # why a server is not up, it may have said itself


def announce_json(ready: Ready) -> None:
    """The same as one JSON object on one line."""
    _say(ready, as_json(ready))


def announce_drain(calls: int, within: float) -> None:
    """Say at a terminal what the server waits for, and how to end it sooner. Elsewhere the log says it."""
    with suppress(OSError, ValueError, AttributeError):  # there is no standard error, or no longer
        if sys.stderr.isatty():
            waits_for = f"{_number(calls, 'call')} in flight"
            sys.stderr.write(f"draining: {waits_for}, at most {within:g} s; press Ctrl-C again to stop now\n")


def as_text(ready: Ready) -> str:
    """For people."""
    info, url = ready.info, _url(ready)
    ours = "" if info.name == _COMMAND else f" (callboard {__version__})"
    version = "" if info.version == NO_VERSION else f" {info.version}"
    lines = [
        f"{info.name}{version}{ours}",
        *(f"  {one.transport:<5} {one.url or 'standard input and output'}" for one in ready.listening),
    ]
    if ready.workers > 1:
        lines.append(f"  {ready.workers} workers")
    if ready.behind is not None:
        lines += [f"  {line}" for line in _counted(ready.behind)]
    if url is not None:
        lines.append("  " + json.dumps({"mcpServers": {info.name: {"url": url}}}))
    lines += [f"  warning: {warning}" for warning in ready.warnings]
    if ready.behind is not None:
        tries = _examples(ready.behind, url) if url is not None else []
        lines += [f"  {'try:' if number == 0 else '':<6} {line}" for number, line in enumerate(tries)]
        lines.append("  press Ctrl-C to stop")
    return "\n".join(lines)


def _counted(behind: "Behind") -> Iterator[str]:
    missing, servers = len(behind.missing), _number(len(behind.servers), "server")
    shown = f"{len(behind.servers) - missing} of {servers}" if missing else servers
    yield f"{shown} with {_number(behind.tools, 'tool')} behind it"
    for one in behind.missing:
        yield f"not up: {one.name}, {one.state}{f': {one.why}' if one.why else ''}"


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def as_json(ready: Ready) -> str:
    """For scripts: among other things they learn the port, where any would do."""
    listening = [
        {"transport": one.transport, **({} if one.url is None else {"url": one.url})} for one in ready.listening
    ]
    info, url = ready.info, _url(ready)
    told: dict[str, Any] = {
        "server": {"name": info.name, "version": info.version},
        "callboard": __version__,
        "listening": listening,
        "warnings": list(ready.warnings),
        "pid": os.getpid(),
    }
    if ready.workers > 1:
        told["workers"] = ready.workers
    if ready.behind is not None:
        told["servers"] = [
            {"name": one.name, "state": one.state, **({"why": one.why} if one.why else {})}
            for one in ready.behind.servers
        ]
        told["tools"] = ready.behind.tools
        told |= {} if url is None else {"try": _examples(ready.behind, url)[0].partition("  #")[0].rstrip()}
    return json.dumps(told)


def _url(ready: Ready) -> str | None:
    """The best URL for a client that gets only one."""
    urls = {one.transport: one.url for one in ready.listening}
    return urls.get("http")


def _examples(behind: "Behind", url: str) -> list[str]:
    """Lines for another terminal. What unknown tools would do is unknown: then it is the list of them."""
    if behind.example is None:
        return [f"{_command()} list {shlex.quote(url)}"]
    return [f"{_command()} call {shlex.quote(url)} {line}" for line in behind.example.splitlines()]


def _command() -> str:
    """How the user starts this program in the same shell: it may not be on the path."""
    if shutil.which(_COMMAND) is not None:
        return _COMMAND
    if Path(sys.argv[0]).name == _COMMAND:
        return shlex.quote(sys.argv[0])
    return f"{shlex.quote(sys.executable)} -m {_COMMAND}"


def _say(ready: Ready, text: str) -> None:
    """Standard output is for the user, unless the protocol has it."""
    is_stdio = any(one.transport == "stdio" for one in ready.listening)
    with suppress(OSError):  # it has no reader: that is no reason not to serve
        print(text, file=sys.stderr if is_stdio else sys.stdout, flush=True)
