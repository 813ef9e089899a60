"""Pictures in a terminal that can show them: kitty and its relatives, iTerm2 and its relatives."""

import base64
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

Protocol: TypeAlias = Literal["kitty", "iterm"]

MAX_SHOWN: Final = 8 * 1024 * 1024
"""Largest picture that is shown, in bytes: a terminal would be busy with a larger one for seconds."""

CHUNK: Final = 4096
"""Characters of base64 in one command of kitty's protocol, which allows no more."""

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_ITERM_KINDS: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/bmp", "image/tiff"})


def protocol_of(environment: Mapping[str, str]) -> Protocol | None:
    """The way in which the terminal takes pictures, by the variables that it sets; None if it has said nothing.

    A multiplexer (tmux, screen) in between passes none of them on.
    """
    terminal, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "")
    if environment.get("TMUX") or environment.get("STY") or terminal.startswith(("screen", "tmux", "dumb")):
        return None
    if "kitty" in terminal or "ghostty" in terminal or environment.get("KITTY_WINDOW_ID") or program == "ghostty":
        return "kitty"
    if program in ("iTerm.app", "WezTerm", "mintty", "vscode") or environment.get("LC_TERMINAL") == "iTerm2":
        return "iterm"
    return None


def drawn(data: bytes, kind: str, protocol: Protocol) -> str | None:
    """The command that shows a picture; None if this terminal cannot show such a one.

    Whatever the bytes are, they are base64 in the command, so they cannot end it.
    """
    if not data or len(data) > MAX_SHOWN:
        return None
    text = base64.b64encode(data).decode()
    if protocol == "iterm":
        if kind not in _ITERM_KINDS:
            return None
        return f"\x1b]1337;File=inline=1;size={len(data)};preserveAspectRatio=1:{text}\x07\n"
    if not data.startswith(_PNG):
        return None
    pieces = [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]
    heads = ["a=T,f=100,q=2,", *[""] * (len(pieces) - 1)]
    more = [1] * (len(pieces) - 1) + [0]
    return (
        "".join(f"\x1b_G{head}m={on};{piece}\x1b\\" for head, on, piece in zip(heads, more, pieces, strict=True)) + "\n"
    )
