"""`callboard check`: what a file of servers says, and what is wrong with it. A server is started only if asked for."""

import json as json_text
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import attrs
from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from callboard.cli.check_rules import AssumedCaller, seen_by
from callboard.cli.check_start import try_servers
from callboard.cli.codes import Exit
from callboard.cli.screen import Screen
from callboard.config import BackendSpec, BadConfiguration, Configuration, Mistake, read_configuration
from callboard.config.authorization import AuthorizationSettings, read_authorization
from callboard.config.report import UnreadableConfiguration
from callboard.supervisor.printable import clean

if TYPE_CHECKING:
    from callboard.server.served import BackendStatus

CHECK_EXAMPLES: Final = """\
Examples:

  callboard check servers.toml
  callboard check ~/.config/mcp.json --json
  callboard check servers.toml --as 'scope=files:read' --claim groups=hr
  callboard check servers.toml --as 'scope=a b' --tool files__delete
  callboard check servers.toml --start        and see whether each comes up

Exit codes: 0 valid, perhaps with warnings; 1 a server did not come up (with
--start); 2 invalid; 130 Ctrl-C.
"""

_SOME: Final = partial(Parameter, negative="", show_default=False)
_SEEN: Final = ("kind", "name", "seen", "scopes", "approve")
_COLUMNS: Final = ("name", "transport", "target", "prefix", "share")


def check(
    config: Annotated[Path, Parameter(name="CONFIG", help="Configuration file: `mcpServers` in JSON, or TOML.")],
    /,
    *,
    as_: Annotated[
        tuple[str, ...],
        _SOME(name="--as", help="Show what such a caller sees: `scope=a b`, `principal=p`, `tenant=t`."),
    ] = (),
    tenant: Annotated[str, _SOME(help="The tenant of that caller.")] = "",
    principal: Annotated[str, _SOME(help="The principal of that caller.")] = "",
    claim: Annotated[
        tuple[str, ...], _SOME(help="A claim of that caller: NAME=VALUE; several of one name are a list.")
    ] = (),
    tool: Annotated[tuple[str, ...], _SOME(help="A tool to decide about, by the name that clients see.")] = (),
    start: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="Start all servers, as `callboard serve` would, say whether each comes up, and stop them.",
        ),
    ] = False,
    json: Annotated[
        bool, Parameter(name="--json", negative="", show_default=False, help="Print JSON instead of text.")
    ] = False,
) -> int:
    """Validate a configuration file: print errors and warnings with their lines, and the servers.

    With `--as`, `--tenant`, `--principal`, `--claim` or `--tool`: what such a caller sees, and the scopes it lacks.
    """
    try:
        configuration, authorization = _read(config.expanduser())
    except BadConfiguration as error:
        found = Configuration(file=config, warnings=error.warnings)
        _tell(found, error.mistakes, None, None, is_json=json)
        return Exit.USAGE
    seen = None
    if as_ or tenant or principal or claim or tool:
        assumed = AssumedCaller(said=as_, tenant=tenant, principal=principal, claims=claim)
        servers = [(spec.name, spec.prefix) for spec in configuration.backends]
        seen = seen_by(assumed.caller(), authorization, servers, tool)
    started = None
    if start:
        rules = None if authorization is None else authorization.make_rules()
        started, unused = try_servers(config.expanduser(), rules)
        warnings = [Mistake(file=config, line=None, message=str(one), is_warning=True) for one in unused]
        configuration = attrs.evolve(configuration, warnings=(*configuration.warnings, *warnings))
    _tell(configuration, (), seen, started, is_json=json)
    return Exit.NOT_UP if any(not one.is_up for one in started or ()) else Exit.FINE


def _read(path: Path) -> tuple[Configuration, AuthorizationSettings | None]:
    """Raises `BadConfiguration`, with the mistakes of both parts of the file."""
    mistakes: list[Mistake] = []
    warnings: list[Mistake] = []
    configuration, authorization = Configuration(file=path), None
    try:
        authorization = read_authorization(path)
    except UnreadableConfiguration:
        raise
    except BadConfiguration as error:
        mistakes += error.mistakes
    try:
        if authorization is None or not authorization.stands_alone:
            configuration = read_configuration(path)
    except BadConfiguration as error:
        mistakes += [one for one in error.mistakes if one not in mistakes]
        warnings += error.warnings
    if mistakes:
        raise BadConfiguration(mistakes, warnings)
    return configuration, authorization


def _tell(
    configuration: Configuration,
    mistakes: Sequence[Mistake],
    seen: Sequence[Mapping[str, Any]] | None,
    started: "Sequence[BackendStatus] | None",
    *,
    is_json: bool,
) -> None:
    if is_json:
        told = _told(configuration, mistakes) | ({} if seen is None else {"seen": seen})
        if started is not None:
            told["started"] = [{"name": one.name, "state": one.state, "why": one.why or None} for one in started]
        sys.stdout.write(json_text.dumps(told, indent=2) + "\n")
        return
    screen = Screen()
    for mistake in sorted((*mistakes, *configuration.warnings), key=lambda one: one.line or 0):
        screen.say(str(mistake), style="yellow" if mistake.is_warning else "red")
    if not mistakes:
        _show(_COLUMNS, [_cells(spec) for spec in configuration.backends])
    if seen is not None:
        _show(_SEEN, [_seen_cells(one) for one in seen])
    if started is not None:
        _show(("name", "state", "why"), [(one.name, one.state, one.why or "") for one in started])


def _show(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    console = Console()
    rows = [[clean(cell).replace("\n", " ").replace("\t", " ") for cell in row] for row in cells]
    if not console.is_terminal:
        sys.stdout.writelines("\t".join(row) + "\n" for row in rows)
        return
    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _cells(spec: BackendSpec) -> tuple[str, ...]:
    return spec.name, spec.transport, spec.shown, spec.prefix, spec.settings.share


def _seen_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return row["kind"], row["name"], row["seen"], " ".join(row["scopes"]), row["approve"] or ""


def _told(configuration: Configuration, mistakes: Sequence[Mistake]) -> dict[str, Any]:
    return {
        "file": str(configuration.file),
        "servers": [
            dict(zip(_COLUMNS, _cells(spec), strict=True)) | {"line": spec.line} for spec in configuration.backends
        ],
        "mistakes": [_mistake(mistake) for mistake in mistakes],
        "warnings": [_mistake(warning) for warning in configuration.warnings],
    }


def _mistake(mistake: Mistake) -> dict[str, str | int | None]:
    return {
        "line": mistake.line,
        "column": mistake.column,
        "where": mistake.where,
        "message": mistake.message,
    }


APP: Final = App(name="check", help_epilogue=CHECK_EXAMPLES)
APP.default(check)
