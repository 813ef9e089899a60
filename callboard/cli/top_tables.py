"""The tables of `top`: what each has of a view, in which columns, and how they are sorted and filtered."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from callboard.cli.top_text import count, duration, number, part, rows_of, size, span, tenths, word
from callboard.supervisor.last_words import telling

TopRow: TypeAlias = Mapping[str, Any]

DEEPEST: Final = 64
"""Levels of a tree that are shown."""

MOST_NODES: Final = 20_000
"""Actors of a tree that are shown."""

_PATH: Final = "\0path"
"""Key of what is known of a row beside what the server said; no JSON of ours has it."""
_INDENT: Final = "\0indent"


@attrs.frozen
class TopColumn:
    """One column: where its value is, how it is written, and how much room it wants."""

    title: str
    key: str
    shown: Callable[[Any], str] = word
    is_right: bool = False
    least: int = 4
    """Cells without which it is left out."""
    keeps: int = 12
    """Cells that it keeps while there are less important columns; at most half of the line."""
    most: int = 40
    rank: int = 5
    """Where there is no room for all, those with the highest number go first."""
    of_row: Callable[[TopRow], str] | None = None
    """Where more than one value is shown."""
    value: Callable[[TopRow], Any] | None = None
    """By what it is sorted, if not by what is at its key."""

    def of(self, row: TopRow) -> Any:
        return row.get(self.key) if self.value is None else self.value(row)

    def text(self, row: TopRow) -> str:
        return self.of_row(row) if self.of_row is not None else self.shown(row.get(self.key))

    def order(self, row: TopRow) -> tuple[int, float, str]:
        """Numbers by their size, then texts, then what is missing."""
        value = self.of(row)
        figure = number(value)
        if figure is not None:
            return 0, figure, ""
        return (2, 0.0, "") if value is None else (1, 0.0, word(value).lower())


@attrs.frozen
class TopSection:
    """Some rows under one title."""

    title: str
    rows: Sequence[TopRow]


@attrs.frozen
class TopTab:
    """One of the tables: its key, its columns, and where its rows are."""

    key: str
    name: str
    columns: Sequence[TopColumn]
    sections: Callable[[Mapping[str, Any]], Sequence[TopSection]]
    empty: str
    is_tree: bool = False


def _figures(title: str, key: str, rank: int, shown: Callable[[Any], str] = count) -> TopColumn:
    return TopColumn(title, key, shown, is_right=True, most=14, rank=rank)


def _of(used: str, most: str) -> Callable[[TopRow], str]:
    return lambda row: f"{count(row.get(used))}/{count(row.get(most))}"


def server_state(row: TopRow) -> str:
    state = word(row.get("state"))
    return "up" if row.get("is_up") is True and state not in ("asleep", "waking") else state


def server_why(row: TopRow) -> str:
    """Why it is not up, with its last words, and when it is tried again."""
    if row.get("is_up") is True:
        withheld = number(row.get("withheld")) or 0
        return f"{withheld:,.0f} definitions wait for approval" if withheld else ""
    again = number(row.get("next_try"))
    soon = "" if again is None else " (next try in a moment)" if again < 1 else f" (next try in {span(again)})"
    said = row.get("said")
    why = (word(row.get("why")), telling([word(line) for line in said]) if isinstance(said, list) else "")
    return ": ".join(text for text in why if text) + soon


SERVERS: Final = (
    TopColumn("server", "name", least=6, most=32, rank=0),
    TopColumn("state", "state", of_row=server_state, least=5, most=10, rank=1),
    _figures("calls", "calls", 3),
    _figures("calls/s", "calls_per_second", 8, tenths),
    _figures("errors", "errors", 3),
    _figures("p50", "p50", 6, duration),
    _figures("p99", "p99", 4, duration),
    TopColumn("in flight", "in_flight", of_row=_of("in_flight", "max_in_flight"), is_right=True, most=12, rank=5),
    TopColumn("conns", "connections", of_row=_of("connections", "max_connections"), is_right=True, most=9, rank=8),
    _figures("parked", "parked", 9),
    _figures("tools", "tools", 6),
    _figures("restarts", "restarts", 7),
    TopColumn("transport", "transport", most=10, rank=9),
    _figures("pid", "pid", 10, word),
    _figures("procs", "processes", 10),
    _figures("memory", "resident", 9, size),
    TopColumn("why", "why", of_row=server_why, least=8, keeps=60, most=120, rank=2),
)

CLIENTS: Final = (
    TopColumn("client", "client", least=6, most=28, rank=0),
    TopColumn("version", "version", most=12, rank=7),
    TopColumn("principal", "principal", most=24, rank=3),
    TopColumn("transport", "transport", most=10, rank=4),
    TopColumn("revision", "revision", most=10, rank=6),
    _figures("in flight", "in_flight", 1),
    _figures("parked", "parked", 8),
    _figures("follows", "subscriptions", 9),
    _figures("since", "since", 6, span),
    _figures("idle", "idle", 2, span),
    _figures("in", "bytes_in", 7, size),
    _figures("out", "bytes_out", 7, size),
    TopColumn("address", "peer", most=24, rank=9),
    TopColumn("session", "name", most=32, rank=5),
    TopColumn("worker", "worker", most=10, rank=8),
)


def _took(row: TopRow) -> Any:
    return row.get("age", row.get("seconds"))


def _outcome(row: TopRow) -> str:
    """The state of a request that runs, with how far it is; the error of one that failed."""
    if "age" not in row:
        return word(row.get("error") or "ok")
    text = word(row.get("state"))
    done, total = number(row.get("progress")), number(row.get("total"))
    if done is not None:
        text += f" {done:g}" + ("" if total is None else f"/{total:g}")
    return text


REQUESTS: Final = (
    TopColumn(
        "took", "seconds", of_row=lambda row: duration(_took(row)), value=_took, is_right=True, least=5, most=9, rank=0
    ),
    TopColumn("ago", "ago", span, is_right=True, most=9, rank=5),
    TopColumn("method", "method", most=26, rank=4),
    TopColumn("tool or resource", "target", least=8, keeps=30, most=60, rank=1),
    TopColumn("outcome", "error", of_row=_outcome, value=_outcome, least=6, most=28, rank=2),
    TopColumn("server", "server", most=20, rank=6),
    TopColumn("client", "client", most=24, rank=7),
    TopColumn("principal", "principal", most=20, rank=8),
    TopColumn("worker", "worker", most=10, rank=9),
)

TOOLS: Final = (
    TopColumn("tool or prompt", "name", least=8, most=60, rank=0),
    TopColumn("kind", "kind", most=6, rank=7),
    TopColumn("server", "server", most=24, rank=5),
    _figures("calls", "calls", 1),
    _figures("errors", "errors", 2),
    _figures("p50", "p50", 4, duration),
    _figures("p99", "p99", 3, duration),
    _figures("last used", "idle", 6, span),
    TopColumn("pin", "pin", most=18, rank=8),
)

TOPICS: Final = (
    TopColumn("topic", "topic", least=8, most=100, rank=0),
    _figures("listeners", "listeners", 1),
    _figures("changed", "changed", 3, span),
    TopColumn("server", "server", most=24, rank=2),
    TopColumn("worker", "worker", most=10, rank=3),
)

LETTERS: Final = (
    _figures("count", "count", 3),
    _figures("ago", "ago", 2, span),
    TopColumn("message", "kind", least=8, most=30, rank=0),
    TopColumn("reason", "reason", least=6, most=24, rank=1),
    TopColumn("to", "path", least=6, most=80, rank=4),
)


def node_state(row: TopRow) -> str:
    """Of a worker what it says of itself, if it answers; of a node whether it leaves."""
    if "is_here" in row:
        return "leaving" if row.get("is_leaving") is True else "this node" if row["is_here"] is True else "serving"
    return word(row.get("state")) if row.get("answers") is True else "no answer"


NODES: Final = (
    TopColumn("node or worker", "name", least=6, most=32, rank=0),
    TopColumn("host", "host", most=24, rank=6),
    TopColumn("state", "state", of_row=node_state, least=5, most=16, rank=1),
    _figures("workers", "workers", 4),
    _figures("clients", "sessions", 2),
    _figures("conns", "connections", 7),
    _figures("in flight", "in_flight", 3),
    _figures("parked", "parked", 8),
    _figures("requests", "requests", 5),
    _figures("errors", "errors", 5),
    _figures("p99", "p99_10s", 4, duration),
    _figures("memory", "resident", 6, size),
    _figures("pid", "pid", 7, word),
)


def _mailbox(row: TopRow) -> str:
    found = row.get("mailbox")
    return f"{count(found[0])}/{count(found[1])}" if isinstance(found, list) and len(found) > 1 else ""


def _depth(row: TopRow) -> Any:
    found = row.get("mailbox")
    return found[0] if isinstance(found, list) and found else None


def _facts(row: TopRow) -> str:
    failure, facts = row.get("failure"), row.get("facts")
    told = f"last failure: {word(failure)} " if failure else ""
    return told + (
        " ".join(f"{word(name)}={word(fact)}" for name, fact in list(facts.items())[:12])
        if isinstance(facts, dict)
        else ""
    )


def _indented(row: TopRow) -> str:
    return str(row.get(_INDENT, "")) + word(row.get("name"))


TREE: Final = (
    TopColumn("actor", "name", of_row=_indented, least=10, most=48, rank=0),
    TopColumn("kind", "kind", most=20, rank=4),
    TopColumn("state", "state", least=5, most=12, rank=1),
    _figures("age", "age", 5, span),
    TopColumn("mailbox", "mailbox", of_row=_mailbox, value=_depth, is_right=True, most=12, rank=3),
    _figures("restarts", "restarts", 2, lambda value: "" if value is None else count(value)),
    TopColumn("facts", "facts", of_row=_facts, least=8, most=200, rank=6),
)


def tree_rows(view: Mapping[str, Any], folded: frozenset[str] = frozenset()) -> list[TopRow]:
    """The actors of the tree from top to bottom, each with its guides and its path; those below *folded* are hidden."""
    found: list[TopRow] = []
    waiting: list[tuple[Mapping[str, Any], str, str, str, int]] = [(part(view, "tree"), "", "", "", 0)]
    while waiting and len(found) < MOST_NODES:
        node, above, own, below, depth = waiting.pop()
        if not node:
            continue
        path = f"{above}/{word(node.get('name'))}"
        children = rows_of(node, "children")
        hidden = number(node.get("hidden")) or 0
        is_folded = path in folded and bool(children)
        sign = f"[+{len(children) + int(hidden):,}] " if is_folded else ""
        row = {key: value for key, value in node.items() if key != "children"}
        found.append({**row, _PATH: path, _INDENT: own + sign})
        if is_folded or depth >= DEEPEST:
            continue
        if hidden:
            children = [*children, {"name": f"... and {hidden:,.0f} more", "kind": "", "state": ""}]
        for place, child in reversed(list(enumerate(children))):
            is_last = place == len(children) - 1
            waiting.append(
                (child, path, below + ("└ " if is_last else "├ "), below + ("  " if is_last else "│ "), depth + 1)
            )
    return found


def plain(row: TopRow) -> dict[str, Any]:
    """What the server said of a row."""
    return {key: value for key, value in row.items() if key not in (_PATH, _INDENT)}


def path_of(row: TopRow) -> str | None:
    """Where an actor is in the tree."""
    found = row.get(_PATH)
    return found if isinstance(found, str) else None


def key_of(row: TopRow) -> tuple[str, ...]:
    """By which a row is found again in the next view, if it is still there."""
    if (path := path_of(row)) is not None:
        return (path,)
    return tuple(
        word(row.get(name))
        for name in ("worker", "name", "kind", "method", "target", "principal", "seconds", "path", "reason", "topic")
    )


def _one(table: str) -> Callable[[Mapping[str, Any]], Sequence[TopSection]]:
    return lambda view: [TopSection("", rows_of(view, table))]


def _servers(view: Mapping[str, Any]) -> Sequence[TopSection]:
    """Those that are not up first: they are why people look."""
    return [TopSection("", sorted(rows_of(view, "servers"), key=lambda row: row.get("is_up") is True))]


def _tools(view: Mapping[str, Any]) -> Sequence[TopSection]:
    """The most used first; with workers they come by worker."""
    return [TopSection("", sorted(rows_of(view, "tools"), key=lambda row: -(number(row.get("calls")) or 0)))]


def _requests(view: Mapping[str, Any]) -> Sequence[TopSection]:
    return [TopSection(name, rows_of(view, name)) for name in ("running", "slowest", "failed")]


def _letters(view: Mapping[str, Any]) -> Sequence[TopSection]:
    letters = part(view, "dead_letters")
    return [TopSection("by reason", rows_of(letters, "counts")), TopSection("latest", rows_of(letters, "recent"))]


def _nodes(view: Mapping[str, Any]) -> Sequence[TopSection]:
    server = part(view, "server")
    return [TopSection(name, rows_of(server, name)) for name in ("nodes", "workers")]


TABS: Final = (
    TopTab("s", "servers", SERVERS, _servers, "no servers: this is not a broker"),
    TopTab(
        "c", "clients", CLIENTS, _one("clients"), "no sessions; modern clients have none, and show with their requests"
    ),
    TopTab("r", "requests", REQUESTS, _requests, "no requests yet"),
    TopTab("t", "tree", TREE, lambda view: [TopSection("", tree_rows(view))], "no tree", is_tree=True),
    TopTab("d", "dead letters", LETTERS, _letters, "no dead letters: every message reached its actor"),
    TopTab("o", "tools", TOOLS, _tools, "no tools"),
    TopTab("l", "listeners", TOPICS, _one("topics"), "no client listens to a list or a resource"),
    TopTab("n", "nodes", NODES, _nodes, "one process: neither workers nor other nodes"),
)


def matching(rows: Iterable[TopRow], columns: Sequence[TopColumn], wanted: str) -> list[TopRow]:
    """The rows with *wanted* in one of their columns. In a tree, those above them stay, too."""
    rows = list(rows)
    if not wanted:
        return rows
    wanted = wanted.lower()
    found = [row for row in rows if any(wanted in column.text(row).lower() for column in columns)]
    paths = {path for row in found if (path := path_of(row)) is not None}
    if not paths:
        return found
    above = {path[:at] for path in paths for at, letter in enumerate(path) if letter == "/"}
    return [row for row in rows if path_of(row) in paths or path_of(row) in above]


def sorted_by(rows: Sequence[TopRow], column: TopColumn | None, *, is_reversed: bool) -> list[TopRow]:
    """Numbers from the highest, texts from A; what is missing comes last, either way."""
    if column is None:
        return list(reversed(rows)) if is_reversed else list(rows)
    known = [row for row in rows if column.of(row) is not None]
    unknown = [row for row in rows if column.of(row) is None]
    figures = any(number(column.of(row)) is not None for row in known)
    return sorted(known, key=column.order, reverse=figures != is_reversed) + unknown
