"""`callboard top`: a running server, live in a terminal."""

import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Final, Literal

import attrs
import msgspec
import trio
from cyclopts import App, Parameter
from rich.console import Console
from rich.live import Live
from rich.text import Text

from callboard.cli.admin_client import AdminClient, AdminView
from callboard.cli.arguments import BadArgument
from callboard.cli.bench_flags import seconds_in
from callboard.cli.codes import Exit
from callboard.cli.complaints import complain
from callboard.cli.screen import Screen
from callboard.cli.serve_flags import FLAG
from callboard.cli.streams import prepare_streams
from callboard.cli.top_keys import SUSPEND, keys_at_once, read_keys
from callboard.cli.top_state import TopState
from callboard.cli.top_tables import TABS
from callboard.cli.top_view import as_text, screen
from callboard.errors import CallboardError
from callboard.supervisor.groups import first_leaf
from callboard.transports.signals import heed_signals

TOP_EXAMPLES: Final = """\
Examples:

  callboard serve mcp.json --admin 8001    a server that can be looked at
  callboard top                            it, from another terminal
  callboard top :9000                      another port of this machine
  callboard top unix:/run/callboard.sock   a Unix socket
  callboard top example.org:8001 --token-file token
  callboard top --view requests            begin with the requests
  callboard top | less                     one snapshot, as text
  callboard top --json | jq .latest        a JSON object a second

Without ADDRESS: that of $CALLBOARD_ADMIN, else 127.0.0.1:8001. A token is
read from --token-file or from $CALLBOARD_ADMIN_TOKEN.

Keys: s servers, c clients, r requests, t tree, d dead letters, o tools,
l listeners, n nodes; < > sort, / filter, p pause, Enter details, ? help,
q quit.

Exit codes: 0 q was pressed; 2 wrong arguments; 3 cannot connect; 4 not an
admin address, or the token is not accepted; 5 timed out; 130 Ctrl-C.
"""

LEAST_INTERVAL: Final = 1.0
"""Seconds: a server makes a view once a second, for all viewers."""

LONGEST_INTERVAL: Final = 3600.0

RETRIES: Final = (0.5, 1.0, 2.0, 5.0)
"""Seconds before each attempt to reconnect; the last is used again and again."""

DRAW_TIME: Final = 0.03
"""Least seconds between two drawings: a key that is held down draws no more often."""

ViewName = Literal["servers", "clients", "requests", "tree", "dead-letters", "tools", "listeners", "nodes"]

Address = Annotated[
    str | None,
    Parameter(
        name="ADDRESS",
        help="Admin address of the server: PORT, HOST:PORT, http://..., unix:/path. "
        "Default: $CALLBOARD_ADMIN, else 127.0.0.1:8001.",
    ),
]
AdminToken = Annotated[
    Path | None,
    Parameter(help="File with the token, as `principal token` or alone. Default: $CALLBOARD_ADMIN_TOKEN."),
]


def top(
    address: Address = None,
    /,
    *,
    view: Annotated[ViewName | None, Parameter(help="Table to begin with; in a pipe, the only one.")] = None,
    interval: Annotated[str, Parameter(help="Time between two views: 1s, 5s, 1m.")] = "1s",
    once: Annotated[bool, FLAG, Parameter(help="Print one snapshot and exit. In a pipe, the default.")] = False,
    json: Annotated[
        bool, FLAG, Parameter(help="Print JSON, one object a line, until Ctrl-C; one with --once.")
    ] = False,
    token_file: AdminToken = None,
) -> int:
    """Watch a running server: servers, clients, requests, actors, tools. Needs a server with --admin."""
    tab = next((tab for tab in TABS if tab.name == (view or "").replace("-", " ")), None)

    async def act(client: AdminClient) -> Exit:
        if json and not once:
            return await _stream(client, every)
        if once or not _is_screen():
            found = await client.snapshot()
            width = _window()[0] if sys.stdout.isatty() else 0
            sys.stdout.write(_json(found) if json else as_text(found, client.name, tab, width))
            return Exit.FINE
        return await Top(client, TopState(client.name, tab or TABS[0]), every).run()

    try:
        every = _interval(interval)
    except BadArgument as error:
        return complain(Screen(), error, is_json=json)
    return look(address, token_file, act, is_json=json)


def _interval(text: str) -> float:
    """Raises `BadArgument`."""
    every = seconds_in("--interval", text)
    if not LEAST_INTERVAL <= every <= LONGEST_INTERVAL:
        raise BadArgument(f"--interval {text[:50]!r}: from 1s to 1h; a server makes a view once a second")
    return every


def look(
    address: str | None,
    token_file: Path | None,
    act: Callable[[AdminClient], Awaitable[Exit]],
    *,
    is_json: bool = False,
) -> int:
    """Do something with an admin address, and return the exit code. An error is as `complain` tells it."""
    prepare_streams()
    try:
        return trio.run(_heeding, AdminClient.of(address, token_file), act)
    except (CallboardError, BadArgument) as error:
        return complain(Screen(), error, is_json=is_json)


async def _heeding(client: AdminClient, act: Callable[[AdminClient], Awaitable[Exit]]) -> Exit:
    """Until it is done, or a signal asks it to end."""
    code, failure = Exit.INTERRUPTED, None
    async with trio.open_nursery() as nursery:

        async def wait_asked(asked: trio.Event) -> None:
            await asked.wait()
            nursery.cancel_scope.cancel()

        with heed_signals(nursery.cancel_scope.cancel, ends_with_terminal=True) as asked:
            nursery.start_soon(wait_asked, asked)
            try:
                code = await act(client)
                sys.stdout.flush()
            except* (CallboardError, BadArgument) as errors:
                failure = first_leaf(errors)
            except* BrokenPipeError:  # the reader has seen enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                code = Exit.FINE
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return code


