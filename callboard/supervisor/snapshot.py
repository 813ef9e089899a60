"""The tree as values, and as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import attrs

Fact: TypeAlias = str | int | float | bool | None
"""Value of a fact of an actor: small, and fit for a public page."""


@attrs.frozen(kw_only=True)
class Snapshot:
    """One actor at one moment, with everything below it."""

    name: str
    path: str
    kind: str
    state: str
    age: float
    mailbox_depth: int = 0
    mailbox_size: int = 0
    """0 where there is no mailbox."""
    handled: int = 0
    restarts: int = 0
    last_failure: str | None = None
    facts: Mapping[str, Fact] = attrs.field(factory=dict)
    children: tuple[Snapshot, ...] = ()
    hidden: int = 0
    """How many more children it has."""

    def walk(self) -> Iterator[Snapshot]:
        """Itself and everything below, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def find(self, path: str) -> Snapshot | None:
        """The snapshot at *path*, if there is one."""
        return next((node for node in self.walk() if node.path == path), None)


def facts_of(facts: Callable[[], Mapping[str, Fact]]) -> dict[str, Fact]:
    """The facts of an actor, or that they failed: a snapshot never breaks a tree."""
    try:
        return dict(facts())
    except Exception as error:
        return {"facts_failed": type(error).__name__}


def render(tree: Snapshot) -> str:
    """The tree as plain text, one actor to a line."""
    return "\n".join(_lines(tree, "", ""))


def _lines(node: Snapshot, first: str, rest: str) -> Iterator[str]:
    yield first + _line(node)
    for index, child in enumerate(node.children):
        last = index == len(node.children) - 1
        yield from _lines(child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))


def _line(node: Snapshot) -> str:
    words = [node.name, node.kind, node.state, f"{node.age:.1f}s"]
    if node.mailbox_size:
        words.append(f"{node.mailbox_depth}/{node.mailbox_size} handled={node.handled}")
    if node.restarts:
        words.append(f"restarts={node.restarts}")
    if node.hidden:
        words.append(f"and {node.hidden} more")
    if node.last_failure:
        words.append(f"last_failure={node.last_failure!r}")
    words.extend(f"{key}={value}" for key, value in node.facts.items())
    return " ".join(words)
