"""The supervision matrix: strategy x restart type x way to die, and escalation. Every time is virtual and exact.

Three children, a, b and c; at second 1 b dies. A row says what follows.
"""
# ruff: noqa: PT012  # the block is the life of the tree: the error comes out of it, not of one line

import pytest
import trio
from trio.testing import MockClock

from callboard.errors import StartFailed, TooManyRestarts
from callboard.supervisor import (
    Address,
    Intensity,
    Restart,
    Strategy,
    SupervisorSpec,
    open_tree,
)
from tests.supervisor.players import STEADY, Crash, History, Message, Return, fails_on, player

ONE, ALL = Strategy.ONE_FOR_ONE, Strategy.ONE_FOR_ALL
PERMANENT, TRANSIENT, TEMPORARY = Restart.PERMANENT, Restart.TRANSIENT, Restart.TEMPORARY

B_ALONE = ["b- 1", "b+ 1.1"]
EVERYBODY = ["b- 1", "c- 1", "a- 1", "a+ 1.1", "b+ 1.1", "c+ 1.1"]
B_AND_C = ["b- 1", "c- 1", "b+ 1.1", "c+ 1.1"]
NOBODY = ["b- 1"]

MATRIX = [
    (ONE, PERMANENT, "return", B_ALONE),
    (ONE, PERMANENT, "raise", B_ALONE),
    (ONE, PERMANENT, "cancel", B_ALONE),
    (ONE, TRANSIENT, "return", NOBODY),
    (ONE, TRANSIENT, "raise", B_ALONE),
    (ONE, TRANSIENT, "cancel", B_ALONE),
    (ONE, TEMPORARY, "return", NOBODY),
    (ONE, TEMPORARY, "raise", NOBODY),
    (ONE, TEMPORARY, "cancel", NOBODY),
    (ALL, PERMANENT, "return", EVERYBODY),
    (ALL, PERMANENT, "raise", EVERYBODY),
    (ALL, PERMANENT, "cancel", EVERYBODY),
    (ALL, TRANSIENT, "return", NOBODY),
    (ALL, TRANSIENT, "raise", EVERYBODY),
    (ALL, TRANSIENT, "cancel", EVERYBODY),
    (ALL, TEMPORARY, "return", NOBODY),
    (ALL, TEMPORARY, "raise", NOBODY),
    (ALL, TEMPORARY, "cancel", NOBODY),
]


def die(address: Address[Message], way: str) -> None:
    match way:
        case "return":
            address.send_nowait(Return())
        case "raise":
            address.send_nowait(Crash())
        case "cancel":
            address.kill()


@pytest.mark.parametrize(("strategy", "restart", "way", "expected"), MATRIX)
async def test_who_follows_a_death(
    autojump_clock: MockClock, strategy: Strategy, restart: Restart, way: str, expected: list[str]
) -> None:
    history = History()
    b = player("b", history, restart=restart)
    spec = SupervisorSpec(
        "top", children=(player("a", history), b, player("c", history)), strategy=strategy, backoff=STEADY
    )
    async with open_tree(spec) as root:
        assert history.take() == ["a+ 0", "b+ 0", "c+ 0"]
        address = root.address_of(b)
        await trio.sleep(1)
        die(address, way)
        await trio.sleep(20)
        assert history.take() == expected
        alive = expected is not NOBODY
        assert (address.ended is None) == alive
        assert [node.name for node in root.tree().children] == ["a", "b", "c"] if alive else ["a", "c"]
    assert history.take() == (["c- 21", "b- 21", "a- 21"] if alive else ["c- 21", "a- 21"])


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("restart", Restart)
async def test_a_failed_first_start_stops_those_before_and_fails_the_supervisor(
    autojump_clock: MockClock, strategy: Strategy, restart: Restart
) -> None:
    history = History()
    children = (
        player("a1", history),
        player("a2", history),
        player("b", history, restart=restart, fail_start=fails_on(1)),
        player("c", history),
    )
    with pytest.raises(StartFailed, match="top/b failed to start: Boom: start"):
        async with open_tree(SupervisorSpec("top", children=children, strategy=strategy)):
            pytest.fail("never opened")  # pragma: no cover
    assert history.take() == ["a1+ 0", "a2+ 0", "b! 0", "a2- 0", "a1- 0"]


