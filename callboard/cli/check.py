"""`callboard check`: what a file of servers says, and what is wrong with it. No server is started."""

import json as json_text
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from callboard.cli.codes import Exit
from callboard.cli.screen import Screen
from callboard.config import BackendSpec, BadConfiguration, Configuration, Mistake, read_configuration
from callboard.supervisor.printable import clean

CHECK_EXAMPLES: Final = """\
Examples:

  callboard check servers.toml
  callboard check ~/.config/mcp.json --json

Exit codes: 0 valid, perhaps with warnings; 2 invalid.
"""

_COLUMNS: Final = ("name", "transport", "target", "prefix", "share")


def check(
    config: Annotated[Path, Parameter(name="CONFIG", help="Configuration file: `mcpServers` in JSON, or TOML.")],
    /,
    *,
    json: Annotated[
        bool, Parameter(name="--json", negative="", show_default=False, help="Print JSON instead of text.")
    ] = False,
) -> int:
    """Validate a configuration file: print errors and warnings with their lines, and the servers. Starts nothing."""
    try:
        configuration = read_configuration(config.expanduser())
    except BadConfiguration as error:
        found = Configuration(file=config, warnings=error.warnings)
        _tell(found, error.mistakes, is_json=json)
        return Exit.USAGE
    _tell(configuration, (), is_json=json)
    return Exit.FINE


def _tell(configuration: Configuration, mistakes: Sequence[Mistake], *, is_json: bool) -> None:
    if is_json:
        sys.stdout.write(json_text.dumps(_told(configuration, mistakes), indent=2) + "\n")
        return
    screen = Screen()
    for mistake in sorted((*mistakes, *configuration.warnings), key=lambda one: one.line or 0):
        screen.say(str(mistake), style="yellow" if mistake.is_warning else "red")
    if not mistakes:
        _show(configuration.backends)


def _show(backends: Sequence[BackendSpec]) -> None:
    console = Console()
    rows = [[clean(cell).replace("\n", " ").replace("\t", " ") for cell in _cells(spec)] for spec in backends]
    if not console.is_terminal:
        sys.stdout.writelines("\t".join(row) + "\n" for row in rows)
        return
    table = Table()
    for column in _COLUMNS:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _cells(spec: BackendSpec) -> tuple[str, ...]:
    return spec.name, spec.transport, spec.shown, spec.prefix, spec.settings.share


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
