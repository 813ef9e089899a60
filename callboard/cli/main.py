"""The command line: every command, put together. Each has a `--help` that teaches and a `--json` for scripts."""

import os
import sys

from cyclopts import App, CycloptsError, Group
from rich.console import Console

from callboard._version import __version__
from callboard.cli import client
from callboard.cli.approve import APPROVE_EXAMPLES, approve
from callboard.cli.bench import BENCH_EXAMPLES, bench
from callboard.cli.check import CHECK_EXAMPLES, check
from callboard.cli.client_run import with_command
from callboard.cli.codes import Exit
from callboard.cli.compare import COMPARE_EXAMPLES, compare
from callboard.cli.entrance import LOGIN_EXAMPLES, LOGOUT_EXAMPLES, login, logout
from callboard.cli.run import RUN_EXAMPLES, run
from callboard.cli.serve import SERVE_EXAMPLES, serve
from callboard.errors import CannotServe

__all__ = ["app", "main", "run", "serve"]

app = App(
    name="callboard",
    help="An actor-based message broker for the Model Context Protocol.",
    version=__version__,
    help_format="plaintext",
)

_SERVERS = Group("Be a server", sort_key=0)
_CLIENTS = Group("Speak to a server", sort_key=1)

app.command(run, help_epilogue=RUN_EXAMPLES, group=_SERVERS)
app.command(serve, help_epilogue=SERVE_EXAMPLES, group=_SERVERS)
app.command(check, help_epilogue=CHECK_EXAMPLES, group=_SERVERS)
app.command(approve, help_epilogue=APPROVE_EXAMPLES, group=_SERVERS)
_SPEAKING = {command.__name__.rstrip("_"): command for command in client.COMMANDS}
for name, command in _SPEAKING.items():
    app.command(command, name=name, help_epilogue=client.COMMANDS[command], group=_CLIENTS)
_BENCH = App(name="bench", help_format="plaintext", help_epilogue=BENCH_EXAMPLES, group=_CLIENTS)
_BENCH.default(bench)
_BENCH.command(compare, help_epilogue=COMPARE_EXAMPLES)
app.command(_BENCH)
app.command(login, help_epilogue=LOGIN_EXAMPLES, group=_CLIENTS)
app.command(logout, help_epilogue=LOGOUT_EXAMPLES, group=_CLIENTS)


def _one_line(error: CycloptsError) -> str:
    return f"callboard: {' '.join(str(error).split())}"


def _unbroken() -> Console:
    """Standard error, with one line as one line however narrow it is, and what was typed as it was typed."""
    return Console(stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False)


def main() -> None:
    """Run the command line."""
    try:
        app(with_command(sys.argv[1:], {*_SPEAKING, "bench"}), error_formatter=_one_line, error_console=_unbroken())
    except CannotServe as error:
        print(f"callboard: {error}", file=sys.stderr)
        sys.exit(Exit.USAGE)
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Exit.FINE)
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
