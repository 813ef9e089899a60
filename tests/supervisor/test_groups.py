"""What comes out of a nursery that is an implementation detail."""

import pytest
import trio

from callboard.supervisor.groups import first_leaf, leaves, own_nursery, sole


async def fail(error: Exception) -> None:
    raise error


async def test_one_failure_comes_out_by_its_own_name_with_its_cause() -> None:
    error, cause = ValueError("a"), KeyError("b")
    error.__cause__ = cause
    with pytest.raises(ValueError, match="a") as caught:
        async with own_nursery() as nursery:
            nursery.start_soon(fail, error)
    assert (caught.value, caught.value.__cause__) == (error, cause)


@pytest.mark.parametrize("takes_first", [False, True])
async def test_several_come_out_together_unless_the_first_is_enough(takes_first: bool) -> None:
    async def both() -> None:
        async with own_nursery(takes_first=takes_first) as nursery:
            nursery.start_soon(fail, ValueError("a"))
            nursery.start_soon(fail, ValueError("b"))

    if takes_first:
        with pytest.raises(ValueError, match=r"a|b"):
            await both()
    else:
        with pytest.raises(ExceptionGroup) as caught:
            await both()
        assert len(caught.value.exceptions) == 2


async def test_a_failure_beside_a_cancellation_keeps_both() -> None:
    """Trio must see its cancellation again, or the scope around it does not end."""
    scope = trio.CancelScope()

    async def both() -> None:
        with scope:
            async with own_nursery(takes_first=True) as nursery:
                nursery.start_soon(fail, ValueError("a"))
                scope.cancel()
                await trio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught:
        await both()
    assert scope.cancelled_caught
    assert [type(error) for error in caught.value.exceptions] == [ValueError]


async def test_without_a_failure_it_is_a_nursery() -> None:
    done = []
    async with own_nursery() as nursery:
        nursery.start_soon(trio.sleep, 0)
        done.append(1)
    assert done == [1]


def test_leaves_of_groups_in_groups() -> None:
    one, other = ValueError("a"), KeyError("b")
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [one]), other])
    assert leaves(group) == [one, other]
    assert leaves(one) == [one]
    assert first_leaf(group) is one
    assert sole(group) is group
    assert sole(ExceptionGroup("outer", [ExceptionGroup("inner", [one])])) is one
    assert sole(one) is one
