"""`callboard approve`: the operator's word that a tool or skill may be what it is now."""

import json as json_text
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import attrs
from cyclopts import App, Parameter

from callboard.broker.pins import PATIENCE, Pins, Waiting
from callboard.cli.approve_call import call, calls
from callboard.cli.codes import Exit
from callboard.cli.serve_flags import FLAG, Json
from callboard.errors import CannotServe
from callboard.supervisor.printable import clean

APPROVE_EXAMPLES: Final = """\
Examples:

  callboard approve servers.toml --list              approve nothing
  callboard approve servers.toml weather forecast    one tool of one server
  callboard approve servers.toml weather             all of one server
  callboard approve servers.toml                     all of all servers
  callboard approve servers.toml office skill://pdf/SKILL.md   one skill
  callboard approve calls                            list calls that wait
  callboard approve call 5f0c2b6a9d31                let one of them begin

A server with `pin = true` in the configuration is pinned: its new and changed
tools and skills are withheld until approved. A running broker notices within
seconds.

Exit codes: 0 approved, or nothing to approve; 2 no such file, server,
tool or skill.
"""

_SHOWN: Final = 12


def approve(
    config: Annotated[Path, Parameter(name="CONFIG", help="Configuration file; the pins are stored beside it.")],
    server: Annotated[str | None, Parameter(name="SERVER", help="Approve only what this server has.")] = None,
    tool: Annotated[
        str | None,
        Parameter(name="TOOL", help="Approve only this tool or skill, by its name or URI at the server."),
    ] = None,
    /,
    *,
    list_: Annotated[
        bool, FLAG, Parameter(name="--list", help="List what waits for approval; approve nothing.")
    ] = False,
    json: Json = False,
) -> int:
    """Approve new or changed tools and skills of pinned servers."""
    config = config.expanduser()
    if not config.is_file():
        raise CannotServe(f"{config}: no such file")
    pins = Pins.beside(config)
    waiting = pins.waiting(server, tool)
    if server is not None and not waiting:
        _check_known(pins, server, tool)
    if not list_ and waiting:
        for one in waiting:
            pins.settle(one)
        try:
            pins.save(are_ours=True, patience=PATIENCE)
        except OSError as error:
            raise CannotServe(f"{pins.file}: {error.strerror or error}") from None
    _tell(waiting, is_approved=not list_, is_json=json)
    return Exit.FINE


def _check_known(pins: Pins, server: str, tool: str | None) -> None:
    """Raises `CannotServe` for an unknown server, tool or skill: probably a typo."""
    known = pins.known()
    if server not in known:
        raise CannotServe(f"{pins.file}: no pinned server {server[:64]!r}; pinned: {', '.join(known) or 'none'}")
    if tool is not None and tool not in known[server]:
        raise CannotServe(f"{pins.file}: {server} has no tool or skill {tool[:128]!r}")


def _tell(waiting: Sequence[Waiting], *, is_approved: bool, is_json: bool) -> None:
    if is_json:
        told = {"approved" if is_approved else "waiting": [attrs.asdict(one) for one in waiting]}
        sys.stdout.write(json_text.dumps(told) + "\n")
        return
    for one in waiting:
        words = (one.server, one.tool, one.pinned[:_SHOWN], one.found[:_SHOWN])
        sys.stdout.write("\t".join(clean(word) for word in words) + "\n")
    if not waiting:
        sys.stdout.write("nothing to approve\n")


APP: Final = App(name="approve", help_epilogue=APPROVE_EXAMPLES)
APP.default(approve)
APP.command(call)
APP.command(calls)
