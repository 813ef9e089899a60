"""What a server says when it is ready: for people, in a form that they can paste into a client; or for scripts."""

import json
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import callboard

if TYPE_CHECKING:
    from callboard.serving import Ready


def announce(ready: "Ready") -> None:
    """Say where the server is, and how to connect."""
    _say(ready, as_text(ready))


def announce_json(ready: "Ready") -> None:
    """The same as one JSON object on one line."""
    _say(ready, as_json(ready))


def as_text(ready: "Ready") -> str:
    """For people."""
    info = ready.server.info
    lines = [
        f"{info.name} {info.version} (callboard {callboard.__version__})",
        *(f"  {one.transport:<5} {one.url or 'standard input and output'}" for one in ready.listening),
    ]
    url = next((one.url for one in ready.listening if one.transport == "http"), None)
    if url is not None:
        lines.append("  " + json.dumps({"mcpServers": {info.name: {"url": url}}}))
    return "\n".join([*lines, *(f"  warning: {warning}" for warning in ready.warnings)])


def as_json(ready: "Ready") -> str:
    """For scripts: among other things they learn the port, where any would do."""
    listening = [
        {"transport": one.transport, **({} if one.url is None else {"url": one.url})} for one in ready.listening
    ]
    info = ready.server.info
    told = {
        "server": {"name": info.name, "version": info.version},
        "callboard": callboard.__version__,
        "listening": listening,
        "warnings": list(ready.warnings),
        "pid": os.getpid(),
    }
    return json.dumps(told)


def _say(ready: "Ready", text: str) -> None:
    """Standard output is for whoever started this, unless the protocol has it."""
    is_stdio = any(one.transport == "stdio" for one in ready.listening)
    with suppress(OSError):  # nobody listens: that is no reason not to serve
        print(text, file=sys.stderr if is_stdio else sys.stdout, flush=True)
