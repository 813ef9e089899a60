"""`callboard describe` and `callboard complete`: what a tool or prompt takes, and the values that it suggests."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Final

from cyclopts import App, Parameter
from msgspec import UNSET

from callboard.cli.arguments import BadArgument, read_texts
from callboard.cli.client import EXIT_CODES, Target
from callboard.cli.client_run import Talk, TalkOptions, speak
from callboard.cli.codes import Exit
from callboard.cli.input_files import checked_utf8
from callboard.cli.output import ResultPrinter
from callboard.cli.schema_words import Argument, arguments_of, words
from callboard.codecs.revisions import Prompt, Tool, write
from callboard.errors import METHOD_NOT_FOUND, ServerRefused

_PLAIN: Final = TalkOptions()


def describe(
    target: Target,
    names: Annotated[
        tuple[str, ...], Parameter(name="NAME", show_default=False, help="Tools or prompts. Default: all tools.")
    ] = (),
    /,
    *,
    options: TalkOptions = _PLAIN,
) -> int:
    """Describe tools and prompts: their arguments with types, defaults and allowed values, and what they return."""

    async def action(talk: Talk) -> Exit:
        wanted = [checked_utf8(name, "name") for name in names]
        tools = {tool.name: tool for tool in await _listed(talk, "tools")}
        prompts = {}
        if any(name not in tools for name in wanted):
            prompts = {prompt.name: prompt for prompt in await _listed(talk, "prompts")}
        found = [tools.get(name) or prompts.get(name) or _unknown(name, [*tools, *prompts]) for name in wanted]
        chosen: Sequence[Tool | Prompt] = found if wanted else list(tools.values())
        if options.json:
            talk.output.json([write(talk.client.revision, one) for one in chosen])
            return Exit.FINE
        for at, one in enumerate(chosen):
            if at:
                talk.output.line("")
            _show(talk.output, one)
        return Exit.FINE

    return speak(target, options, action)


async def _listed(talk: Talk, kind: str) -> Sequence[Any]:
    offered = talk.client.server_capabilities
    if (offered.tools if kind == "tools" else offered.prompts) is UNSET:
        return ()
    try:
        return await (talk.client.tools() if kind == "tools" else talk.client.prompts())
    except ServerRefused as error:
        if error.error_code == METHOD_NOT_FOUND:
            return ()
        raise


def _unknown(name: str, known: Sequence[str]) -> Tool:
    near = get_close_matches(name, known, n=1)
    raise BadArgument(f"no tool or prompt {name[:100]!r}" + (f"; did you mean {near[0]!r}?" if near else ""))


def _show(output: ResultPrinter, one: Tool | Prompt) -> None:
    output.heading(one.name, _notes(one))
    if one.title:
        output.line(f"  {one.title}")
    for line in (one.description or "").strip().splitlines():
        output.line(f"  {line}".rstrip())
    arguments = list(_arguments(one))
    output.table(("argument", "type", "default", "description"), [_cells(argument) for argument in arguments])
    if not arguments:
        output.line("  no arguments")
    if isinstance(one, Tool) and one.output_schema is not UNSET:
        output.line(f"  returns {words(one.output_schema, one.output_schema)}")


def _arguments(one: Tool | Prompt) -> Iterable[Argument]:
    if isinstance(one, Tool):
        return arguments_of(one.input_schema)
    arguments = () if one.arguments is UNSET else one.arguments
    return [Argument(each.name, "string", each.required is True, None, each.description or "") for each in arguments]


def _cells(argument: Argument) -> tuple[str, str, str, str]:
    default = "required" if argument.is_required else "" if argument.default is None else argument.default
    return argument.name, argument.type, default, argument.about


_HINTS: Final = {
    "read_only_hint": "read-only",
    "destructive_hint": "destructive",
    "idempotent_hint": "idempotent",
    "open_world_hint": "open world",
}


def _notes(one: Tool | Prompt) -> str:
    """What a tool says of itself: hints, which a server may get wrong."""
    if isinstance(one, Prompt) or one.annotations is UNSET:
        return "prompt" if isinstance(one, Prompt) else ""
    return ", ".join(word for hint, word in _HINTS.items() if getattr(one.annotations, hint, None) is True)


def complete(
    target: Target,
    of: Annotated[str, Parameter(name="REF", help="Name of a prompt, or a resource template: weather://{city}/now.")],
    argument: Annotated[str, Parameter(name="ARGUMENT", help="Name of its argument; or key=value.")],
    value: Annotated[str, Parameter(name="VALUE", help="The beginning that was typed.")] = "",
    /,
    *settled: Annotated[str, Parameter(name="SETTLED", help="Arguments that are settled already: key=value.")],
    options: TalkOptions = _PLAIN,
) -> int:
    """Print the values that a server suggests for an argument of a prompt or resource template."""

    async def action(talk: Talk) -> Exit:
        name, begin = argument.split("=", 1) if "=" in argument and not value else (argument, value)
        for text in (of, argument, value):
            checked_utf8(text, "argument")
        found = await talk.client.complete(of, name, begin, settled=read_texts(settled) or None)
        if options.json:
            talk.output.json({"values": list(found), "total": found.total, "has_more": found.has_more})
            return Exit.FINE
        for one in found:
            talk.output.line(one)
        if found.has_more:
            talk.screen.ready(f"and more{'' if found.total is None else f', {found.total:,} in all'}")
        return Exit.FINE

    return speak(target, options, action)


DESCRIBE: Final = App(
    name="describe",
    help_epilogue="""\
Examples:

  callboard describe http://127.0.0.1:8000/mcp             all tools
  callboard describe http://127.0.0.1:8000/mcp forecast    one
  callboard describe examples/weather.py:server forecast --json
  callboard describe forecast -- python weather.py
"""
    + EXIT_CODES,
)
DESCRIBE.default(describe)

COMPLETE: Final = App(
    name="complete",
    help_epilogue="""\
Examples:

  callboard complete http://127.0.0.1:8000/mcp briefing city Os
  callboard complete http://127.0.0.1:8000/mcp 'weather://{city}/now' city O
  callboard complete URL travel to B from=Oslo             with settled ones
"""
    + EXIT_CODES,
)
COMPLETE.default(complete)
