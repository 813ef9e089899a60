"""Draw `images/rooms.svg` and `images/walk.svg`: the rooms with their imports, and the way of one call.

python docs/architecture.py

The imports are read from the code, with the table of `tests/test_house.py`; a test keeps the two together.
"""

import sys
from collections import defaultdict
from html import escape
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

# They are no part of the package.
from tests.test_house import LAZY, NEVER, ORDER, PACKAGE, edges, room_of  # noqa: E402

IMAGES: Final = ROOT / "docs" / "images"

# Its own background, so that it can be read wherever a code host shows it, and in either colour scheme.
STYLE: Final = """<style>
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .page { fill: #ffffff } .box { fill: #f6f8fa; stroke: #8c959f } .line { stroke: #d0d7de; fill: none }
  .server { fill: #ddf4ff; stroke: #0969da } .client { fill: #dafbe1; stroke: #1a7f37 }
  .broker { fill: #fbefff; stroke: #8250df }
  .small { font-size: 11.5px; fill: #59636e } .head { font-weight: 600 } .code { font-family: ui-monospace, monospace }
  .lane { font-size: 11.5px } .over { paint-order: stroke; stroke: #ffffff; stroke-width: 4px }
  .dot { fill: #0969da } .never { stroke: #cf222e; stroke-width: 2 }
  .lazy { fill: none; stroke: #0969da; stroke-width: 2 } .self { fill: #d0d7de }
  .arrow { stroke: #59636e; stroke-width: 1.5; fill: none } .tip { fill: #59636e }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .page { fill: #0d1117 } .box { fill: #151b23; stroke: #656c76 } .line { stroke: #3d444d }
    .server { fill: #121d2f; stroke: #4493f8 } .client { fill: #12261e; stroke: #3fb950 }
    .broker { fill: #211a33; stroke: #ab7df8 }
    .small { fill: #9198a1 } .dot { fill: #4493f8 } .never { stroke: #f85149 } .lazy { stroke: #4493f8 }
    .over { stroke: #0d1117 } .self { fill: #3d444d } .arrow { stroke: #9198a1 } .tip { fill: #9198a1 }
  }
</style>"""

FOR: Final = {
    "_version": "the version",
    "errors": "every exception, with its JSON-RPC code",
    "codecs": "bytes to messages to decisions; no I/O, no clock",
    "supervisor": "actors, mailboxes, restarts; knows no MCP",
    "tree": "the supervision tree, declared",
    "event_loops": "calls between Trio and asyncio",
    "actors": "what the sides share: terms, life cycle, frames",
    "actors.server": "sessions, requests, parking, subscriptions",
    "actors.client": "requests out, answers in, the handshake",
    "actors.broker": "backends, catalogue, forwarding",
    "transports": "sockets, pipes, limits, signals",
    "transports.server": "listeners: HTTP, WebSocket, ASGI, stdio",
    "transports.client": "links: HTTP, WebSocket, a process",
    "oauth": "OAuth 2.1 for a client",
    "authorization": "whether a token is good",
    "server": "Server: tools, resources, prompts",
    "config": "mcp.json and TOML, explained where wrong",
    "client": "connect() and Client",
    "asyncio": "connect() and Client, for asyncio",
    "broker": "Broker: many servers, one endpoint",
    "observe": "what operators see: view, metrics, logs",
    "workers": "one server in several processes",
    "cluster": "several nodes, by way of Redis",
    "serve": "any set of transports, until a signal",
    "testing": "scripted peers for tests",
    "bench": "load tests for any MCP server",
    "cli": "the commands",
}
"""What each room is for."""

LANES: Final = (
    *(("client", "box"), ("transports.server", "server"), ("actors.server", "server"), ("server", "server")),
    *(("actors.broker", "broker"), ("actors.client", "client"), ("transports.client", "client"), ("backend", "box")),
)
STEPS: Final = (
    (0, 1, "transports/server/http/connection.py", "bytes of a request; codecs/http/request_parser.py reads them"),
    (1, 1, "transports/server/http/endpoint.py", "host, origin, token, body; codecs/envelope.py decodes it"),
    (1, 2, "transports/server/http/modern.py", "headers agree with the body; terms of this request"),
    (2, 2, "actors/server/host.py", "shares and rates; inline, or a RequestActor with a cancel scope of its own"),
    (
        2,
        3,
        "server/handlers.py",
        "hosted: registry.py finds the tool, signature/ reads the arguments, your function runs",
    ),
    (2, 4, "actors/broker/offer.py", "brokered: catalogue.py finds the backend that owns the name"),
    (4, 4, "actors/broker/forward.py", "pool.py leases a connection; codecs/bridge/ shapes the params"),
    (4, 5, "actors/client/conversation.py", "an id of its own and a deadline"),
    (5, 6, "actors/client/duplex_link.py", "notes who waits for that id, and writes the frame"),
    (6, 7, "transports/client/process.py", "one line to the process (or HTTP, or WebSocket)"),
    (7, 5, "actors/client/duplex_link.py", "the reader finds the id in the answer, and wakes the request"),
    (5, 4, "codecs/bridge/results.py", "the result is checked, and shaped for the client's revision"),
    (4, 2, "actors/lifecycle.py", "the one outcome of the request: what comes later is dropped"),
    (2, 1, "actors/server/reply_slot.py", "the answer, written as the client's revision has it"),
    (1, 0, "transports/server/http/response.py", "JSON or a stream; write_batch.py sends answers of one turn at once"),
)
"""From lane, to lane, the file, and what happens there."""


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" class="{kind}"/>'


