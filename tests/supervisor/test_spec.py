"""The table of who is restarted, without Trio."""

import pytest

from callboard.supervisor import How, Restart, Strategy, SupervisorSpec
from callboard.supervisor.spec import ChildPlan, needs_restart, plan
from tests.supervisor.players import History, player

ONE, ALL = Strategy.ONE_FOR_ONE, Strategy.ONE_FOR_ALL
P, T, X = Restart.PERMANENT, Restart.TRANSIENT, Restart.TEMPORARY


@pytest.mark.parametrize(
    ("restart", "after"),
    [
        (P, {How.RETURNED, How.RAISED, How.CANCELLED, How.START_FAILED}),
        (T, {How.RAISED, How.CANCELLED, How.START_FAILED}),
        (X, set[How]()),
    ],
)
def test_which_ends_are_answered_with_a_restart(restart: Restart, after: set[How]) -> None:
    assert {how for how in How if needs_restart(restart, how)} == after


CHILDREN = [("a", P), ("b", T), ("x", X), ("c", P)]


@pytest.mark.parametrize(
    ("strategy", "died", "how", "expected"),
    [
        (ONE, "b", How.RAISED, ChildPlan(stop=(), start=("b",))),
        (ONE, "b", How.RETURNED, ChildPlan()),
        (ALL, "b", How.RAISED, ChildPlan(stop=("c", "x", "a"), start=("a", "b", "c"))),
        (ALL, "a", How.RETURNED, ChildPlan(stop=("c", "x", "b"), start=("a", "b", "c"))),
        (ALL, "x", How.RAISED, ChildPlan()),
    ],
)
def test_who_is_stopped_and_started_in_which_order(
    strategy: Strategy, died: str, how: How, expected: ChildPlan
) -> None:
    assert plan(strategy, CHILDREN, died, how) == expected


def test_names_are_single_steps_of_a_path_and_unique() -> None:
    with pytest.raises(ValueError, match="invalid name"):
        player("a/b", History())
    with pytest.raises(ValueError, match="invalid name"):
        SupervisorSpec("")
    with pytest.raises(ValueError, match="two children with the same name"):
        SupervisorSpec("top", children=(player("a", History()), SupervisorSpec("a")))
