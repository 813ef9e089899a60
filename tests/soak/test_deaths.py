"""Promises 2 and 21: a death that hides, and what is asked again after one."""

import pytest

from benchmarks.nemesis_acts import Run
from benchmarks.nemesis_fronts import Outcome
from benchmarks.nemesis_history import share
from tests.figures import BUSY, figure
from tests.soak.stage import scene

GONE = -31001


async def asked(run: Run, tool: str, **arguments: object) -> Outcome:
    outcome = await run.ask("b0", tool, **arguments)
    assert outcome is not None
    return outcome


def runs(run: Run) -> dict[str, int]:
    """How often each key was executed."""
    keys = [str(fact.get("ran", fact.get("read"))) for fact in run.stand.facts("b0") if "ran" in fact or "read" in fact]
    return {key: keys.count(key) for key in keys}


async def test_2_a_death_is_noticed_even_if_a_grandchild_keeps_the_output_open() -> None:
    async with scene() as here:
        run, late = here.run, list[float]()
        for number in range(1, 6):
            await run.wait_up("b0")
            waiting = [await run.front.send("b0", "hold") for _ in range(100)]
            await asked(run, "meet", count=100)
            await asked(run, "fault", how="orphan")
            for one in waiting:
                outcome = await run.wait(one)
                assert outcome is not None
                assert outcome.code == GONE
            left = [fact for fact in run.stand.facts("b0") if "orphan" in fact]
            assert len(left) == number
            late += [one.began + one.outcome.seconds - left[-1]["at"] for one in waiting if one.outcome is not None]
        await run.wait_up("b0")
        await run.stand.wait_state({**run.stand.state(), "children": 1}, 5)
        assert run.stand.state()["children"] == 1  # no orphan is left
        assert not here.verdict().faults
    late.sort()
    figure("promise 2", f"{len(late)} errors, p99 {share(late, 0.99) * 1000:.0f} ms after the death that was hidden")
    assert share(late, 0.99) <= 0.1 * BUSY


async def test_21_a_call_is_never_made_twice_and_a_read_at_most_once_more() -> None:
    async with scene() as here:
        run = here.run
        lost = await asked(run, "read", suffix="-lost")
        assert lost.is_result
        fatal = await asked(run, "read", suffix="-fatal")
        assert (fatal.is_result, fatal.code, fatal.body["data"]["exitCode"]) == (False, GONE, 9)
        once = await asked(run, "again")  # it says that it may be repeated, and nobody believes it
        assert once.code == GONE
        await asked(run, "fault", how="crash")
        crashed = await asked(run, "echo")
        assert (crashed.code, crashed.body["data"]["exitCode"]) == (GONE, 7)
        await run.wait_up("b0")
        assert sorted(runs(run).values()) == sorted([2, 2, 1, 1, 1, *[1] * (len(runs(run)) - 5)])
        assert not here.verdict().faults
    figure("promise 21", "2 reads asked once more, 3 calls not")


async def test_21_a_trusted_server_s_idempotent_tool_is_called_once_more() -> None:
    async with scene(trusted=True) as here:
        again = await asked(here.run, "again")
        assert again.is_result
        await asked(here.run, "fault", how="crash")
        assert (await asked(here.run, "echo")).code == GONE
        assert sorted(runs(here.run).values()) == [1, 1, 2]


@pytest.mark.parametrize("front", ["ws", "http"])
async def test_21_what_is_cancelled_by_a_timeout_is_not_asked_again(front: str) -> None:
    async with scene(front=front, timeout=0.3) as here:
        outcome = await asked(here.run, "hold")
        assert outcome.code == -31002
        await here.run.wait_up("b0")
        assert [fact for fact in here.run.stand.facts("b0") if "cancelled" in fact]  # it was told so
        assert not here.verdict().faults


@pytest.mark.finding("faults-low-deaf")
async def test_5_a_backend_that_does_not_read_costs_exactly_the_deadline() -> None:
    async with scene(timeout=1.0) as here:
        run, taken = here.run, list[float]()
        await run.wait_up("b0")
        await asked(run, "fault", how="deaf")
        for _ in range(2):  # the pipe is full after the first; after the third the backend is found to be hung
            outcome = await asked(run, "echo", filler="x" * 200_000)
            assert outcome.code == -31002
            taken.append(outcome.seconds)
    figure("promise 5", f"a deaf backend, timeout 1 s: errors after {min(taken):.3f} to {max(taken):.3f} s", "1 s")
    assert min(taken) >= 1.0
    assert max(taken) <= 1.0 + 0.1 * BUSY
