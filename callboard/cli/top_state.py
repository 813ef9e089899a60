"""What `top` shows: the latest view, the table that is open, and what keys change of it. Nothing is drawn here."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from callboard.cli.top_tables import (
    TABS,
    TopColumn,
    TopRow,
    TopSection,
    TopTab,
    key_of,
    matching,
    path_of,
    sorted_by,
    tree_rows,
)
from callboard.cli.top_text import part

POINTS: Final = 600
"""Seconds of history that are kept."""

MAX_FILTER: Final = 100
"""Characters of a filter."""


@attrs.define
class TabState:
    """How one table is looked at."""

    sort: int | None = None
    """Place of the column; None for the server's own order."""
    is_reversed: bool = False
    wanted: str = ""
    selected: int = 0
    key: tuple[str, ...] | None = None
    """Of the selected row: it stays selected when others come and go."""


@attrs.define(eq=False)
class TopState:
    """Everything that a screen is drawn from."""

    address: str
    tab: TopTab = TABS[0]
    view: Mapping[str, Any] = attrs.field(factory=dict)
    problem: str = ""
    """Why there is no connection now."""
    is_paused: bool = False
    is_help: bool = False
    is_detail: bool = False
    is_typing: bool = False
    """Whether keys are letters of the filter."""
    is_over: bool = False
    scroll: int = 0
    """Lines of help or details that are above the screen."""
    page: int = 10
    """Rows of the screen, which the drawing knows."""
    folded: frozenset[str] = frozenset()
    history: dict[str, deque[Any]] = attrs.field(factory=dict, init=False)
    _newest: Mapping[str, Any] = attrs.field(factory=dict, init=False)
    _tabs: dict[str, TabState] = attrs.field(factory=lambda: {tab.key: TabState() for tab in TABS}, init=False)

    @property
    def look(self) -> TabState:
        """How the open table is looked at."""
        return self._tabs[self.tab.key]

    def hear(self, view: Mapping[str, Any], *, is_shown: bool = True) -> None:
        """Take a new view; while it is paused, or not to be *shown*, only for later."""
        self._newest, self.problem = view, ""
        past = part(view, "history")
        if past:
            self.history = {
                name: deque(ring[-POINTS:], POINTS) for name, ring in list(past.items())[:32] if isinstance(ring, list)
            }
        else:
            for name, value in list(part(view, "point").items())[:32]:
                self.history.setdefault(name, deque(maxlen=POINTS)).append(value)
        if is_shown and not self.is_paused:
            self.view = view

    def sections(self) -> Sequence[TopSection]:
        """The rows that are shown, sorted and filtered."""
        look, tab = self.look, self.tab
        found = tab.sections(self.view)
        if tab.is_tree:
            found = [TopSection("", tree_rows(self.view, self.folded))]
        column = self.sort_column()
        return [
            TopSection(
                one.title,
                sorted_by(matching(one.rows, tab.columns, look.wanted), column, is_reversed=look.is_reversed),
            )
            for one in found
        ]

    def sort_column(self) -> TopColumn | None:
        look = self.look
        return None if look.sort is None else self.tab.columns[look.sort]

    def rows(self) -> list[TopRow]:
        return [row for section in self.sections() for row in section.rows]

    def settle(self, rows: Sequence[TopRow]) -> int:
        """The place of the selected row among *rows*: it is followed to where it is now."""
        look = self.look
        if look.key is not None:
            here = look.selected
            if not (here < len(rows) and key_of(rows[here]) == look.key):
                look.selected = next((at for at, row in enumerate(rows) if key_of(row) == look.key), here)
        look.selected = max(0, min(look.selected, len(rows) - 1))
        return look.selected

    def press(self, key: str) -> None:
        """Do what *key* stands for."""
        if self.is_typing:
            self._type(key)
        elif self.is_help or self.is_detail:
            self._press_above(key)
        else:
            self._press(key)

    def _press_above(self, key: str) -> None:
        """Help and details lie above the table."""
        if key in ("up", "down", "pgup", "pgdn", "home", "end"):
            self.scroll = max(0, self.scroll + self._step(key))
        elif key == "q" and not self.is_help:
            self.is_over = True
        elif key in ("enter", "esc", "?", "q", "left", "backspace"):
            self.is_help = self.is_detail = False
        elif any(tab.key == key for tab in TABS):
            self.is_help = self.is_detail = False
            self._press(key)
        elif key == "p":
            self._pause()

    def _press(self, key: str) -> None:
        look = self.look
        match key:
            case "q":
                self.is_over = True
            case "?" | "h":
                self.is_help, self.scroll = True, 0
            case "p" | " ":
                self._pause()
            case "/":
                self.is_typing = True
            case "esc":
                look.wanted = ""
            case "<" | ",":
                self._sort_next(-1)
            case ">" | ".":
                self._sort_next(1)
            case "i":
                look.is_reversed = not look.is_reversed
            case "enter":
                self.is_detail, self.scroll = bool(self.rows()), 0
            case "up" | "down" | "pgup" | "pgdn" | "home" | "end":
                self._move(key)
            case "left" | "right":
                self._fold(is_folded=key == "left")
            case _:
                self.tab = next((tab for tab in TABS if tab.key == key), self.tab)

    def _pause(self) -> None:
        self.is_paused = not self.is_paused
        if not self.is_paused:
            self.view = self._newest

    def _type(self, key: str) -> None:
        look = self.look
        match key:
            case "enter":
                self.is_typing = False
            case "esc":
                self.is_typing, look.wanted = False, ""
            case "backspace":
                look.wanted = look.wanted[:-1]
            case _ if len(key) == 1 and key.isprintable() and len(look.wanted) < MAX_FILTER:
                look.wanted += key

    def _sort_next(self, way: int) -> None:
        """From the server's own order to the first column, and on; and back to it behind the last."""
        look, count = self.look, len(self.tab.columns) + 1
        at = 0 if look.sort is None else look.sort + 1
        at = (at + way) % count
        look.sort, look.is_reversed = None if at == 0 else at - 1, False

    def _step(self, key: str) -> int:
        return {"up": -1, "down": 1, "pgup": -self.page, "pgdn": self.page, "home": -(10**6), "end": 10**6}[key]

    def _move(self, key: str) -> None:
        rows = self.rows()
        at = self.settle(rows) + self._step(key)
        look = self.look
        look.selected = max(0, min(at, len(rows) - 1))
        look.key = key_of(rows[look.selected]) if rows else None

    def _fold(self, *, is_folded: bool) -> None:
        rows = self.rows()
        path = path_of(rows[self.settle(rows)]) if rows else None
        if path is not None:
            self.folded = self.folded | {path} if is_folded else self.folded - {path}
