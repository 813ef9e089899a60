"""`callboard serve`: many servers behind one endpoint."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import attrs
from cyclopts import App, Parameter

from callboard.cli.serve_flags import ENVIRONMENT, LIMITS, NOWHERE, TRANSPORTS, Json, Where
from callboard.errors import CannotServe
from callboard.serve.processes import run_workers
from callboard.transports.bind import BindAddress
from callboard.transports.limits import DEFAULTS, Settings

if TYPE_CHECKING:
    from callboard.broker.broker import Broker

DEFAULT_PORT: Final = "8000"

SERVE_EXAMPLES: Final = """\
Examples:

  callboard serve                             a demo
  callboard serve mcp.json                    the `mcpServers` of your MCP host
  callboard serve servers.toml --http 9000    a configuration in TOML
  callboard serve mcp.json --stdio            as one server of an MCP host
  callboard serve mcp.json --server github    one of them, with its own names
  callboard serve mcp.json --admin 8001       with a live page and /metrics
  callboard check mcp.json                    validate a file

The configuration is reloaded when the file changes, and on SIGHUP; servers
that did not change keep their connections. So are token file and certificate.
"""


def serve(
    config: Annotated[
        Path | None,
        Parameter(name="CONFIG", help="Configuration file: `mcpServers` in JSON, or TOML. Default: a demo."),
    ] = None,
    /,
    *,
    where: Annotated[Where, Parameter(name="*")] = NOWHERE,
    settings: Annotated[Settings, Parameter(name="*", group=LIMITS)] = DEFAULTS,
    ready_when: Annotated[
        Literal["any", "all"],
        Parameter(group=TRANSPORTS, help="/readyz says ok when any server is up, or all; and each `required` one."),
    ] = "any",
    skip_invalid: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="Leave out servers whose configuration is invalid, with a warning, and serve the others.",
        ),
    ] = False,
    server: Annotated[
        str | None,
        Parameter(group=TRANSPORTS, help="Serve this server alone, with its own names, over stdio. HTTP: /mcp/NAME."),
    ] = None,
    profile: Annotated[
        str | None, Parameter(group=TRANSPORTS, help="Serve this profile alone, over stdio. HTTP: /mcp/NAME.")
    ] = None,
    json: Json = False,
) -> None:
    """Serve many MCP servers behind one endpoint. Default: HTTP and WebSocket on 127.0.0.1:8000."""
    if config is not None and config.suffix == ".py":
        raise CannotServe(f"{config} is a Python file, and CONFIG is JSON or TOML: use callboard run {config}")
    if server is not None and profile is not None:
        raise CannotServe("--server and --profile exclude each other")
    is_usual = not where.is_anywhere and server is None and profile is None
    if is_usual:
        where = attrs.evolve(where, http=DEFAULT_PORT, ws=DEFAULT_PORT)
    with where.options(settings, json=json) as options:
        if (at := server or profile) is not None:
            options["at"] = at
        try:
            if not run_workers(options, has_backends=True):
                from callboard.serve.run import run as run_server  # which the parent of workers does without

                if config is not None:
                    options["authorization"] = _tables(config.expanduser(), where)
                run_server(_broker(config, where, ready_when, skip_invalid), **options)
        except CannotServe as error:
            if is_usual and str(error).startswith(f"{BindAddress.parse(DEFAULT_PORT)}: "):
                raise CannotServe(f"{error}; choose another address with --http PORT") from None
            raise


def _tables(config: Path, where: Where) -> str | None:
    """The file with the tables `authorization` and `quotas`: that of the servers, or one of its own."""
    from callboard.config.authorization import has_tables

    if not has_tables(config):
        return None if where.authorization is None else str(where.authorization)
    if where.authorization is not None:
        raise CannotServe(f"{config} has `authorization` or `quotas`, and so has --authorization: give one of them")
    return str(config)


def _broker(config: Path | None, where: Where, ready_when: Literal["any", "all"], skips_invalid: bool) -> "Broker":
    """In front of the servers of a file, or of those that come along. Raises `CannotServe`."""
    from callboard.broker.broker import Broker
    from callboard.broker.demo import EXAMPLE, company
    from callboard.codecs.revisions import ALL

    revisions = where.limited(ALL)
    if config is None:
        return Broker(company(), revisions=revisions, example=EXAMPLE, ready_when=ready_when)
    return Broker.of_file(config.expanduser(), revisions=revisions, ready_when=ready_when, skips_invalid=skips_invalid)


APP: Final = App(name="serve", help_epilogue=SERVE_EXAMPLES, config=ENVIRONMENT)
APP.default(serve)
