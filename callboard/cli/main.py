"""The command line: every command, put together. Each has a `--help` that teaches and a `--json` for scripts."""

import gc
import json
import os
import sys
from typing import TYPE_CHECKING, Final

from cyclopts import App, CoercionError, CycloptsError, Group, UnusedCliTokensError

from callboard._version import __version__
from callboard.cli.codes import Exit
from callboard.errors import CannotServe
from callboard.supervisor.colours import coloured, shows_colours

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["app", "main"]

app = App(
    name="callboard",
    help="An actor-based message broker for the Model Context Protocol.",
    version=__version__,
    version_flags=("--version", "-V"),
    help_format="plaintext",
)

_SERVERS = Group("Run servers", sort_key=0)
_LOOK = Group("Look at a running server", sort_key=1)
_CLIENTS = Group("Use a server", sort_key=2)
_RECORDINGS = Group("Record and convert messages", sort_key=3)
_SELF = Group("This program", sort_key=4)

# By name, so that a command loads its own modules only: all of them together take half as long again to import.
for _place, _name in enumerate(("run", "dev", "serve", "check", "install", "approve", "token")):
    app.command(f"callboard.cli.{_name}:APP", name=_name, group=_SERVERS, sort_key=_place)
for _place, _name in enumerate(("status", "top")):
    app.command(f"callboard.cli.{_name}:APP", name=_name, group=_LOOK, sort_key=_place)
for _place, (_name, _where) in enumerate(
    {
        "list": "client:LIST",
        "describe": "describe:DESCRIBE",
        "call": "client:CALL",
        "read": "client:READ",
        "prompt": "client:PROMPT",
        "complete": "describe:COMPLETE",
        "listen": "client:LISTEN",
        "tasks": "tasks:APP",
        "login": "entrance:LOGIN_APP",
        "logout": "entrance:LOGOUT_APP",
        "bench": "compare:APP",
    }.items()
):
    app.command(f"callboard.cli.{_where}", name=_name, group=_CLIENTS, sort_key=_place)
for _name in ("record", "convert"):
    app.command(f"callboard.cli.{_name}:APP", name=_name, group=_RECORDINGS)
app.command("callboard.cli.completion:APP", name="completion", group=_SELF)
for _flag in ("--help", "--version"):
    app[_flag].group = (_SELF,)

_TAKE_A_COMMAND: Final = frozenset(
    {"list", "describe", "call", "read", "prompt", "complete", "listen", "bench", "record"}
)
_CONNECT: Final = frozenset({*_TAKE_A_COMMAND, "tasks", "login", "logout"} - {"record"})
_JSON_ERRORS: Final = _CONNECT | {"run", "dev", "serve", "check", "approve", "token", "status", "top"}
"""The commands that have an error on standard output, too, if `--json` is given: all that have this flag."""


_NUMBERS: Final = {float: "a number", int: "a whole number"}


def _typed() -> list[str]:
    """The arguments; `help` and `help COMMAND` are other words for `--help`."""
    arguments = sys.argv[1:]
    return [*arguments[1:], "--help"] if arguments[:1] == ["help"] else arguments


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
        hint = f"{command} --json > {extra} writes a file" if extra.endswith(".json") else f"see {command} --help"
        return f"callboard: unexpected argument: {extra}; {hint}"
    if isinstance(error, CoercionError) and error.token is not None and error.target_type in _NUMBERS:
        flag = error.token.keyword or ("argument" if error.argument is None else error.argument.name)
        return f"callboard: {flag}: expected {_NUMBERS[error.target_type]}, not {error.token.value[:100]!r}"
    return f"callboard: {' '.join(str(error).split())}"


def _complain(error: CycloptsError, arguments: list[str]) -> None:
    """Arguments that no command takes: one line, and one object for scripts."""
    line = _one_line(error)
    _unbroken().print(line)
    _complain_json("usage", line.removeprefix("callboard: "), arguments)


def _complain_json(kind: str, message: str, arguments: list[str]) -> None:
    """The same for scripts, if that is what they want."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if own and own[0] in _JSON_ERRORS and "--json" in own:
        from callboard.cli.complaints import usage_error, write_error

        write_error(usage_error(kind, message))


def _unbroken() -> "Console":
    """Standard error, with one line as one line however narrow it is, and what was typed as it was typed."""
    from rich.console import Console

    return Console(stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False)


def main() -> None:
    """Run the command line."""
    try:
        arguments = _typed()
        if arguments and arguments[0] in _CONNECT - {"bench"}:
            gc.disable()  # a tenth of the time to load all modules; `speak` enables it
        if not arguments or arguments[0] in app.help_flags or arguments[0] not in app:
            app.resolved_commands()  # the list of commands has a line of each one's docstring
        app(_with_command(arguments), exit_on_error=False, print_error=False)
    except CycloptsError as error:
        _complain(error, sys.argv[1:])
        sys.exit(Exit.USAGE)
    except CannotServe as error:
        print(f"callboard: {coloured(str(error)) if shows_colours() else error}", file=sys.stderr)
        for warning in getattr(error, "warnings", ()):  # of a file: often the cause of its mistakes
            print(f"callboard: {coloured(str(warning)) if shows_colours() else warning}", file=sys.stderr)
        _complain_json("cannot_serve", str(error), sys.argv[1:])
        sys.exit(Exit.USAGE)
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Exit.FINE)
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
