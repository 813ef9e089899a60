"""What was begun is undone exactly if its block does not come to its end."""

import pytest
import trio

from callboard.actors.undo import undo_unless_done


def test_what_is_done_is_not_undone() -> None:
    undone: list[str] = []
    with undo_unless_done(lambda: undone.append("a")):
        pass
    assert not undone


def test_a_failure_undoes_once_and_comes_out() -> None:
    undone: list[str] = []
    with pytest.raises(ValueError, match="wrong"), undo_unless_done(lambda: undone.append("a")):
        raise ValueError("wrong")
    assert undone == ["a"]


async def test_a_cancellation_undoes_too() -> None:
    undone: list[str] = []
    with trio.CancelScope() as scope, undo_unless_done(lambda: undone.append("a")):
        scope.cancel()
        await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert undone == ["a"]