FAILED_RESTARTS = {
    ONE: ["b- 1", "b! 1.1", "b! 1.3", "b+ 1.7"],
    ALL: [
        *("b- 1", "c- 1", "a- 1"),
        *("a+ 1.1", "b! 1.1", "a- 1.1"),
        *("a+ 1.3", "b! 1.3", "a- 1.3"),
        *("a+ 1.7", "b+ 1.7", "c+ 1.7"),
    ],
}


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("restart", [PERMANENT, TRANSIENT])
async def test_a_failed_restart_backs_off_further_and_is_tried_again(
    autojump_clock: MockClock, strategy: Strategy, restart: Restart
) -> None:
    history = History()
    b = player("b", history, restart=restart, fail_start=fails_on(2, 3))
    children = (player("a", history), b, player("c", history))
    async with open_tree(SupervisorSpec("top", children=children, strategy=strategy, backoff=STEADY)) as root:
        history.take()
        await trio.sleep(1)
        await root.address_of(b).send(Crash())
        await trio.sleep(20)
        assert history.take() == FAILED_RESTARTS[strategy]
        found = root.tree().find("top/b")
        assert found is not None
        assert (found.restarts, found.last_failure) == (3, "Boom: start")


ESCALATIONS = {
    ONE: ["c- 2", "a- 2"],
    ALL: ["c- 2", "a- 2"],
}


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("way", ["return", "raise", "cancel"])
async def test_passing_the_intensity_stops_all_in_reverse_and_comes_out_at_the_root(
    autojump_clock: MockClock, strategy: Strategy, way: str
) -> None:
    history = History()
    b = player("b", history)
    spec = SupervisorSpec(
        "top",
        children=(player("a", history), b, player("c", history)),
        strategy=strategy,
        intensity=Intensity(2, per=10),
        backoff=STEADY,
    )
    with pytest.raises(TooManyRestarts, match=r"top: more than 2 restarts in 10 s; last b") as caught:
        async with open_tree(spec) as root:
            address = root.address_of(b)
            die(address, way)
            await trio.sleep(1)
            die(address, way)
            await trio.sleep(1)
            history.take()
            die(address, way)
            await trio.sleep_forever()
    assert history.take() == ["b- 2", *ESCALATIONS[strategy]]
    assert trio.current_time() == 2
    assert (caught.value.child, caught.value.restarts, caught.value.per) == ("b", 2, 10)


@pytest.mark.parametrize("strategy", Strategy)
async def test_failed_restarts_count_against_the_intensity(autojump_clock: MockClock, strategy: Strategy) -> None:
    history = History()
    b = player("b", history, fail_start=fails_on(2, 3, 4, 5, 6, 7, 8))
    spec = SupervisorSpec("top", children=(b,), strategy=strategy, intensity=Intensity(4, per=60), backoff=STEADY)
    with pytest.raises(TooManyRestarts):
        async with open_tree(spec) as root:
            history.take()
            await root.address_of(b).send(Crash())
            await trio.sleep_forever()
    assert history.take() == ["b- 0", "b! 0.1", "b! 0.3", "b! 0.7", "b! 1.5"]


async def test_a_restart_as_old_as_the_period_still_counts_and_an_older_one_does_not(
    autojump_clock: MockClock,
) -> None:
    b = player("b", History())
    spec = SupervisorSpec("top", children=(b,), intensity=Intensity(1, per=10), backoff=STEADY)
    async with open_tree(spec) as root:
        address = root.address_of(b)
        address.kill()
        await trio.sleep(10.001)
        address.kill()
        await trio.sleep(5)
        assert root.tree().children[0].restarts == 2
    with pytest.raises(TooManyRestarts):
        async with open_tree(spec) as root:
            address = root.address_of(b)
            address.kill()
            await trio.sleep(10)
            address.kill()
            await trio.sleep_forever()


async def test_an_escalation_is_one_death_for_the_supervisor_above(autojump_clock: MockClock) -> None:
    """Inner allows one restart, outer allows one of inner: the fourth death in a row comes out."""
    history = History()
    leaf = player("leaf", history)
    inner = SupervisorSpec(
        "inner", children=(player("x", history), leaf), intensity=Intensity(1, per=60), backoff=STEADY
    )
    outer = SupervisorSpec(
        "outer", children=(player("o", history), inner), intensity=Intensity(1, per=60), backoff=STEADY
    )
    with pytest.raises(TooManyRestarts) as caught:
        async with open_tree(outer) as root:
            assert history.take() == ["o+ 0", "x+ 0", "leaf+ 0"]
            for _ in range(2):
                root.address_of(leaf).kill()
                await trio.sleep(1)
            assert history.take() == ["leaf- 0", "leaf+ 0.1", "leaf- 1", "x- 1", "x+ 1.1", "leaf+ 1.1"]
            inner_now = root.tree().find("outer/inner")
            assert inner_now is not None
            assert inner_now.last_failure is not None
            assert "outer/inner: more than 1 restarts in 60 s" in inner_now.last_failure
            for _ in range(2):
                root.address_of(leaf).kill()
                await trio.sleep(1)
    assert history.take() == ["leaf- 2", "leaf+ 2.1", "leaf- 3", "x- 3", "o- 3"]
    assert caught.value.path == "outer"
    assert isinstance(caught.value.__cause__, TooManyRestarts)
    assert caught.value.__cause__.path == "outer/inner"


