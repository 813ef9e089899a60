"""A supervision tree as data, and the table of which children are restarted when one ends. No Trio."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import attrs

from callboard.supervisor.ended import How
from callboard.supervisor.window import Backoff, Intensity

if TYPE_CHECKING:
    from callboard.supervisor.actor import Actor
    from callboard.supervisor.supervisor import Supervisor

DRAIN_TIME: Final = 5.0
"""Seconds a child has to finish when it is asked to stop, as in OTP; then it is cancelled."""

START_TIME: Final = 30.0
"""Seconds a child has to start. A start blocks those that follow, so it may not take for ever."""

M = TypeVar("M")


class Restart(Enum):
    """Kinds of ends of a child that lead to a restart."""

    PERMANENT = "permanent"
    TRANSIENT = "transient"
    TEMPORARY = "temporary"


class Strategy(Enum):
    """Children that are restarted together."""

    ONE_FOR_ONE = "one_for_one"
    ONE_FOR_ALL = "one_for_all"


def check_name(name: str) -> None:
    """Refuse what is not one step of a path. Raises ValueError."""
    if not name or "/" in name:
        raise ValueError(f"invalid name {name!r}")


def _name(_: object, attribute: object, value: str) -> None:
    check_name(value)


@attrs.frozen
class ChildSpec(Generic[M]):
    """One declared child. `actor` makes a fresh one for every incarnation, unless it says what is *kept*."""

    name: str = attrs.field(validator=_name)
    actor: Callable[[], Actor[M]]
    restart: Restart = attrs.field(default=Restart.PERMANENT, kw_only=True)
    shutdown: float = attrs.field(default=DRAIN_TIME, kw_only=True)
    start_within: float = attrs.field(default=START_TIME, kw_only=True)
    significant: bool = attrs.field(default=False, kw_only=True)
    """When it has ended for good, its supervisor stops the others and returns (OTP: `any_significant`)."""
    tasks: Supervisor | None = attrs.field(default=None, kw_only=True)
    """Where its task runs, if it may stay with something that outlives the siblings (`Actor.pass_on`)."""
    kept: str = attrs.field(default="", kw_only=True)
    """Why the same object comes back after a crash, where it does: what it holds that others rely on."""


@attrs.frozen
class SupervisorSpec:
    """A supervisor and its children. Order is meaning: started top to bottom, stopped bottom to top."""

    name: str = attrs.field(validator=_name)
    children: tuple[ChildSpec[Any] | SupervisorSpec, ...] = attrs.field(default=(), kw_only=True)
    strategy: Strategy = attrs.field(default=Strategy.ONE_FOR_ONE, kw_only=True)
    intensity: Intensity = attrs.field(factory=Intensity, kw_only=True)
    backoff: Backoff = attrs.field(factory=Backoff, kw_only=True)
    restart: Restart = attrs.field(default=Restart.PERMANENT, kw_only=True)
    significant: bool = attrs.field(default=False, kw_only=True)
    drain: float = attrs.field(default=DRAIN_TIME, kw_only=True)
    """Seconds its spawned and adopted children share when it stops; they are asked all at once."""

    def __attrs_post_init__(self) -> None:
        names = [child.name for child in self.children]
        if len(set(names)) != len(names):
            raise ValueError(f"{self.name} has two children with the same name")


def needs_restart(restart: Restart, how: How) -> bool:
    """The OTP rule: always, only if it ended badly, or never."""
    return how in RESTARTED_AFTER[restart]


RESTARTED_AFTER: Final = {
    Restart.PERMANENT: frozenset(How),
    Restart.TRANSIENT: frozenset(How) - {How.RETURNED},
    Restart.TEMPORARY: frozenset[How](),
}


@attrs.frozen
class ChildPlan:
    """Plan after the end of a child: first *stop* these, in this order; then, after the backoff, *start* these."""

    stop: tuple[str, ...] = ()
    start: tuple[str, ...] = ()


def plan(strategy: Strategy, children: Sequence[tuple[str, Restart]], died: str, how: How) -> ChildPlan:
    """Decide what follows when *died*, one of *children* (in start order), ended like so.

    An empty plan means that nothing follows. Temporary children of a group are stopped and not started again.
    """
    names = [name for name, _ in children]
    index = names.index(died)
    if not needs_restart(children[index][1], how):
        return ChildPlan()
    group = {
        Strategy.ONE_FOR_ONE: children[index : index + 1],
        Strategy.ONE_FOR_ALL: children,
    }[strategy]
    return ChildPlan(
        stop=tuple(name for name, _ in reversed(group) if name != died),
        start=tuple(name for name, restart in group if restart is not Restart.TEMPORARY),
    )
