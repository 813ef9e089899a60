"""The keyboard of `top`: bytes in, names of keys out; and a terminal that hands over each key at once."""

import codecs
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Final

import attrs
import trio

ESCAPE_TIME: Final = 0.05
"""Seconds after which an escape character that stands alone is the key of that name, and not the start of another."""

MAX_SEQUENCE: Final = 32
"""Bytes of one key. What is longer is none."""

READ_SIZE: Final = 1024

SUSPEND: Final = "suspend"

_NAMES: Final = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1bOC": "right",
    "\x1bOD": "left",
    "\x1b[5~": "pgup",
    "\x1b[6~": "pgdn",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1bOH": "home",
    "\x1bOF": "end",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x1a": SUSPEND,
}
_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~]|[^\[O\x1b])")
_BEGUN: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?")


@attrs.define(eq=False)
class KeyDecoder:
    """Turn what a terminal sends into keys: letters as they are, others by name. Unknown ones are left out."""

    _rest: str = attrs.field(default="", init=False)
    _decoder: codecs.IncrementalDecoder = attrs.field(
        factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"), init=False
    )

    @property
    def is_waiting(self) -> bool:
        """Whether a key has begun that the next byte may complete."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        text = self._rest + self._decoder.decode(data)
        self._rest = ""
        found: list[str] = []
        at = 0
        while at < len(text):
            if text[at] != "\x1b":
                found.append(text[at])
                at += 1
            elif match := _SEQUENCE.match(text, at):
                found.append(match[0])
                at = match.end()
            elif len(text) - at < MAX_SEQUENCE and _BEGUN.fullmatch(text, at):
                self._rest = text[at:]
                break
            else:
                found.append("esc")
                at += 1
        return [name for one in found if (name := _name(one))]

    def flush(self) -> list[str]:
        """What has begun stays as it is: a single escape character is a key."""
        rest, self._rest = self._rest, ""
        return ["esc"] if rest == "\x1b" else []


def _name(one: str) -> str:
    if one in _NAMES:
        return _NAMES[one]
    return one if one == "esc" or (len(one) == 1 and one.isprintable()) else ""


async def read_keys(descriptor: int, press: Callable[[str], None]) -> None:
    """Have each key pressed, until the terminal is gone."""
    decoder = KeyDecoder()
    while True:
        with trio.move_on_after(ESCAPE_TIME if decoder.is_waiting else inf) as waited:
            await trio.lowlevel.wait_readable(descriptor)
        if waited.cancelled_caught:
            keys = decoder.flush()
        else:
            try:
                data = os.read(descriptor, READ_SIZE)
            except OSError:  # the terminal was closed
                return
            if not data:
                return
            keys = decoder.feed(data)
        for key in keys:
            press(key)


@contextmanager
def keys_at_once(descriptor: int) -> Iterator[None]:
    """Have the terminal hand over keys one by one, and not show them; afterwards it is as it was.

    Ctrl-C stays a signal. Ctrl-Z becomes a key: the screen has to be left before the process stops.
    """
    import termios  # which not every system has
    import tty

    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor, termios.TCSANOW)
        now = termios.tcgetattr(descriptor)
        now[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(descriptor, termios.TCSANOW, now)
        yield
    finally:
        try:
            termios.tcflush(descriptor, termios.TCIFLUSH)  # keys for this screen are none for the shell
            termios.tcsetattr(descriptor, termios.TCSANOW, before)
        except termios.error:  # the terminal was closed
            pass
