"""The commands that speak to a server: `list`, `call`, `read`, `prompt` and `listen`."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Final

from cyclopts import App, Parameter
from msgspec import UNSET

from callboard.cli.arguments import read_arguments, read_texts
from callboard.cli.client_run import Talk, TalkOptions, speak
from callboard.cli.codes import Exit
from callboard.cli.input_files import checked_utf8
from callboard.cli.media_files import MediaFiles, SaveFlags
from callboard.cli.output import Listing
from callboard.codecs.bridge.results import BACKEND
from callboard.codecs.revisions import Model, Tool, declares
from callboard.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    BadAnswer,
    ConnectionLost,
    RequestFailed,
    ServerRefused,
)

Target = Annotated[
    str,
    Parameter(
        name="TARGET",
        help="URL, FILE.py:NAME or FILE.json#NAME. For a stdio server, omit it and end with `-- COMMAND`.",
    ),
]
_UNKNOWN: Final = (INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND, INTERNAL_ERROR)
"""Codes with which servers answer the call of a tool that they do not have."""

_PLAIN: Final = TalkOptions()
_NO_FILES: Final = SaveFlags()


def list_(target: Target, /, *, options: TalkOptions = _PLAIN) -> int:
    """List the tools, resources, resource templates and prompts of a server."""

    async def action(talk: Talk) -> Exit:
        client, offered = talk.client, talk.client.server_capabilities
        failures: list[RequestFailed] = []
        found: dict[str, Any] = {}
        for name, capability, read in (
            ("tools", offered.tools, client.tools),
            ("resources", offered.resources, client.resources),
            ("templates", offered.resources, client.templates),
            ("prompts", offered.prompts, client.prompts),
        ):
            if capability is UNSET:
                continue
            try:
                found[name] = await read()
            except ConnectionLost:
                raise
            except RequestFailed as error:  # it costs this list alone
                failures.append(error)
                if not isinstance(error, ServerRefused) or error.error_code != METHOD_NOT_FOUND:
                    talk.screen.say(f"callboard: cannot list {name}: {error}")
        if failures and not found:
            raise failures[0]
        talk.output.listing(client, Listing(**found))
        return Exit.FINE

    return speak(target, options, action)


def call(
    target: Target,
    tool: Annotated[str, Parameter(name="TOOL", help="The name of the tool.")],
    /,
    *arguments: Annotated[
        str,
        Parameter(
            name="ARGUMENTS",
            help="key=value for strings, key:=json for any other type; key=@FILE and key:=@FILE read a file, @- reads "
            "standard input.",
        ),
    ],
    args: Annotated[
        str | None,
        Parameter(show_default=False, help="All arguments as a JSON object, or @FILE, or @-. ARGUMENTS go before it."),
    ] = None,
    task: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="Do not wait: let it go on as a task, and print its id."),
    ] = False,
    files: SaveFlags = _NO_FILES,
    options: TalkOptions = _PLAIN,
) -> int:
    """Call a tool. Shows progress, and asks its questions at the terminal if there is one."""

    async def action(talk: Talk) -> Exit:
        files.check(is_json=options.json)
        talk.output.media = MediaFiles(files, tool)
        checked_utf8(tool, "tool")
        listed = await _tools(talk)
        near = [] if tool in listed else get_close_matches(tool, listed, n=1)  # it is called all the same: lists err
        given = read_arguments(arguments, listed.get(tool), args)
        talk.elicitation.behind = _backend_of(listed.get(tool))
        if task:
            return await _begin(talk, tool, given)
        calling = talk.client.call_with(tool, given)
        try:
            async with calling:
                async for report in calling.progress:
                    talk.screen.progress(report, tool)
        except ServerRefused as error:
            for name in near if error.error_code in _UNKNOWN else ():
                error.add_note(f"did you mean {name!r}?")
            raise
        talk.screen.clear()
        talk.output.called(calling.result)
        if calling.result.is_error is not True:
            return Exit.FINE
        for name in near:
            talk.screen.say(f"callboard: did you mean {name!r}?")
        return Exit.TOOL_FAILED

    return speak(target, options, action)


async def _begin(talk: Talk, tool: str, given: Mapping[str, Any]) -> Exit:
    """Call a tool as a task; a server that answers at once is taken at its word."""
    begun = await talk.client.call_with(tool, given, task=True)
    if begun.id is not None:
        talk.output.task(begun)
        return Exit.FINE
    result = await begun
    talk.output.called(result)
    return Exit.TOOL_FAILED if result.is_error is True else Exit.FINE


async def _tools(talk: Talk) -> Mapping[str, Tool]:
    """The tools by name, as far as the server tells: one that cannot be listed may still be called."""
    if talk.client.server_capabilities.tools is UNSET:
        return {}
    try:
        return {tool.name: tool for tool in await talk.client.tools()}
    except (ServerRefused, BadAnswer):
        return {}


def _backend_of(tool: Tool | None) -> str | None:
    """The server behind a broker that has the tool, by what the broker says of it."""
    named = None if tool is None or tool.meta is UNSET else tool.meta.get(BACKEND)
    return named[:100] if isinstance(named, str) else None


def read(
    target: Target,
    uri: Annotated[str, Parameter(name="URI", help="URI of the resource.")],
    /,
    *,
    files: SaveFlags = _NO_FILES,
    options: TalkOptions = _PLAIN,
) -> int:
    """Read a resource. Prints text; binary contents go to a pipe unchanged."""

    async def action(talk: Talk) -> Exit:
        files.check(is_json=options.json)
        talk.output.media = MediaFiles(files)
        checked_utf8(uri, "URI")
        talk.output.read(await talk.client.read(uri))
        return Exit.FINE

    return speak(target, options, action)


def prompt(
    target: Target,
    name: Annotated[str, Parameter(name="NAME", help="Name of the prompt.")],
    /,
    *arguments: Annotated[str, Parameter(name="ARGUMENTS", help="key=value, or key=@FILE.")],
    options: TalkOptions = _PLAIN,
) -> int:
    """Get a prompt, and print its messages."""

    async def action(talk: Talk) -> Exit:
        checked_utf8(name, "name")
        talk.output.prompted(await talk.client.prompt_with(name, read_texts(arguments)))
        return Exit.FINE

    return speak(target, options, action)


_FLAG: Final = Parameter(negative="", show_default=False)


def listen(
    target: Target,
    /,
    *uris: Annotated[str, Parameter(name="URIS", help="Resources to subscribe to.")],
    tools: Annotated[bool, _FLAG, Parameter(help="Print changes to the list of tools.")] = False,
    prompts: Annotated[bool, _FLAG, Parameter(help="Print changes to the list of prompts.")] = False,
    resources: Annotated[
        list[str] | None,
        Parameter(negative="", consume_multiple=True, help="Print changes to the list of resources."),
    ] = None,
    options: TalkOptions = _PLAIN,
) -> int:
    """Print a line for every change at a server, until Ctrl-C. Without any flag, of all lists."""
    watched = (*uris, *(resources or ()))
    lists = resources is not None and not resources
    wanted = {"tools": tools, "prompts": prompts, "resources": lists}
    everything = not (any(wanted.values()) or watched)

    async def action(talk: Talk) -> Exit:
        of = _told_of(talk.client.server_capabilities) if everything else wanted
        async with talk.client.listen(
            tools=of["tools"], prompts=of["prompts"], lists=of["resources"], resources=watched
        ) as changes:
            talk.screen.ready("listening; press Ctrl-C to stop")
            async for change in changes:
                talk.output.changed(change)
        return Exit.FINE

    return speak(target, options, action, is_endless=True)


def _told_of(offered: Model) -> Mapping[str, bool]:
    """The lists of whose changes a server tells; all of them, if it says of none."""
    told = {name: declares(offered, f"{name}.list_changed") for name in ("tools", "prompts", "resources")}
    return told if any(told.values()) else dict.fromkeys(told, True)


EXIT_CODES: Final = """
Exit codes: 0 success; 1 the tool returned an error; 2 wrong arguments; 3 cannot
connect; 4 the server returned an error, or requires a login; 5 timed out, or
connection lost; 6 the output cannot be written; 130 Ctrl-C.
"""

COMMANDS: Final[Mapping[Callable[..., Any], str]] = {
    list_: """\
