"""`callboard run`: a server in a Python file."""

import sys
from typing import Annotated, Final

from cyclopts import App, Parameter

from callboard.cli.serve_flags import ENVIRONMENT, FLAG, LIMITS, NOWHERE, Json, Where
from callboard.serve.processes import run_workers
from callboard.transports.limits import DEFAULTS, Settings

RUN_EXAMPLES: Final = """\
Examples:

  callboard run weather.py                       over stdio, as MCP hosts do
  callboard run weather.py:server --http 8000    http://127.0.0.1:8000/mcp
  callboard run weather.py --http 8000 --ws 8000
  callboard run package.weather:server           a module of a package
  callboard run weather.py --http 8000 --reload  saved code is served
  callboard run weather.py --http 0 --json       any free port, printed
  callboard run weather.py --http unix:/run/weather.sock
  callboard run weather.py --http 0.0.0.0:443 --allow-host mcp.example.com \\
    --tls-cert cert.pem --tls-key key.pem --token-file tokens.txt

Ctrl-C or SIGTERM shuts down gracefully; a second one at once.
Token file and certificate are reloaded when they change, and on SIGHUP.
"""


def run(
    target: Annotated[
        str,
        Parameter(
            name="TARGET",
            help="FILE.py, FILE.py:NAME or package.module:NAME. Default NAME: server, or the only server there is.",
        ),
    ],
    /,
    *,
    where: Annotated[Where, Parameter(name="*")] = NOWHERE,
    settings: Annotated[Settings, Parameter(name="*", group=LIMITS)] = DEFAULTS,
    module: Annotated[
        bool, FLAG, Parameter(name=["--module", "-m"], help="TARGET is a module, as for python -m.")
    ] = False,
    reload: Annotated[
        bool, FLAG, Parameter(help="Start anew when a file of the server changes; calls in flight are finished.")
    ] = False,
    json: Json = False,
) -> None:
    """Run the server in a Python file, over any set of transports. Default: stdio."""
    waits_for_client = not where.is_anywhere and sys.stdin is not None and sys.stdin.isatty()
    with where.options(settings, json=json) as options:  # before the file is loaded: that may print
        options["reload"] = reload
        if run_workers(options, has_backends=False):
            return
        from callboard.serve.run import run as run_server  # which the parent of workers does without
        from callboard.server.load import load_server

        server = load_server(target, is_module=module)
        server.revisions = where.limited(server.revisions)
        if waits_for_client:
            sys.stderr.write("callboard: waiting for a client on standard input; for a URL: --http 8000\n")
        run_server(server, **options)


APP: Final = App(name="run", help_epilogue=RUN_EXAMPLES, config=ENVIRONMENT)
APP.default(run)