def svg(width: int, height: int, title: str, parts: list[str]) -> str:
    page = f'<rect width="{width}" height="{height}" class="page"/>'
    top = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"><title>{title}</title>'
    return "\n".join([top, STYLE, page, *parts, "</svg>", ""])


def side(room: str) -> str:
    """The colour of a room: that of its side."""
    last = room.rpartition(".")[2]
    return last if last in ("server", "client", "broker") else "box"


def imported() -> dict[str, set[str]]:
    """Which rooms each room imports."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, targets in edges().items():
        here = room_of(name)
        found[here or ""] |= {there for there in map(room_of, targets) if there is not None and there != here}
    return found


def cell(x: float, y: float, here: str, there: str, is_imported: bool) -> str:
    """What the table says of one room and another."""
    if here == there:
        return f'<rect x="{x - 5:g}" y="{y - 5:g}" width="10" height="10" class="self"/>'
    if (here, there) in NEVER:
        return f'<path d="M{x - 4:g} {y - 4:g}l8 8m0 -8l-8 8" class="never"/>'
    if (here, there) in LAZY:
        return f'<circle cx="{x:g}" cy="{y:g}" r="4.5" class="lazy"/>'
    return f'<circle cx="{x:g}" cy="{y:g}" r="4.5" class="dot"/>' if is_imported else ""


def rooms() -> str:
    """The rooms in their order, one to a row, and a dot for each room that it imports."""
    step, left, top = 26, 560, 150
    between = imported()
    shown = [room for room in ORDER if room != "_version"]
    bottom = top + step * len(shown)
    parts = [text(20, 34, "The rooms of callboard/, and what each imports", "head")]
    parts.append(text(20, 56, "A row imports the columns with a dot. All dots lie left of the diagonal:", "small"))
    parts.append(text(20, 73, "a room imports only rooms that stand above it in this list.", "small"))
    parts += [text(20, top - 14, "room", "small"), text(215, top - 14, "for", "small")]
    for row, room in enumerate(shown):
        x, y = left + step * row, top + step * row
        parts.append(box(16, y, 180, step - 4, side(room)))
        parts.append(text(26, y + 16, room, "code"))
        parts.append(text(215, y + 16, FOR[room], "small"))
        parts.append(f'<path d="M{left - 14} {y + step - 2}H{left + step * len(shown)}" class="line"/>')
        parts.append(f'<text transform="translate({x + 4} {top - 10}) rotate(-60)" class="small">{room}</text>')
        parts += [
            drawn
            for column, other in enumerate(shown)
            if (drawn := cell(left + step * column, y + 11, room, other, other in between[room]))
        ]
    for x, here, there, words in (
        (20, "cli", "errors", "imports"),
        (110, *min(NEVER), "never"),
        (180, *min(LAZY), "to the right, inside a function: Server.run() and Server.asgi()"),
    ):
        parts.append(cell(x + 6, bottom + 24, here, there, True) + text(x + 18, bottom + 28, words, "small"))
    for x, kind, words in (
        (20, "server", "being called"),
        (150, "client", "calling"),
        (250, "broker", "both"),
        (340, "box", "no side"),
    ):
        parts.append(box(x, bottom + 44, 18, 14, kind) + text(x + 26, bottom + 56, words, "small"))
    return svg(left + step * len(shown) + 80, bottom + 76, "The rooms and their imports", parts)


def walk() -> str:
    """One call as a sequence: a lane for each room, an arrow or a turn for each step."""
    lane, left, top, step = 136, 84, 96, 46
    bottom = top + step * len(STEPS) + 10
    parts = [text(20, 34, "One call: from the socket to the handler, or to a backend, and back", "head")]
    for number, (name, kind) in enumerate(LANES):
        x = left + lane * number
        parts.append(f'<path d="M{x} {top - 14}V{bottom}" class="line"/>')
        parts.append(box(x - 64, top - 44, 128, 28, kind) + text(x, top - 25, name, "code lane", "middle"))
    for number, (start, end, file, words) in enumerate(STEPS, 1):
        if not (PACKAGE / file).exists():
            raise SystemExit(f"no such file: {file}")
        y = top + step * (number - 1) + 36
        a, b = left + lane * start, left + lane * end
        if start == end:
            parts.append(f'<path d="M{a} {y - 5}h14v10h-9" class="arrow"/>')
            parts.append(f'<path d="M{a} {y + 5}l8 -4v8z" class="tip"/>')
        else:
            back = 8 if b > a else -8
            parts.append(f'<path d="M{a} {y}H{b - back}" class="arrow"/>')
            parts.append(f'<path d="M{b} {y}l{-back} -4v8z" class="tip"/>')
        # In the half of the picture that has more room.
        x, anchor = (min(a, b) + 20, "start") if min(start, end) < len(LANES) / 2 else (max(a, b) - 6, "end")
        line = y - 22
        parts.append(text(x, line, f"{number}  {file}", "code over", anchor))
        parts.append(text(x, line + 14, words, "small over", anchor))
    return svg(left + lane * (len(LANES) - 1) + 84, bottom + 20, "The walk of one call", parts)


def pictures() -> dict[Path, str]:
    """Each picture, and where it belongs."""
    return {IMAGES / "rooms.svg": rooms(), IMAGES / "walk.svg": walk()}


if __name__ == "__main__":
    for path, picture in pictures().items():
        path.write_text(picture)
