"""Pictures in terminals: which can show them, and what they are sent."""

import base64
import re

import pytest

from callboard.cli.pictures import CHUNK, MAX_SHOWN, drawn, protocol_of

PNG = b"\x89PNG\r\n\x1a\n" + bytes(10_000)


@pytest.mark.parametrize(
    ("environment", "protocol"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, "kitty"),
        ({"TERM": "xterm-ghostty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm"),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, "iterm"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "iterm"),
        ({"TERM": "xterm-256color"}, None),
        ({"TERM": "dumb", "KITTY_WINDOW_ID": "1"}, None),
        ({"TERM": "screen-256color", "TERM_PROGRAM": "iTerm.app"}, None),
        ({"TERM": "xterm-kitty", "TMUX": "tmux,1,0"}, None),
        ({}, None),
    ],
)
def test_a_terminal_is_known_by_its_variables(environment: dict[str, str], protocol: str | None) -> None:
    assert protocol_of(environment) == protocol


def test_kitty_gets_a_picture_in_pieces_that_together_are_the_picture() -> None:
    shown = drawn(PNG, "image/png", "kitty")
    assert shown is not None
    pieces = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", shown)
    assert base64.b64decode("".join(data for _, data in pieces)) == PNG
    assert all(len(data) <= CHUNK for _, data in pieces)
    assert [head.rpartition("m=")[2] for head, _ in pieces] == ["1"] * (len(pieces) - 1) + ["0"]
    assert pieces[0][0].startswith("a=T,f=100,")


def test_iterm_gets_a_picture_whole() -> None:
    shown = drawn(PNG, "image/jpeg", "iterm")
    assert shown is not None
    head, _, data = shown.partition(":")
    assert head == f"\x1b]1337;File=inline=1;size={len(PNG)};preserveAspectRatio=1"
    assert base64.b64decode(data.removesuffix("\x07\n")) == PNG


def test_a_picture_that_a_terminal_cannot_show_is_not_sent() -> None:
    assert drawn(b"\xff\xd8jpeg", "image/png", "kitty") is None
    assert drawn(PNG, "image/svg+xml", "iterm") is None
    assert drawn(b"", "image/png", "iterm") is None
    assert drawn(PNG + bytes(MAX_SHOWN), "image/png", "kitty") is None
