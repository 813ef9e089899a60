"""The commands that log in at a server, and that forget it."""

import json as json_
from typing import Annotated, Final

import attrs
import trio
from cyclopts import App, Parameter

from callboard.cli.arguments import BadArgument
from callboard.cli.client_run import Talk, TalkOptions, speak
from callboard.cli.codes import Exit
from callboard.cli.complaints import complain
from callboard.cli.login import store_of
from callboard.cli.screen import Screen
from callboard.config.entry import Remote, is_entry, read_entry
from callboard.errors import CallboardError

LOGIN_EXAMPLES: Final = """\
Examples:

  callboard login https://mcp.example.com/mcp                    in a browser
  callboard login https://mcp.example.com/mcp --auth headless    on a machine
                                                                 without one
  callboard call https://mcp.example.com/mcp whoami    uses the stored tokens
  callboard logout https://mcp.example.com/mcp

Exit codes: 0 logged in; 2 wrong arguments; 3 cannot connect; 4 not
authorized; 5 timed out; 130 Ctrl-C.
"""

LOGOUT_EXAMPLES: Final = """\
Examples:

  callboard logout https://mcp.example.com/mcp
  callboard logout ~/.config/mcp.json#weather
  callboard logout https://mcp.example.com/mcp --client-id me    for a machine

Exit codes: 0 the tokens are deleted; 2 wrong arguments; 3 no such
entry; 4 the tokens cannot be deleted.
"""


Place = Annotated[str, Parameter(name="TARGET", help="The URL of the server, or FILE.json#NAME.")]
_PLAIN: Final = TalkOptions()


def login(target: Place, /, *, options: TalkOptions = _PLAIN) -> int:
    """Log in to a server with OAuth, and store the tokens for later commands."""
    way = attrs.evolve(options, auth="browser") if options.auth == "kept" else options
    try:
        url = _url(target)
    except (CallboardError, BadArgument) as error:
        return complain(Screen(is_quiet=options.json), error, is_json=options.json)

    async def action(talk: Talk) -> Exit:
        await talk.client.ping()  # some accept any connection, and want a token at the first request
        is_kept = await _is_kept(url, way.client_id if way.auth == "machine" else None)
        said = f"logged in at {url}" if is_kept else f"{url} requires no login"
        print(json_.dumps({"url": url, "is_kept": is_kept}) if options.json else said)  # noqa: T201  # the output
        return Exit.FINE

    return speak(target, way, action)


async def _is_kept(url: str, machine: str | None) -> bool:
    from callboard.oauth.store import tokens_of

    return await store_of(machine).load(tokens_of(url)) is not None


def logout(
    target: Place,
    /,
    *,
    client_id: Annotated[
        str | None, Parameter(help="Delete the tokens of `--auth machine` for this client id.")
    ] = None,
    json: Annotated[bool, Parameter(negative="", show_default=False, help="Print JSON instead of text.")] = False,
) -> int:
    """Delete the stored tokens of a server. They are not revoked at the server."""
    screen = Screen(is_quiet=json)
    try:
        url = _url(target)
        trio.run(_forget, url, client_id)
    except (CallboardError, BadArgument) as error:
        return complain(screen, error, is_json=json)
    forgotten = json_.dumps({"forgotten": url}) if json else f"logged out: no tokens are stored for {url}"
    print(forgotten)  # noqa: T201  # the output
    return Exit.FINE


async def _forget(url: str, machine: str | None) -> None:
    from callboard.oauth import OAuth  # it takes time to load

    await OAuth(store=store_of(machine)).forget(url)


def _url(target: str) -> str:
    named = read_entry(target) if is_entry(target) else None
    url = named.url if isinstance(named, Remote) else target
    if "://" not in url:
        raise BadArgument(f"{target[:200]!r} is not a URL: only HTTP servers have a login")
    return url


LOGIN_APP: Final = App(name="login", help_epilogue=LOGIN_EXAMPLES)
LOGIN_APP.default(login)
LOGOUT_APP: Final = App(name="logout", help_epilogue=LOGOUT_EXAMPLES)
LOGOUT_APP.default(logout)
