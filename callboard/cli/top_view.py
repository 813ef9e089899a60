"""The screen of `top`, and a snapshot as text: a state in, lines out, each exactly as wide as the window."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
from rich.cells import cell_len
from rich.text import Text

from callboard.cli.top_state import TopState
from callboard.cli.top_tables import TABS, TopColumn, TopRow, TopSection, TopTab, plain
from callboard.cli.top_text import (
    NOTHING,
    count,
    duration,
    fitted,
    number,
    part,
    rate,
    rows_of,
    share,
    size,
    span,
    sparkline,
    word,
)

SPARK: Final = 20
"""Cells of a sparkline, where there is room."""

GAP: Final = 2
WIDEST: Final = 1000
"""Cells of a line."""

FEW: Final = 20
"""Rows of each table where all of them are printed one below the other."""

MOST_DETAILS: Final = 500
"""Lines of details."""

_MORE: Final = " ? help"
_GOOD: Final = "green"
_BAD: Final = "bold red"
_STATES: Final = {
    **dict.fromkeys(("up", "ready", "running", "serving", "waiting"), ""),
    **dict.fromkeys(("down", "failed", "crashed", "not ready", "hangs"), "red"),
    **dict.fromkeys(("restarting", "starting", "tried", "draining", "parked", "waits for client", "leaving"), "yellow"),
}

HELP: Final = """\
s servers    c clients    r requests
t tree       d dead letters
o tools      l listeners  n nodes

