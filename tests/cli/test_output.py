"""What is shown of a server's words: as they are, whatever they would mean to the library that draws them."""

import io
import json
import re
from typing import Final

import pytest
from rich.console import Console

from callboard import Server
from callboard.actors.changes import ResourceUpdated
from callboard.cli.output import Listing, ResultPrinter
from callboard.cli.screen import Screen
from callboard.cli.terminal import Terminal
from callboard.client import connect
from callboard.codecs.revisions import (
    LATEST,
    CallToolResult,
    JSONValue,
    LoggingMessageNotificationParams,
    ProgressNotificationParams,
    Resource,
    TextContent,
    Tool,
)

WORDS: Final = [
    "\\[/red]x",
    "\\[red]x",
    "[/]",
    "app:id:7",
    "a :warning: b",
    "ends with \\",
    "[link=http://evil]x[/link]",
]
words = pytest.mark.parametrize("text", WORDS)


def paper(width: int = 200, *, is_terminal: bool = True) -> Console:
    return Console(file=io.StringIO(), force_terminal=is_terminal, width=width, no_color=True, color_system=None)


def on(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@words
async def test_a_table_shows_names_and_descriptions_as_they_are(text: str) -> None:
    console = paper()
    listing = Listing(
        tools=(Tool(name="t", input_schema={"type": "object"}, description=text),),
        resources=(Resource(name="r", uri=text),),
    )
    async with connect(Server("x", version="1", instructions=text)) as client:
        ResultPrinter(LATEST, console=console).listing(client, listing)
    assert on(console).count(text) == 3


async def test_a_table_says_what_its_columns_are() -> None:
    console = paper()
    listing = Listing(
        tools=(Tool(name="t", input_schema={"type": "object"}),),
        resources=(Resource(name="r", uri="x://r", mime_type="text/plain"),),
    )
    async with connect(Server("x", version="1")) as client:
        ResultPrinter(LATEST, console=console).listing(client, listing)
    headings = [re.split(r" +┃ +", line.strip("┃ ")) for line in on(console).splitlines() if line.startswith("┃")]
    assert headings == [["name", "arguments", "description"], ["uri", "type", "description"]]


@words
def test_whatever_is_said_beside_the_result_is_shown_as_it_is(text: str) -> None:
    console = paper()
    screen = Screen(console=console)
    screen.say(text)
    screen.log(LoggingMessageNotificationParams(level="info", data=text))
    Terminal(console).say(text)
    assert on(console).count(text) == 3


@words
@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_shown_as_it_is(text: str, is_terminal: bool) -> None:
    console = paper(is_terminal=is_terminal)
    with Screen(console=console) as screen:
        screen.progress(ProgressNotificationParams(progress_token=1, progress=1, total=2, message=text), "tool")
    assert text in on(console)


def test_progress_at_a_terminal_where_nothing_moves_is_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    console = paper()
    with Screen(console=console) as screen:
        for number in (1, 2):
            screen.progress(ProgressNotificationParams(progress_token=1, progress=number, total=2), "tool")
    assert on(console) == "tool: 1/2\ntool: 2/2\n"


def test_a_line_of_progress_in_a_pipe_and_a_page_to_visit_are_not_broken() -> None:
    console = paper(40, is_terminal=False)
    Screen(console=console).progress(ProgressNotificationParams(progress_token=1, progress=1, message="x " * 40), "t")
    Terminal(console).say(f"https://example.com/{'a' * 100}")
    assert len(on(console).splitlines()) == 2


def test_json_at_a_terminal_commands_nothing_and_is_still_json() -> None:
    console = paper(40)
    said = "a\u009b31mb\u202ec\x1b[2J\n\U000e0041 ü 世界 " + "long " * 20
    ResultPrinter(LATEST, is_json=True, console=console).called(CallToolResult(content=[TextContent(text=said)]))
    shown = on(console)
    assert not {"\u009b", "\u202e", "\x1b", "\U000e0041"} & set(shown)
    assert "ü 世界" in shown
    assert json.loads(shown)["content"][0]["text"] == said


@pytest.mark.finding("security-24")
@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\t", "\v", "\x85", "\u2028"])
async def test_a_name_begins_no_row_of_its_own(end: str, is_terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    forged = f"real{end}tool{end}forged"
    schema: dict[str, JSONValue] = {"type": "object", "properties": {forged: {}}}
    listing = Listing(
        tools=[Tool(name=forged, description=f"a{end}b", input_schema=schema)],
        resources=[Resource(uri=f"x://{forged}", name=forged, mime_type=forged)],
    )
    console = paper(is_terminal=is_terminal)
    async with connect(Server("s")) as client:
        ResultPrinter(LATEST, console=console).listing(client, listing)
    ResultPrinter(LATEST, console=console).changed(ResourceUpdated(f"x://{forged}"))
    assert isinstance(console.file, io.StringIO)
    lines = (console.file.getvalue() + capsys.readouterr().out).splitlines()
    assert not any(re.match(r"\W*(tool|forged)\W*forged", line) for line in lines)
    assert sum("forged" in line for line in lines) == 3
