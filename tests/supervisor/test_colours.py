"""Tracebacks in colour: places and the exception stand out, and the words stay the same."""

import re
import traceback

from callboard.supervisor.colours import colour_exception, coloured

CODES = re.compile(r"\x1b\[[0-9;]*m")


def raised() -> str:
    nothing: dict[str, str] = {}
    try:
        return nothing["nope"]
    except KeyError:
        return traceback.format_exc()


def test_the_exception_and_the_places_of_a_traceback_are_coloured() -> None:
    shown = coloured(raised())
    assert "\x1b[1;31mKeyError: 'nope'\x1b[0m" in shown
    assert re.search(r"test_colours\.py:\x1b\[0m\x1b\[36m\d+\x1b\[0m in \x1b\[36mraised", shown)
    assert 'nothing["nope"]' in CODES.sub("", shown)


def test_a_group_is_coloured_too() -> None:
    group = ExceptionGroup("several", [ValueError("one"), TypeError("two")])
    shown = coloured("Traceback (most recent call last):\n" + "".join(traceback.format_exception(group)))
    assert "ValueError: one\x1b[0m" in shown
    assert "TypeError: two\x1b[0m" in shown


def test_text_without_a_traceback_stays_as_it_is() -> None:
    assert coloured("callboard: no such file\nError: none") == "callboard: no such file\nError: none"
    facts = {"event": "x", "failure": "Error: y"}
    assert colour_exception(None, "error", dict(facts)) == facts