arrows, PgUp, PgDn, Home, End: move
Enter        all about the selected row
< >          column to sort by
i            reverse the order
/            filter; Esc clears it
left right   fold and unfold the tree
p            pause, and go on
?            this help
q, Ctrl-C    quit"""


@attrs.frozen
class Piece:
    """A part of a line of the header. The highest *rank* goes first, where there is no room for all."""

    text: str
    rank: int
    style: str = ""
    is_joined: bool = False
    """Whether it belongs to the piece before."""


def screen(state: TopState, width: int, height: int) -> list[Text]:
    """Exactly *height* lines of *width* cells."""
    width, height = max(1, min(width, WIDEST)), max(1, height)
    head = header(state, width)[: max(1, height - 5)] if height > 3 else []
    tabs = [_tab_bar(state, width)] if height > 5 else []
    foot = [_footer(state, width)] if height > 1 else []
    room = height - len(head) - len(tabs) - len(foot)
    body = _body(state, width, room)
    body += [Text(" " * width)] * (room - len(body))
    return [*head, *tabs, *body[:room], *foot]


def as_text(view: Mapping[str, Any], address: str, only: TopTab | None = None, width: int = 0) -> str:
    """A view for a pipe: all tables but the tree and the listeners, or one of them. Without *width*, no line is cut."""
    state = TopState(address)
    state.hear(view)
    lines = [str(line).rstrip() for line in header(state, width or WIDEST, has_sparklines=False)]
    for tab in (only,) if only is not None else (tab for tab in TABS if tab.key not in "tln"):
        found = [one for one in tab.sections(view) if one.rows]
        for section in found:
            title = tab.name if not section.title else f"{tab.name}, {section.title}"
            lines += ["", title.upper()]
            widths = _widths(tab.columns, section.rows, width)
            shown = [column for column, wide in zip(tab.columns, widths, strict=True) if wide]
            wide = [width for width in widths if width]
            rows = section.rows if only is not None else section.rows[:FEW]
            lines.append(_line([column.title for column in shown], shown, wide).rstrip())
            lines += [_line([column.text(row) for column in shown], shown, wide).rstrip() for row in rows]
            if len(rows) < len(section.rows):
                view_name = tab.name.replace(" ", "-")
                lines.append(f"... and {len(section.rows) - len(rows):,} more: --view {view_name}")
        if not found:
            lines += ["", tab.name.upper(), tab.empty]
    return "\n".join(lines) + "\n"


# The header: three lines.


def header(state: TopState, width: int, *, has_sparklines: bool = True) -> list[Text]:
    """What a server is, how much it does, and how it is."""
    view = state.view
    server, totals, latest = part(view, "server"), part(view, "totals"), part(view, "latest")
    up, of = number(totals.get("servers_up")) or 0, number(totals.get("servers")) or 0
    said = "LOST, reconnecting" if state.problem else word(server.get("state")) if server else "connecting"
    errors = number(latest.get("errors")) or 0
    parked, lag = number(totals.get("parked")) or 0, number(latest.get("loop_lag")) or 0

    def spark(name: str, rank: int) -> Piece:
        points = list(state.history.get(name, ()))
        shown = sparkline(points, SPARK) if has_sparklines else ""
        return Piece(shown.strip(), rank, "cyan", is_joined=True)

    first = [
        Piece(f"{word(server.get('name') or 'callboard')} {word(server.get('version') or '')}".strip(), 2, "bold"),
        Piece(said, 0, _GOOD if said == "ready" else _BAD),
        Piece(f"up {span(server.get('uptime'))}", 1),
        *_workers(server),
        *([Piece("PAUSED", 0, "black on yellow")] if state.is_paused else ()),
        Piece(word(state.address), 4, "dim"),
        Piece(f"pid {word(server.get('pid'))}", 5, "dim"),
    ]
    second = [
        Piece(f"requests {rate(latest.get('requests'))}", 0),
        spark("requests", 6),
        Piece(f"errors {rate(latest.get('errors'))}", 1, _BAD if errors else ""),
        spark("errors", 8),
        Piece(f"p50 {duration(latest.get('p50_10s'))}", 3),
        Piece(f"p99 {duration(latest.get('p99_10s'))}", 2),
        spark("p99", 7),
        Piece(f"{count(totals.get('requests'))} in all", 9, "dim"),
    ]
    third = [
        Piece(f"clients {count(totals.get('sessions'))}", 1),
        *([Piece(f"servers {up:,.0f}/{of:,.0f}", 0, _BAD if up < of else "")] if of else ()),
        Piece(f"in flight {count(totals.get('in_flight'))}", 2),
        Piece(f"parked {count(totals.get('parked'))}", 5, "yellow" if parked else ""),
        Piece(f"lag {duration(latest.get('loop_lag'))}", 3, _BAD if lag > 0.1 else ""),
        Piece(f"memory {size(totals.get('resident'))}", 4),
        Piece(f"cpu {share(latest.get('cpu'))}", 6),
        spark("cpu", 9),
        Piece(_bytes(totals), 7),
        Piece(f"connections {count(totals.get('connections'))}", 7),
        Piece(f"dead letters {count(totals.get('dead_letters'))}", 8),
    ]
    return [_joined(pieces, width) for pieces in (first, second, third)]


def _bytes(totals: Mapping[str, Any]) -> str:
    """Of the clients that are connected now."""
    received, sent = totals.get("bytes_in"), totals.get("bytes_out")
    return "" if received is None and sent is None else f"in {size(received)} out {size(sent)}"


def _workers(server: Mapping[str, Any]) -> list[Piece]:
    """Those of this node that answer, and how many nodes there are."""
    workers, nodes = rows_of(server, "workers"), rows_of(server, "nodes")
    answers = sum(worker.get("answers") is True for worker in workers)
    some = [Piece(f"workers {answers}/{len(workers)}", 3, _BAD if answers < len(workers) else "")] if workers else []
    return [*some, Piece(f"nodes {len(nodes)}", 4)] if nodes else some


def _joined(pieces: Sequence[Piece], width: int) -> Text:
    """As many pieces as fit, in their order."""
    kept = [piece for piece in pieces if piece.text]
    while len(kept) > 1 and sum(cell_len(piece.text) + _before(piece) for piece in kept) - GAP > width:
        kept.remove(max(kept, key=lambda piece: piece.rank))
    line = Text(no_wrap=True)
    for place, piece in enumerate(kept):
        line.append(" " * (_before(piece) if place else 0))
        line.append(piece.text, piece.style)
    return _exact(line, width)


def _before(piece: Piece) -> int:
    return 1 if piece.is_joined else GAP


def _tab_bar(state: TopState, width: int) -> Text:
    is_wide = sum(len(f" {tab.name} ") for tab in TABS) + len(_MORE) <= width
    line = Text(no_wrap=True)
    for tab in TABS:
        name = tab.name if is_wide else tab.name[:4]
        at = name.find(tab.key)
        style = "reverse bold" if tab is state.tab else ""
        line.append(f" {name} " if is_wide else f"{name} ", style)
        if at >= 0:
            where = len(line.plain) - len(name) - 1 + at
            line.stylize("underline bold", where, where + 1)
    line.append(_MORE if is_wide else "")
    return _exact(line, width)


def _footer(state: TopState, width: int) -> Text:
    look, column = state.look, state.sort_column()
    if state.is_typing:
        return _exact(Text(f"/{look.wanted}▏  Enter: keep, Esc: clear", no_wrap=True), width)
    if state.problem:
        return _exact(Text(word(state.problem), "red", no_wrap=True), width)
    pieces = [
        Piece(f"filter {look.wanted!r}" if look.wanted else "", 0, "yellow"),
        Piece("" if column is None else f"sorted by {column.title}", 1),
        Piece("reversed" if look.is_reversed else "", 1),
        Piece("? help  / filter  < > sort  Enter details  p pause  q quit", 3, "dim"),
        Piece("q quit  ? help", 2 if width < 60 else 9, "dim") if width < 60 else Piece("", 9),
    ]
    return _joined(pieces, width)


# The body: a table, or what lies above it.


def _body(state: TopState, width: int, room: int) -> list[Text]:
    if state.is_help:
        return _scrolled(state, [Text(line, no_wrap=True) for line in HELP.splitlines()], width, room)
    sections = state.sections()
    rows = [row for section in sections for row in section.rows]
    at = state.settle(rows)
    state.page = max(1, room - 1)
    if state.is_detail and rows:
        return _scrolled(state, details(rows[at], width), width, room)
    if not rows:
        said = f"nothing matches {state.look.wanted!r}" if state.look.wanted else state.tab.empty
        return [_exact(Text(said if state.view else "connecting ...", "dim", no_wrap=True), width)]
    return _table(state, sections, at, width, room)


def _scrolled(state: TopState, lines: Sequence[Text], width: int, room: int) -> list[Text]:
    state.scroll = max(0, min(state.scroll, len(lines) - room))
    return [_exact(line, width) for line in lines[state.scroll : state.scroll + room]]


def details(row: TopRow, width: int) -> list[Text]:
    """All that is known of a row: a line for each fact, long ones on several."""
    lines: list[Text] = []
    for name, value in _flat(plain(row)):
        label = f"{fitted(name, min(18, max(4, width // 3)))} "
        room = max(1, width - cell_len(label))
        text = _explained(name, value)
        for start in range(0, max(1, len(text)), room):
            line = Text(no_wrap=True)
            line.append(label if not start else " " * cell_len(label), "bold")
            line.append(text[start : start + room])
            lines.append(line)
        if len(lines) >= MOST_DETAILS:
            break
    return lines


def _flat(row: Mapping[str, Any]) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for name, value in row.items():
        if isinstance(value, dict):
            found += [(word(inner), fact) for inner, fact in value.items()]
        elif isinstance(value, list):
            found.append((word(name), ", ".join(word(one) for one in value[:50])))
        else:
            found.append((word(name), value))
    return found


def _explained(name: str, value: object) -> str:
    """With the unit that people expect."""
    match name:
        case "p50" | "p99" | "seconds":
            return duration(value)
        case "age" | "ago" | "idle" | "since" | "changed" | "next_try" | "uptime":
            return span(value) if number(value) is None or (number(value) or 0) >= 10 else duration(value)
        case "resident" | "bytes_in" | "bytes_out":
            return size(value)
        case "cpu_seconds":
            return NOTHING if value is None else f"{word(value)} s"
    return word(value)


def _table(state: TopState, sections: Sequence[TopSection], at: int, width: int, room: int) -> list[Text]:
    columns = state.tab.columns
    rows = [row for section in sections for row in section.rows]
    # Widths by what may be seen, not by the longest of ten thousand rows.
    near = rows[max(0, at - room) : at + room]
    widths = _widths(columns, near, width)
    shown = [column for column, wide in zip(columns, widths, strict=True) if wide]
    wide = [each for each in widths if each]
    lines: list[tuple[int | None, TopRow | str]] = []
    for section in sections:
        if section.title and section.rows:
            lines.append((None, section.title))
        start = sum(1 for place, _ in lines if place is not None)
        lines += [(start + place, row) for place, row in enumerate(section.rows)]
    here = next(line for line, (place, _) in enumerate(lines) if place == at)
    below = max(1, room - 1)
    first = max(0, min(here - below // 2, len(lines) - below))
    drawn = [_titles(state, shown, wide, width)] if room > 1 else []
    for place, row in lines[first : first + below]:
        if isinstance(row, str):
            drawn.append(_exact(Text(f"{row}:", "bold", no_wrap=True), width))
        else:
            drawn.append(_row(row, shown, wide, width, is_selected=place == at))
    return drawn


def _titles(state: TopState, columns: Sequence[TopColumn], widths: Sequence[int], width: int) -> Text:
    line = Text(no_wrap=True)
    for place, (column, wide) in enumerate(zip(columns, widths, strict=True)):
        is_sorted = column is state.sort_column()
        line.append(" " * (GAP if place else 0))
        line.append(fitted(column.title, wide, is_right=column.is_right), "bold reverse" if is_sorted else "bold")
    return _exact(line, width)


def _row(row: TopRow, columns: Sequence[TopColumn], widths: Sequence[int], width: int, *, is_selected: bool) -> Text:
    line = Text(no_wrap=True)
    for place, (column, wide) in enumerate(zip(columns, widths, strict=True)):
        text = column.text(row)
        style = _STATES.get(text, "") if column.title in ("state", "outcome") else ""
        if column.title == "errors" and number(row.get("errors")):
            style = "red"
        line.append(" " * (GAP if place else 0))
        line.append(fitted(text, wide, is_right=column.is_right), style)
    line = _exact(line, width)
    if is_selected:
        line.stylize("reverse")
    return line


def _line(cells: Sequence[str], columns: Sequence[TopColumn], widths: Sequence[int]) -> str:
    fit = (fitted(cell, wide, is_right=one.is_right) for cell, one, wide in zip(cells, columns, widths, strict=True))
    return (" " * GAP).join(fit)


def _widths(columns: Sequence[TopColumn], rows: Sequence[TopRow], room: int) -> list[int]:
    """Cells of each column; none for one that is empty, or has no room. Without a *room* all get what they want."""
    wanted: list[int] = []
    for column in columns:
        texts = [column.text(row) for row in rows]
        is_empty = all(text in ("", NOTHING) for text in texts)
        longest = max((cell_len(text) for text in texts), default=0)
        wide = max(longest, cell_len(column.title))
        wanted.append(0 if is_empty and column.rank else wide if not room else min(wide, column.most))
    if not room:
        return wanted
    while _taken(wanted) > room:
        # First the widest are cut down to what they need at least; then the least important go.
        over = _taken(wanted) - room
        spare = [wide - _floor(column, wide, room) for wide, column in zip(wanted, columns, strict=True)]
        if max(spare) > 0:
            widest = spare.index(max(spare))
            wanted[widest] -= min(over, spare[widest])
            continue
        left = [place for place, wide in enumerate(wanted) if wide]
        if len(left) == 1:
            wanted[left[0]] = room
            break
        wanted[max(left, key=lambda place: columns[place].rank)] = 0
    return wanted


def _floor(column: TopColumn, wide: int, room: int) -> int:
    """Cells that a column keeps before others go: what a row is called by gets half of the line."""
    return min(wide, max(column.least, min(column.keeps, room // 2) if column.rank else room // 2))


def _taken(widths: Sequence[int]) -> int:
    shown = [wide for wide in widths if wide]
    return sum(shown) + GAP * max(0, len(shown) - 1)


def _exact(line: Text, width: int) -> Text:
    """*line* in exactly *width* cells."""
    line = line.copy()
    line.truncate(width, overflow="crop", pad=True)
    line.no_wrap, line.end = True, ""
    return line