Examples:

  callboard list http://127.0.0.1:8000/mcp
  callboard list ws://127.0.0.1:8000/mcp --json
  callboard list examples/weather.py:server   a server in a Python file
  callboard list ~/.config/mcp.json#weather   an entry of a configuration file
  callboard list -- npx -y @modelcontextprotocol/server-everything
  callboard list https://mcp.example.com/mcp --auth browser    log in first
"""
    + EXIT_CODES,
    call: """\
Examples:

  callboard call http://127.0.0.1:8000/mcp forecast city=Oslo days=3
  callboard call examples/weather.py:server forecast city=Oslo --json
  callboard call http://127.0.0.1:8000/mcp plot 'points:=[[1, 2], [3, 4]]'
  callboard call URL scan photo=@cat.jpg 'options:=@options.json'
  callboard call URL plot --args '{"points": [[1, 2]]}' -o plot.png
  make-points | callboard call URL plot --args @- --save pictures
  callboard call URL summarize text=@- --sampling @model.py -v < notes.txt
  callboard call forecast city=Oslo --timeout 10 -- python weather.py
  callboard call http://127.0.0.1:8000/mcp compute seconds=60 --task
  callboard call https://mcp.example.com/mcp whoami --auth browser
  callboard call https://mcp.example.com/mcp whoami --auth machine \\
    --client-id me --client-secret-env MY_SECRET
  callboard call https://mcp.example.com/mcp whoami \\
    --header 'Authorization: Bearer ...'
"""
    + EXIT_CODES,
    read: """\
Examples:

  callboard read http://127.0.0.1:8000/mcp weather://oslo/now
  callboard read http://127.0.0.1:8000/mcp test://static-binary > picture.png
  callboard read http://127.0.0.1:8000/mcp test://static-binary -o picture.png
  callboard read file:///tmp/notes.txt -- \\
    npx -y @modelcontextprotocol/server-filesystem /tmp
"""
    + EXIT_CODES,
    prompt: """\
Examples:

  callboard prompt examples/weather.py:server briefing city=Oslo
  callboard prompt briefing city=Oslo --json -- python weather.py
"""
    + EXIT_CODES,
    listen: """\
Examples:

  callboard listen http://127.0.0.1:8000/mcp                       every list
  callboard listen http://127.0.0.1:8000/mcp --tools --prompts
  callboard listen http://127.0.0.1:8000/mcp weather://oslo/now    what is in it
  callboard listen http://127.0.0.1:8000/mcp --json | jq .
"""
    + EXIT_CODES,
}
"""Each with what its help ends with."""


def _app(command: Callable[..., Any]) -> App:
    app = App(name=command.__name__.rstrip("_"), help_epilogue=COMMANDS[command])
    app.default(command)
    return app


LIST, CALL, READ, PROMPT, LISTEN = map(_app, COMMANDS)