async def test_two_that_die_together_under_one_for_all_are_one_restart(autojump_clock: MockClock) -> None:
    history = History()
    a, b = player("a", history), player("b", history)
    spec = SupervisorSpec("top", children=(a, b), strategy=ALL, intensity=Intensity(1, per=60), backoff=STEADY)
    async with open_tree(spec) as root:
        history.take()
        root.address_of(a).kill()
        root.address_of(b).kill()
        await trio.sleep(5)
        assert sorted(history.take()[:2]) == ["a- 0", "b- 0"]
        assert [node.restarts for node in root.tree().children] == [1, 1]


async def test_a_group_restart_starts_a_transient_that_had_returned_as_a_new_actor(
    autojump_clock: MockClock,
) -> None:
    history = History()
    a, b = player("a", history, restart=TRANSIENT), player("b", history)
    async with open_tree(SupervisorSpec("top", children=(a, b), strategy=ALL, backoff=STEADY)) as root:
        first = root.address_of(a)
        await first.send(Return())
        await first.wait_ended()
        history.take()
        root.address_of(b).kill()
        await trio.sleep(1)
        assert history.take() == ["b- 0", "a+ 0.1", "b+ 0.1"]
        assert first.ended is not None
        assert root.address_of(a) != first


async def test_temporaries_of_a_group_are_stopped_and_not_started_again(autojump_clock: MockClock) -> None:
    history = History()
    b = player("b", history)
    t = player("t", history, restart=TEMPORARY)
    async with open_tree(SupervisorSpec("top", children=(b, t), strategy=ALL, backoff=STEADY)) as root:
        address = root.address_of(t)
        history.take()
        root.address_of(b).kill()
        await trio.sleep(1)
        assert history.take() == ["b- 0", "t- 0", "b+ 0.1"]
        assert address.ended is not None
        assert address.ended.why == "stopped"


async def test_a_back_off_holds_nobody_else_up(autojump_clock: MockClock) -> None:
    history = History()
    a, b = player("a", history), player("b", history)
    spec = SupervisorSpec("top", children=(a, b), backoff=STEADY, intensity=Intensity(9, per=60))
    async with open_tree(spec) as root:
        for at in (0, 0.2, 0.5):
            await trio.sleep(at - trio.current_time())
            root.address_of(a).kill()
            await trio.testing.wait_all_tasks_blocked()
        history.take()
        await trio.sleep(0.05)
        root.address_of(b).kill()
        await trio.sleep(5)
        assert history.take() == ["b- 0.55", "b+ 0.65", "a+ 0.9"]


async def test_a_child_that_lived_a_whole_period_begins_its_back_off_anew(autojump_clock: MockClock) -> None:
    history = History()
    a = player("a", history)
    spec = SupervisorSpec("top", children=(a,), backoff=STEADY, intensity=Intensity(2, per=10))
    async with open_tree(spec) as root:
        for _ in range(2):
            root.address_of(a).kill()
            await trio.sleep(1)
        await trio.sleep(18)
        history.take()
        root.address_of(a).kill()
        await trio.sleep(1)
        assert history.take() == ["a- 20", "a+ 20.1"]


async def test_the_end_of_a_significant_child_ends_its_supervisor_in_order(autojump_clock: MockClock) -> None:
    history = History()
    main = player("main", history, restart=TEMPORARY, significant=True)
    session = SupervisorSpec("s-1", children=(player("a", history), main, player("c", history)), restart=TEMPORARY)
    async with open_tree(SupervisorSpec("top", children=(session,))) as root:
        nested = root.supervisor_of("s-1")
        await root.address_of(main).send(Return())
        ended = await nested.address.wait_ended()
        assert ended.why == "returned"
        assert history.take()[3:] == ["main- 0", "c- 0", "a- 0"]
        assert root.tree().children == ()


async def test_a_revived_transient_that_fails_to_start_is_tried_again(autojump_clock: MockClock) -> None:
    history = History()
    a, b = player("a", history, restart=TRANSIENT, fail_start=fails_on(2)), player("b", history)
    async with open_tree(SupervisorSpec("top", children=(a, b), strategy=ALL, backoff=STEADY)) as root:
        first = root.address_of(a)
        await first.send(Return())
        await first.wait_ended()
        history.take()
        root.address_of(b).kill()
        await trio.sleep(1)
        assert history.take() == ["b- 0", "a! 0.1", "a+ 0.2", "b+ 0.2"]


async def test_one_that_is_stopped_while_its_group_halts_is_not_brought_back(autojump_clock: MockClock) -> None:
    history = History()
    a, b = player("a", history), player("b", history, linger=2)
    async with open_tree(SupervisorSpec("top", children=(a, b), strategy=ALL, backoff=STEADY)) as root:
        address = root.address_of(a)
        address.kill()
        await trio.sleep(1)
        assert (await address.stop()).why == "killed"
        await trio.sleep(9)
        assert history.take() == ["a+ 0", "b+ 0", "a- 0", "b- 2", "b+ 2"]
