"""The command that forgets a login."""

import json as json_
from typing import Annotated, Final

import trio
from cyclopts import Parameter

from callboard.commands.arguments import BadArgument
from callboard.commands.codes import Exit
from callboard.commands.login import store_of
from callboard.commands.screen import Screen
from callboard.commands.speaking import complain
from callboard.errors import CallboardError
from callboard.mcp_servers import Remote, is_entry, read_entry

LOGOUT_EXAMPLES: Final = """\
Examples:

  callboard logout https://mcp.example.com/mcp
  callboard logout ~/.config/mcp.json#weather
  callboard logout https://mcp.example.com/mcp --client-id me    for a machine

Exit codes: 0 nothing is kept any more; 2 wrong arguments; 3 there is no such
entry; 4 it cannot be forgotten.
"""


def logout(
    target: Annotated[str, Parameter(name="TARGET", help="The URL of the server, or FILE.json#NAME.")],
    /,
    *,
    client_id: Annotated[str | None, Parameter(help="Forget what a machine got by this client.")] = None,
    json: Annotated[bool, Parameter(negative="", show_default=False, help="Print JSON instead of text.")] = False,
) -> int:
    """Forget the tokens that a login at a server left. What the server knows of them is its own."""
    screen = Screen(is_quiet=json)
    try:
        url = _url(target)
        trio.run(_forget, url, client_id)
    except (CallboardError, BadArgument) as error:
        return complain(screen, error)
    forgotten = json_.dumps({"forgotten": url}) if json else f"nothing is kept any more of a login at {url}"
    print(forgotten)  # noqa: T201  # the output
    return Exit.FINE


async def _forget(url: str, machine: str | None) -> None:
    from callboard.oauth import OAuth  # it takes time to load

    await OAuth(store=store_of(machine)).forget(url)


def _url(target: str) -> str:
    named = read_entry(target) if is_entry(target) else None
    url = named.url if isinstance(named, Remote) else target
    if "://" not in url:
        raise BadArgument(f"{target[:200]!r} is no URL: nobody logs in elsewhere")
    return url
