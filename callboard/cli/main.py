"""The command line: every command, put together. Each has a `--help` that teaches and a `--json` for scripts."""

import json
import os
import sys
from typing import Final

from cyclopts import App, CycloptsError, Group, UnusedCliTokensError
from rich.console import Console

from callboard._version import __version__
from callboard.cli.codes import Exit
from callboard.errors import CannotServe

__all__ = ["app", "main"]

app = App(
    name="callboard",
    help="An actor-based message broker for the Model Context Protocol.",
    version=__version__,
    help_format="plaintext",
)

_SERVERS = Group("Run servers", sort_key=0)
_LOOK = Group("Look at a running server", sort_key=1)
_CLIENTS = Group("Use a server", sort_key=2)

# By name, so that a command loads its own modules only: all of them together take half as long again to import.
for _place, _name in enumerate(("run", "serve", "check", "approve", "token")):
    app.command(f"callboard.cli.{_name}:APP", name=_name, group=_SERVERS, sort_key=_place)
for _place, _name in enumerate(("status", "top")):
    app.command(f"callboard.cli.{_name}:APP", name=_name, group=_LOOK, sort_key=_place)
for _name in ("list", "call", "read", "prompt", "listen"):
    app.command(f"callboard.cli.client:{_name.upper()}", name=_name, group=_CLIENTS)
app.command("callboard.cli.compare:APP", name="bench", group=_CLIENTS)
app.command("callboard.cli.entrance:LOGIN_APP", name="login", group=_CLIENTS)
app.command("callboard.cli.entrance:LOGOUT_APP", name="logout", group=_CLIENTS)

_TAKE_A_COMMAND: Final = frozenset({"list", "call", "read", "prompt", "listen", "bench"})


def _with_command(arguments: list[str]) -> list[str]:
    """The *arguments*, with the command after `--` in the place of TARGET."""
    if "--" not in arguments or arguments[0] not in _TAKE_A_COMMAND:
        return arguments
    at = arguments.index("--")
    before, command = arguments[:at], arguments[at + 1 :]
    return [before[0], json.dumps(command), *before[1:]] if command else before


def _one_line(error: CycloptsError) -> str:
    if isinstance(error, UnusedCliTokensError):
        extra = " ".join(error.unused_tokens or ())
        command = " ".join(("callboard", *(error.command_chain or ())))
        return f"callboard: unexpected argument: {extra}; see {command} --help"
    return f"callboard: {' '.join(str(error).split())}"


def _unbroken() -> Console:
    """Standard error, with one line as one line however narrow it is, and what was typed as it was typed."""
    return Console(stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False)


def main() -> None:
    """Run the command line."""
    try:
        arguments = sys.argv[1:]
        if not arguments or arguments[0] in app.help_flags or arguments[0] not in app:
            app.resolved_commands()  # the list of commands has a line of each one's docstring
        app(_with_command(arguments), error_formatter=_one_line, error_console=_unbroken())
    except CannotServe as error:
        print(f"callboard: {error}", file=sys.stderr)
        sys.exit(Exit.USAGE)
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Exit.FINE)
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