def _json(view: AdminView) -> str:
    """Without the history, which only the first view of a stream has."""
    told = {name: value for name, value in view.items() if name != "history"}
    return msgspec.json.encode(told).decode() + "\n"


def _is_screen() -> bool:
    """Whether there is something to draw on."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


@attrs.define(eq=False)
class Follow:
    """Follows the views of a server, over as many connections as it takes."""

    client: AdminClient
    every: float
    on_view: Callable[[AdminView, bool], None]
    """Is told each view, and whether it is time to show one."""
    on_lost: Callable[[str], None]
    is_connected: bool = False
    """Whether the server was there before: then what fails is tried again."""
    _shown_at: float = attrs.field(default=-1e9, init=False)
    _fruitless: int = attrs.field(default=0, init=False)

    async def run(self) -> None:
        """Raises why, if the first connection fails; then it tries again and again."""
        while True:
            try:
                await self.client.follow(self._hear)
            except CallboardError as error:
                if not self.is_connected:
                    raise
                pause = RETRIES[min(self._fruitless, len(RETRIES) - 1)]
                self._fruitless += 1
                self.on_lost(f"next try in {pause:g} s: {error}")
                await trio.sleep(pause)

    def _hear(self, view: AdminView) -> None:
        self.is_connected, self._fruitless = True, 0
        now = trio.current_time()
        is_due = now - self._shown_at >= self.every - LEAST_INTERVAL / 2
        self._shown_at = now if is_due else self._shown_at
        self.on_view(view, is_due)


async def _stream(client: AdminClient, every: float) -> Exit:
    """Lines of JSON, until a signal comes or the reader goes."""
    said = Screen()

    def write(view: AdminView, is_due: bool) -> None:
        if is_due:
            sys.stdout.write(_json(view))
            sys.stdout.flush()

    await Follow(client, every, write, lambda why: said.say(f"callboard: {why}")).run()
    return Exit.FINE


@attrs.define(eq=False)
class Top:
    """The live screen: views and keys change its state, and it is drawn when it has changed."""

    client: AdminClient
    state: TopState
    every: float
    _console: Console = attrs.field(factory=Console, init=False)
    _live: Live | None = attrs.field(default=None, init=False)
    _stack: ExitStack = attrs.field(factory=ExitStack, init=False)
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def run(self) -> Exit:
        """Until q is pressed, or the terminal is gone. The terminal is left as it was, however this ends."""
        self._hear(await self.client.snapshot(with_history=True), True)  # what fails now is told without a screen
        code = Exit.FINE
        try:
            with self._stack:
                self._enter()
                async with trio.open_nursery() as nursery:
                    follow = Follow(self.client, self.every, self._hear, self._lose, is_connected=True)
                    nursery.start_soon(follow.run)
                    nursery.start_soon(self._watch_size)
                    nursery.start_soon(self._draw_changes)
                    await self._read_keys()
                    nursery.cancel_scope.cancel()
        except* OSError:  # the terminal was closed
            code = Exit.INTERRUPTED
        return code

    def _enter(self) -> None:
        """Take the screen and the keyboard."""
        if _has_keys():
            self._stack.enter_context(keys_at_once(sys.stdin.fileno()))
        live = Live(
            console=self._console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._live = self._stack.enter_context(live)
        self._draw()

    def _suspend(self) -> None:
        """Stop as Ctrl-Z does, with the terminal as it was; and be back when the shell says so."""
        self._stack.close()
        signal.raise_signal(signal.SIGTSTP)
        self._enter()

    def _hear(self, view: AdminView, is_due: bool) -> None:
        self.state.hear(view, is_shown=is_due)
        if is_due:
            self._changed.set()

    def _lose(self, why: str) -> None:
        self.state.problem = why
        self._changed.set()

    async def _read_keys(self) -> None:
        if not _has_keys():
            await trio.sleep_forever()
        with trio.CancelScope() as reading:

            def press(key: str) -> None:
                if key == SUSPEND:
                    self._suspend()
                else:
                    self.state.press(key)
                self._changed.set()
                if self.state.is_over:
                    reading.cancel()

            await read_keys(sys.stdin.fileno(), press)

    async def _watch_size(self) -> None:
        if not hasattr(signal, "SIGWINCH"):
            return
        with trio.open_signal_receiver(signal.SIGWINCH) as resized:
            async for _ in resized:
                self._changed.set()

    async def _draw_changes(self) -> None:
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            self._draw()
            await trio.sleep(DRAW_TIME)

    def _draw(self) -> None:
        if self._live is None:
            return
        width, height = _window()
        self._console.size = (width, height)
        lines = screen(self.state, width, height)
        drawn = Text("\n", no_wrap=True, overflow="crop", end="").join(lines)
        self._live.update(drawn, refresh=True)


def _has_keys() -> bool:
    return os.name == "posix" and sys.stdin.isatty()


def _window() -> tuple[int, int]:
    """Of the terminal itself: variables say how it was at the start."""
    try:
        width, height = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        width = height = 0
    return (width, height) if width > 0 and height > 0 else shutil.get_terminal_size()


APP: Final = App(name="top", help_epilogue=TOP_EXAMPLES)
APP.default(top)
