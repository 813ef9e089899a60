"""The commands. Each has a `--help` that teaches and a `--json` for scripts."""

import json as json_text
import sys
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

from callboard import __version__
from callboard.codecs.revisions import METHODS, Direction, Revision

app = App(
    name="callboard",
    help="An actor-based message broker for the Model Context Protocol.",
    version=__version__,
)

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON instead of a table.")]


@app.command
def serve(*, json: Json = False) -> None:
    """Serve MCP. This version has no transports yet: it says what it speaks, and ends."""
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
    console.print("Codecs, supervisor and hosting API are here; transports, client and broker follow. See README.md.")


def _spoken(revision: Revision) -> dict[str, str | int]:
    def methods(direction: Direction) -> int:
        return sum(revision in method.spoken[direction] for method in METHODS.values())

    return {
        "revision": revision.value,
        "era": revision.era.value,
        "client_to_server": methods(Direction.CLIENT_TO_SERVER),
        "server_to_client": methods(Direction.SERVER_TO_CLIENT),
    }


def main() -> None:
    """Run the command line."""
    app()
