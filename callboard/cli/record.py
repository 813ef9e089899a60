"""`callboard record`: a server, as an MCP host would start it, with all messages written to a file."""

from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import App, Parameter

from callboard.actors.broker.policy import BackendSettings
from callboard.cli.arguments import BadArgument, read_headers
from callboard.cli.client import Target
from callboard.cli.client_run import target_of
from callboard.cli.serve_flags import ENVIRONMENT
from callboard.errors import CannotConnect, CannotServe
from callboard.transports.server.stdio import claim_stdio

DEFAULT_FILE: Final = Path("recording.jsonl")
NAME: Final = "server"

EXAMPLES: Final = """\
Examples:

  callboard record http://127.0.0.1:8000/mcp
  callboard record -o weather.jsonl --name weather weather.py:server
  callboard record -o files.jsonl -- \\
    npx -y @modelcontextprotocol/server-filesystem /tmp

Put it into the configuration of your MCP host, in the place of the command that
it runs: the server is the same, and each message becomes a line of the file.
Secrets are replaced by ***. Then: callboard convert files.jsonl > files.ttl

To record all servers of a configuration: callboard serve mcp.json --record FILE
"""


def record(
    target: Target,
    /,
    *,
    output: Annotated[Path, Parameter(name=("--output", "-o"), help="File to append to.")] = DEFAULT_FILE,
    header: Annotated[
        list[str] | None,
        Parameter(negative="", help="HTTP header to send with every request: 'Name: value'. May be repeated."),
    ] = None,
    name: Annotated[str, Parameter(help="Name of the server in the recording.")] = NAME,
) -> None:
    """Serve another server over stdio, and record what is said to it and what it says."""
    with claim_stdio() as pipes:
        from callboard.broker.broker import Broker
        from callboard.client.routes import ClientAccess, ways_to
        from callboard.config import BackendSpec
        from callboard.serve.run import run as run_server

        try:
            found: Any = ways_to(target_of(target), ClientAccess(headers=read_headers(header or ())))
        except (CannotConnect, BadArgument) as error:
            raise CannotServe(str(error)) from None
        spec = BackendSpec(name=name, target=found, settings=BackendSettings(prefix=""), shown=target[:200])
        run_server(Broker([spec], name=name), stdio=pipes, record=str(output), on_ready=None)


APP: Final = App(name="record", help_epilogue=EXAMPLES, config=ENVIRONMENT)
APP.default(record)
