"""Reading a configuration: each value is asked for by its type, and what is wrong is told, with its line."""

import json
import math
import os
import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

import attrs

from callboard.codecs.caller_template import CallerTemplate, is_plain
from callboard.config.positions import SourceNode
from callboard.config.report import Report
from callboard.config.variables import NotExpanded, expand, read_template

_BARE: Final = re.compile(r"[A-Za-z0-9_$-]+")
_NEAR: Final = 0.7
"""How much alike two words must be for one to be taken for a slip of the pen."""
_NONE: Final[Mapping[str, str]] = MappingProxyType({})

D = TypeVar("D")
C = TypeVar("C", bound=str)


def nearest(word: str, known: Collection[str]) -> str:
    """`; did you mean ...?`, if there is any that could be meant."""
    by_letters = {one.lower(): one for one in known}
    near = get_close_matches(word.lower(), list(by_letters), n=1, cutoff=_NEAR)
    return f"; did you mean `{by_letters[near[0]]}`?" if near else ""


def quoted(value: object) -> str:
    """*value* as it was written, for a message."""
    return json.dumps(value, ensure_ascii=False, default=str)[:100]


@attrs.frozen
class Place:
    """A value, where it stands, and the report for its mistakes."""

    node: SourceNode
    where: str
    report: Report

    def wrong(self, message: str) -> None:
        self.report.tell(self.node, self.where, message)

    def warn(self, message: str) -> None:
        self.report.tell(self.node, self.where, message, is_warning=True)

    def member(self, key: str, node: SourceNode) -> "Place":
        name = key if _BARE.fullmatch(key) else quoted(key)
        return Place(node, f"{self.where}.{name}" if self.where else name, self.report)

    # Values. None is for what is wrong, and told.

    def text(self, *, what: str = "a string") -> str | None:
        """With what the environment holds. Never empty."""
        value = self.node.value
        if not isinstance(value, str) or not value:
            self.wrong(f"must be {what}")
            return None
        return self.expanded()

    def expanded(self) -> str | None:
        try:
            text = expand(str(self.node.value))
        except NotExpanded as error:
            self.wrong(str(error))
            return None
        if "\0" in text:
            self.wrong("contains a NUL character")
            return None
        return text

    def path(self) -> Path | None:
        """A path, which is meant from the folder of the file."""
        text = self.text()
        if text is None:
            return None
        try:
            return Path(os.path.normpath(self.report.file.absolute().parent / Path(text).expanduser()))
        except RuntimeError:
            self.wrong("starts with `~` and an unknown user")
            return None

    def number(self) -> float | None:
        value = self.node.value
        try:
            number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            self.wrong("must be a number")
            return None
        return number

    def texts(self, *, are_kept_apart: bool = False) -> tuple[str, ...]:
        """A list. Unless they *are_kept_apart*, an empty one among them is wrong."""
        if self.node.items is None:
            self.wrong("must be a list of strings")
            return ()
        found = []
        for at, node in enumerate(self.node.items):
            if not isinstance(node.value, str) or not (node.value or are_kept_apart):
                self.report.tell(node, self.where, "must be a list of strings")
            else:
                found.append(Place(node, f"{self.where}[{at}]", self.report).expanded())
        return tuple(text for text in found if text is not None)

    def table(self) -> "Table":
        if self.node.members is None:
            self.wrong(f"must be {self.report.an_object}")
        return Table.of(self)

    def template(self) -> CallerTemplate | None:
        """Text in which something of the caller stands; None if it is plain, or wrong as `expanded` tells."""
        try:
            template = read_template(str(self.node.value))
        except NotExpanded:
            return None
        return None if is_plain(template) or "\0" in str(self.node.value) else template

    def mapping(self, templates: dict[str, CallerTemplate] | None = None) -> dict[str, str]:
        """Strings by name. Those in which something of the caller stands become *templates*."""
        of_strings = f"must be {self.report.an_object} of strings"
        if self.node.members is None:
            self.wrong(of_strings)
        found = {}
        for name, place in Table.of(self).members.items():
            if not isinstance(place.node.value, str):
                self.report.tell(place.node, self.where, of_strings)
            elif templates is not None and (template := place.template()) is not None:
                templates[name] = template
            elif (text := place.expanded()) is not None:
                found[name] = text
        return found


@attrs.frozen
class Table:
    """The values of an object, by key. What is not there is what it is by default, and so is what is wrong."""

    place: Place
    members: Mapping[str, Place]

    @classmethod
    def of(cls, place: Place) -> "Table":
        for again in place.node.repeated:
            node = SourceNode(line=again.line, column=again.column)
            place.member(again.key, node).wrong(f"is a duplicate key, first in line {again.first}")
        return cls(place, {key: place.member(key, node) for key, node in (place.node.members or {}).items()})

    def text(self, key: str, default: D) -> str | D:
        place = self.members.get(key)
        text = None if place is None else place.text()
        return default if text is None else text

    def texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        place = self.members.get(key)
        return default if place is None else place.texts()

    def mapping(self, key: str, templates: dict[str, CallerTemplate] | None = None) -> dict[str, str]:
        place = self.members.get(key)
        return {} if place is None else place.mapping(templates)

    def table(self, key: str) -> "Table":
        place = self.members.get(key)
        return Table(self.place, {}) if place is None else place.table()

    def flag(self, key: str, *, default: bool = False) -> bool:
        place = self.members.get(key)
        if place is None:
            return default
        if not isinstance(place.node.value, bool):
            place.wrong("must be true or false")
        return place.node.value is True

    def seconds(self, key: str, default: float, *, may_be_none: bool = False) -> float:
        """A time, of more than 0 s unless it *may_be_none*."""
        place = self.members.get(key)
        value = None if place is None else place.number()
        if place is None or value is None:
            return default
        if value < 0 or (value == 0 and not may_be_none):
            place.wrong("must be 0 or more" if may_be_none else "must be greater than 0")
            return default
        return value

    def count(self, key: str, default: int, *, least: int = 1) -> int:
        place = self.members.get(key)
        if place is None:
            return default
        value = place.node.value
        if isinstance(value, bool) or not isinstance(value, int):
            place.wrong("must be a whole number")
            return default
        if value < least:
            place.wrong(f"must be {least} or more")
            return default
        return value

    def choice(self, key: str, among: Collection[C], default: D) -> C | D:
        place = self.members.get(key)
        text = None if place is None else place.text(what=f"one of {', '.join(among)}")
        if place is None or text is None:
            return default
        chosen = next((one for one in among if one == text), None)
        if chosen is None:
            hint = nearest(str(place.node.value), among)
            place.wrong(f"{quoted(place.node.value)} is not one of {', '.join(among)}{hint}")
        return default if chosen is None else chosen

    def warn_unknown(self, known: Collection[str], foreign: Mapping[str, str] = _NONE) -> tuple[str, ...]:
        """Warn of every key that is not *known*, as *foreign* explains it. Which these are."""
        unknown = tuple(key for key in self.members if key not in known)
        for key in unknown:
            self.members[key].warn(foreign.get(key) or f"is unknown and ignored{nearest(key, known)}")
        return unknown
