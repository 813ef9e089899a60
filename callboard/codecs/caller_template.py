"""Templates that say something of the caller to a backend: `${principal}`, `${scopes}`, `${claim:NAME}`."""

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import attrs

from callboard.codecs.caller import Caller

MAX_VALUE: Final = 4096
"""Longest value that comes of a template, in characters. A claim may be as long as a token; a header may not."""

MAX_ITEMS: Final = 64
"""Most members of a list that are joined."""

OF_CALLER: Final = re.compile(r"principal|tenant|scopes|claim:(?P<claim>[^\s{}$]{1,100})")
"""What of a caller may be named."""


class NotFilledIn(Exception):
    """A template cannot be filled in for a caller. Says which part, and nothing of the caller's."""


@attrs.frozen
class CallerField:
    """A part of a template: what it names."""

    name: str

    def of(self, caller: Caller) -> str:
        """Raises `NotFilledIn` if the caller has none, or one that is no text."""
        match self.name:
            case "principal":
                found: object = caller.principal
            case "tenant":
                found = caller.tenant
            case "scopes":
                found = sorted(caller.scopes)
            case _:
                found = caller.claims.get(self.name.removeprefix("claim:"))
        text = _written(found)
        if not text:
            raise NotFilledIn(f"the caller has no {self}, which the server needs")
        return text

    def __str__(self) -> str:
        return f"claim {self.name.removeprefix('claim:')!r}" if self.name.startswith("claim:") else self.name


CallerTemplate: TypeAlias = tuple[str | CallerField, ...]
"""Text, and what of the caller stands in between."""

Templates: TypeAlias = Mapping[str, CallerTemplate]


def is_plain(template: CallerTemplate) -> bool:
    """Whether it says nothing of a caller."""
    return all(isinstance(part, str) for part in template)


def fill_header(template: CallerTemplate, caller: Caller) -> str:
    """Raises `NotFilledIn`, also for what cannot stand in a header: mended, it could be another's."""
    return _filled(template, caller, lambda text: text.isascii() and text.isprintable() and text == text.strip())


def fill_variable(template: CallerTemplate, caller: Caller) -> str:
    """For a variable of the environment. Raises `NotFilledIn`."""
    return _filled(template, caller, lambda text: "\0" not in text and text.isprintable())


def _filled(template: CallerTemplate, caller: Caller, is_fit: Callable[[str], bool]) -> str:
    said = []
    for part in template:
        if isinstance(part, str):
            said.append(part)
            continue
        text = part.of(caller)
        if not is_fit(text):
            raise NotFilledIn(f"the caller's {part} has characters that cannot be passed on")
        said.append(text)
    whole = "".join(said)
    if len(whole) > MAX_VALUE:
        raise NotFilledIn(f"what is said of the caller is longer than {MAX_VALUE} characters")
    return whole


def _written(found: object) -> str:
    """A claim as text; empty for what has none."""
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, str | int):
        return str(found)
    if isinstance(found, list | tuple) and len(found) <= MAX_ITEMS:
        items = [_written(one) if isinstance(one, str | int) else "" for one in found]
        if all(item and "," not in item for item in items):  # else one member could pass for two
            return ",".join(items)
    return ""
