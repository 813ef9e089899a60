"""The specification says what the code does, and its example happens."""

import json
import re
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Context, Server
from callboard.codecs.revisions.meta import is_reserved_meta_key, is_valid_meta_key
from callboard.codecs.websocket import handshake
from callboard.codecs.websocket.frames import Code
from callboard.transports.limits import DEFAULTS
from callboard.transports.server.websocket.resumable import RESUMED, SESSION_KEY
from callboard.transports.server.websocket.socket import CLOSE_TIME
from tests.shared import ROOT
from tests.transports.server.websocket.stage import OPENING, House, Refused, Socket, house, request

PAGE = (ROOT / "docs" / "reference" / "websocket.md").read_text()
(TRANSCRIPT,) = re.findall(r"```transcript\n(.*?)```", PAGE, re.DOTALL)

example = Server("example", version="1")


@example.tool
async def count(to: int, *, ctx: Context) -> str:
    for number in range(1, to + 1):
        await ctx.report(number, total=to)
        await trio.sleep(5)
    return f"counted to {to}"


class Player:
    """Says the client's lines, and holds the server to its own."""

    def __init__(self, here: House) -> None:
        self.here = here
        self.socket: Socket
        self.session = "SESSION"
        self.refused: int | None = None

    async def open(self, said: str) -> None:
        headers = dict(header.split(": ") for header in said.split("; ") if header)
        self.socket, _ = self.here.connect()
        self.refused = None
        try:
            await self.socket.open(request({**OPENING, **headers}))
        except Refused as refused:
            self.refused = refused.status

    async def play(self, who: str, line: str) -> None:
        match who, *line.replace("SESSION", self.session).split(" ", 1):
            case "→", "open", *rest:
                await self.open("".join(rest))
            case "→", "close", code:
                await self.socket.write(b"\x88\x82\0\0\0\0" + int(code).to_bytes(2, "big"))
            case "←", "close", code:
                assert (await self.socket.wait_gone()).code == int(code)
            case "←", status if status.isdigit():
                assert self.refused == int(status)
            case "→", *_:
                await self.socket.send(line.encode())
            case "←" | "⇠", *_:
                self.compare(json.loads(line), await self.socket.hear())
            case "✂", *_:
                self.socket.close()
                await wait_all_tasks_blocked()

    def compare(self, expected: Any, heard: Any) -> None:
        if self.session == "SESSION":
            self.session = heard["result"]["_meta"][SESSION_KEY]["id"]
        assert json.loads(json.dumps(heard).replace(self.session, "SESSION")) == expected


async def test_the_example_happens_line_by_line(autojump_clock: MockClock) -> None:
    lines = TRANSCRIPT.splitlines()
    assert len(lines) > 15
    async with house(example) as here:
        player = Player(here)
        for line in lines:
            await player.play(line[0], line[2:])


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.NO_CODE], ids=lambda code: code.name)
def test_every_close_code_has_its_row(code: Code) -> None:
    assert re.search(rf"^\| {code.value} \| ", PAGE, re.MULTILINE)


def test_every_name_of_ours_is_there_and_well_formed() -> None:
    for name in (handshake.SESSION, handshake.RECEIVED):
        assert name.decode() in PAGE.lower()
    for prefix in ("mcp.auth.", "mcp.session.", "mcp.received.", SESSION_KEY, RESUMED):
        assert prefix in PAGE
    assert is_valid_meta_key(SESSION_KEY)
    assert not is_reserved_meta_key(SESSION_KEY)


def test_the_numbers_are_those_of_the_settings() -> None:
    for name, shown in (
        ("max_frame", f"{DEFAULTS.max_frame >> 20} MiB"),
        ("max_body_bytes", f"{DEFAULTS.max_body_bytes >> 20} MiB"),
        ("body_time", f"{DEFAULTS.body_time:g} s"),
        ("write_time", f"{DEFAULTS.write_time:g} s"),
        ("ping_every", f"{DEFAULTS.ping_every:g} s"),
        ("grace", f"{DEFAULTS.grace:g} s"),
        ("max_sessions", f"{DEFAULTS.max_sessions:,}"),
        ("max_connections", f"{DEFAULTS.max_connections:,}"),
    ):
        assert f"| `{name}` | {shown} |" in PAGE
    events, size = DEFAULTS.max_events, f"{DEFAULTS.max_event_bytes >> 20} MiB"
    assert f"| `max_events`, `max_event_bytes` | {events}, {size} |" in PAGE
    assert f"the latest {events} messages (`max_events`) or {size} (`max_event_bytes`)" in PAGE
    assert f"waits {CLOSE_TIME:g} s" in PAGE
