"""`callboard run` and `callboard serve`."""

import json as json_text
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Group, Parameter
from rich.console import Console
from rich.table import Table

from callboard import __version__
from callboard.announcing import announce, announce_json
from callboard.codecs.revisions import METHODS, Direction, Revision
from callboard.errors import CannotServe
from callboard.loading import load_server
from callboard.server import Server
from callboard.serving import Door, Options
from callboard.serving import run as run_server
from callboard.tokens import Tokens
from callboard.transports.settings import DEFAULTS, Settings
from callboard.transports.stdio import claim_stdio

_TRANSPORTS: Final = Group("Transports", sort_key=0)
_ACCESS: Final = Group("Who may use it", sort_key=1)
_LIMITS: Final = Group("Limits", help="Sizes in bytes, times in seconds.", sort_key=3)

_FLAG: Final = Parameter(negative="", show_default=False)

RUN_EXAMPLES: Final = """\
Examples:

  callboard run weather.py                         over stdio, as MCP hosts start it
  callboard run weather.py:server --http 8000      http://127.0.0.1:8000/mcp
  callboard run weather.py --http 8000 --ws 8000   HTTP and WebSocket on one port
  callboard run weather.py --http 0 --json         on any free port; the line it prints says which
  callboard run weather.py --http unix:/run/weather.sock
  callboard run weather.py --http 0.0.0.0:443 --tls-cert cert.pem --tls-key key.pem \\
      --allow-host mcp.example.com --token-file tokens.txt

Ctrl-C and SIGTERM let it finish what is in flight; a second one ends it at once.
"""

Json = Annotated[bool, _FLAG, Parameter(name="--json", help="Print JSON instead of text.")]


def run(
    target: Annotated[str, Parameter(name="TARGET", help="FILE.py:NAME; NAME is `server` if it is left out.")],
    /,
    *,
    http: Annotated[
        str | None,
        Parameter(group=_TRANSPORTS, help="Serve HTTP at HOST:PORT, [IPV6]:PORT, PORT (this machine) or unix:/path."),
    ] = None,
    ws: Annotated[
        str | None, Parameter(group=_TRANSPORTS, help="Serve WebSocket at such an address; it may be the same.")
    ] = None,
    stdio: Annotated[
        bool, _FLAG, Parameter(group=_TRANSPORTS, help="Serve standard input and output, beside the others.")
    ] = False,
    door: Annotated[
        Door, Parameter(group=_TRANSPORTS, help="Who serves HTTP: callboard itself, or hypercorn, which has HTTP/2.")
    ] = "native",
    legacy_sse: Annotated[
        bool, _FLAG, Parameter(group=_TRANSPORTS, help="Serve HTTP+SSE (2024-11-05), too, at /sse.")
    ] = False,
    revisions: Annotated[
        str | None, Parameter(group=_TRANSPORTS, help="Speak only these, with commas in between; all if not given.")
    ] = None,
    tls_cert: Annotated[Path | None, Parameter(group=_ACCESS, help="Certificate (PEM) for https and wss.")] = None,
    tls_key: Annotated[Path | None, Parameter(group=_ACCESS, help="Its key.")] = None,
    allow_host: Annotated[
        list[str] | None,
        Parameter(group=_ACCESS, negative="", help="A name that the server goes by, beside its address; * for any."),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        Parameter(group=_ACCESS, negative="", help="An origin whose web pages may use it; * for any."),
    ] = None,
    token_file: Annotated[
        Path | None,
        Parameter(group=_ACCESS, help="Lines of `principal token`: who may come in, by bearer token. Not for stdio."),
    ] = None,
    settings: Annotated[Settings, Parameter(name="*", group=_LIMITS)] = DEFAULTS,
    json: Json = False,
) -> None:
    """Serve the server in a Python file, on any set of transports at once; without any, over stdio."""
    options = Options(
        http=http,
        ws=ws,
        door=door,
        legacy_sse=legacy_sse,
        tls_cert=None if tls_cert is None else str(tls_cert),
        tls_key=None if tls_key is None else str(tls_key),
        allow_hosts=allow_host or (),
        allow_origins=allow_origin or (),
        settings=settings,
        on_ready=announce_json if json else announce,
    )
    with ExitStack() as stack:
        if stdio or (http is None and ws is None):  # before the file is loaded: that may print
            options["stdio"] = stack.enter_context(claim_stdio())
        if token_file is not None:
            options["authenticate"] = Tokens.read(token_file)
        server = load_server(target)
        _limit(server, revisions)
        run_server(server, **options)


def _limit(server: Server, revisions: str | None) -> None:
    """Let *server* speak only the *revisions* that were given. Raises `CannotServe`."""
    if revisions is None:
        return
    named = [name.strip() for name in revisions.split(",") if name.strip()]
    spoken = {revision.value: revision for revision in server.revisions}
    unknown = [name for name in named if name not in spoken]
    if unknown or not named:
        raise CannotServe(f"--revisions {revisions[:200]}: choose among {', '.join(sorted(spoken))}")
    server.revisions = frozenset(spoken[name] for name in named)


def serve(*, json: Json = False) -> None:
    """Say what is spoken here. The broker, which will be served by this, is not there yet."""
    spoken = [_spoken(revision) for revision in Revision]
    if json:
        sys.stdout.write(json_text.dumps({"version": __version__, "revisions": spoken}, indent=2) + "\n")
        return
    table = Table(title=f"callboard {__version__} speaks")
    table.add_column("revision")
    table.add_column("era")
    table.add_column("client to server", justify="right")
    table.add_column("server to client", justify="right")
    for row in spoken:
        table.add_row(*map(str, row.values()))
    console = Console()
    console.print(table)
    console.print("Serve a file of yours with: callboard run FILE.py. The broker follows. See README.md.")


def _spoken(revision: Revision) -> dict[str, str | int]:
    def methods(direction: Direction) -> int:
        return sum(revision in method.spoken[direction] for method in METHODS.values())

    return {
        "revision": revision.value,
        "era": revision.era.value,
        "client_to_server": methods(Direction.CLIENT_TO_SERVER),
        "server_to_client": methods(Direction.SERVER_TO_CLIENT),
    }
