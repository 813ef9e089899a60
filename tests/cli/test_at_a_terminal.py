"""The commands as a person meets them: real commands at a real terminal."""

import pytest

from tests.at_terminal import CTRL_C, at_terminal
from tests.cli.test_commands import APP, needs_terminal


@needs_terminal
async def test_a_person_sees_tables() -> None:
    async with at_terminal("list", APP) as terminal:
        assert await terminal.wait_ended() == 0
        assert "curious 1.2.3 (2026-07-28)" in terminal.screen
        assert "arguments" in terminal.screen
        assert "text [times]" in terminal.screen
        assert "│" in terminal.screen


@needs_terminal
async def test_a_person_sees_a_bar_move() -> None:
    async with at_terminal("call", APP, "count", "to=4", "pause=0.2") as terminal:
        await terminal.wait_shown("step 2")
        await terminal.wait_shown("step 3")
        assert await terminal.wait_ended() == 0
        assert "counted to 4" in terminal.screen
        assert "━" in terminal.screen


@needs_terminal
@pytest.mark.requirement("M276", "M277", "M278", "L124", "L125", "L126")
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_person_fills_in_a_form_looks_at_it_changes_it_and_sends_it(revision: str) -> None:
    async with at_terminal("call", APP, "greet", "--revision", revision) as terminal:
        await terminal.wait_shown("curious asks: Who are you?")
        await terminal.wait_shown("name:")
        await terminal.type("A")
        await terminal.wait_shown("at least 2 characters")
        await terminal.type("Ada")
        await terminal.wait_shown("age:")
        await terminal.type("old")
        await terminal.wait_shown("must be a whole number")
        await terminal.type("200")
        await terminal.wait_shown("at most 150")
        await terminal.type("36")
        await terminal.wait_shown("member [no]:")
        await terminal.type("")
        await terminal.wait_shown("2. green")
        await terminal.wait_shown("colour [green]:")
        await terminal.type("1")
        await terminal.wait_shown("name: Ada; age: 36; member: no; colour: red")
        await terminal.type("edit")
        await terminal.wait_shown("name [Ada]:")
        await terminal.type("")
        await terminal.wait_shown("age [36]:")
        await terminal.type("37")
        await terminal.wait_shown("member [no]:")
        await terminal.type("yes")
        await terminal.wait_shown("colour [red]:")
        await terminal.type("")
        await terminal.wait_shown("Send this?")
        await terminal.type("y")
        assert await terminal.wait_ended() == 0
        assert "Ada is 37, a member, and likes red" in terminal.screen


@needs_terminal
@pytest.mark.parametrize(("word", "said"), [("/decline", "declined"), ("/cancel", "dismissed")])
async def test_a_person_may_decline_or_leave_it_open(word: str, said: str) -> None:
    async with at_terminal("call", APP, "greet") as terminal:
        await terminal.wait_shown("name:")
        await terminal.type(word)
        assert await terminal.wait_ended() == 1
        assert said in terminal.screen


@needs_terminal
@pytest.mark.requirement("M279", "M301", "L127", "L156")
async def test_a_page_is_shown_in_full_and_not_opened_without_a_yes() -> None:
    url = "http://example.org/sign-in?state=" + "x" * 100
    async with at_terminal("call", APP, "sign_in", f"url={url}") as terminal:
        await terminal.wait_shown("curious asks you to visit a page: Sign in to go on")
        await terminal.wait_shown(url)
        await terminal.wait_shown("the connection is not encrypted")
        await terminal.wait_shown("Open example.org in your browser?")
        await terminal.type("")
        await terminal.wait_shown("Open example.org in your browser?")
        await terminal.type("d")
        assert await terminal.wait_ended() == 1


@needs_terminal
async def test_what_a_server_says_cannot_command_the_terminal() -> None:
    async with at_terminal("call", APP, "shout") as terminal:
        assert await terminal.wait_ended() == 0
        assert "\x1b[2J" not in terminal.raw
        assert "\x07" not in terminal.raw
        assert "gone" in terminal.raw


@needs_terminal
async def test_ctrl_c_ends_a_form() -> None:
    async with at_terminal("call", APP, "greet") as terminal:
        await terminal.wait_shown("name:")
        await terminal.press(CTRL_C)
        assert await terminal.wait_ended() == 130
        assert "Traceback" not in terminal.screen


@needs_terminal
async def test_bytes_are_not_thrown_at_a_terminal() -> None:
    async with at_terminal("read", APP, "curious://bytes") as terminal:
        assert await terminal.wait_ended() == 0
        assert "[application/octet-stream, 4 bytes]" in terminal.screen


async def test_run_without_a_transport_says_that_it_waits_for_a_client() -> None:
    async with at_terminal("run", APP) as terminal:
        await terminal.wait_shown("callboard: waiting for a client on standard input; for a URL: --http 8000")
        await terminal.press(CTRL_C)
        assert await terminal.wait_ended() in (0, 130)
