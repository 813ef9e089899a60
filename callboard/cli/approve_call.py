"""`callboard approve call` and `callboard approve calls`: the operator's word that a call may begin."""

import sys
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from cyclopts import Parameter

from callboard.cli.admin_client import AdminClient
from callboard.cli.codes import Exit
from callboard.cli.serve_flags import FLAG, Json
from callboard.cli.top import Address, AdminToken, look
from callboard.cli.top_text import number, rows_of, span
from callboard.supervisor.printable import clean

_SHOWN: Final = ("id", "server", "tool", "principal", "digest")


def call(
    id_: Annotated[str, Parameter(name="ID", help="The call, as `callboard approve calls` names it.")],
    address: Address = None,
    /,
    *,
    deny: Annotated[bool, FLAG, Parameter(name="--deny", help="Refuse the call.")] = False,
    token_file: AdminToken = None,
) -> int:
    """Let a call begin that waits for an operator, or refuse it. Needs a server with --admin-actions."""

    async def act(client: AdminClient) -> Exit:
        await client.act("deny_call" if deny else "approve_call", id_)
        sys.stdout.write("denied\n" if deny else "approved\n")
        return Exit.FINE

    return look(address, token_file, act)


def calls(address: Address = None, /, *, json: Json = False, token_file: AdminToken = None) -> int:
    """List the calls that wait for an operator: id, server, tool, principal, digest, age and arguments."""

    async def act(client: AdminClient) -> Exit:
        rows = rows_of(await client.snapshot(), "waiting_calls")
        if json:
            sys.stdout.write(msgspec.json.encode({"waiting": rows}).decode() + "\n")
        else:
            sys.stdout.write("".join(f"{_line(row)}\n" for row in rows) or "no call waits\n")
        return Exit.FINE

    return look(address, token_file, act, is_json=json)


def _line(row: Mapping[str, Any]) -> str:
    more = number(row.get("more")) or 0
    said = f"{row.get('arguments', '')}{f' ({more:.0f} bytes more)' if more else ''}"
    words = [*(str(row.get(name, "")) for name in _SHOWN), span(number(row.get("age")) or 0), said]
    return "\t".join(clean(one).replace("\n", " ").replace("\t", " ") for one in words)
