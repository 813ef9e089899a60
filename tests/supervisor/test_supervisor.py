"""Children that come while it runs: spawned, added, adopted; and how everything stops."""

import gc
import weakref

import attrs
import pytest
import trio
import trio.testing
from structlog.testing import capture_logs
from trio.testing import MockClock

from callboard.errors import NameTaken, StartFailed, SupervisorClosed
from callboard.supervisor import (
    Actor,
    ChildSpec,
    Ended,
    How,
    Intensity,
    Restart,
    Snapshot,
    Strategy,
    Supervisor,
    SupervisorSpec,
    open_tree,
)
from tests.supervisor.players import STEADY, Add, Boom, Crash, Get, Hang, History, Player, fails_on, player

TOP = SupervisorSpec("top")


def names(tree: Snapshot) -> list[str]:
    return [child.name for child in tree.children]


async def test_the_crash_of_a_spawned_child_is_nobody_elses_affair(autojump_clock: MockClock) -> None:
    history = History()
    spec = SupervisorSpec(
        "top", children=(player("a", history),), strategy=Strategy.ONE_FOR_ALL, intensity=Intensity(0, per=1)
    )
    async with open_tree(spec) as root:
        for n in range(20):
            address = root.spawn(Player(), name=f"p{n}")
            await address.send(Crash())
            assert (await address.wait_ended()).how is How.RAISED
        assert history.take() == ["a+ 0"]
        assert names(root.tree()) == ["a"]


async def test_a_spawned_child_that_fails_to_start_is_news() -> None:
    async with open_tree(TOP) as root:
        address = root.spawn(Player(fail_start=fails_on(1)), name="p")
        assert await address.wait_ended() == Ended(How.START_FAILED, "Boom: start")


async def test_a_name_is_taken_only_once_and_is_free_again_afterwards() -> None:
    async with open_tree(SupervisorSpec("top", children=(player("a", History()),))) as root:
        p = root.spawn(Player(), name="p")
        with pytest.raises(NameTaken, match="top/p already exists"):
            root.spawn(Player(), name="p")
        with pytest.raises(NameTaken), root.adopt("p", kind="request"):
            pass
        with pytest.raises(NameTaken):
            root.spawn(Player(), name="a")
        with pytest.raises(NameTaken):
            await root.add(player("a", History()))
        await p.stop()
        root.spawn(Player(), name="p")
        with pytest.raises(ValueError, match="invalid name"):
            root.spawn(Player(), name="a/b")


async def test_an_actor_has_one_place_in_one_tree() -> None:
    async with open_tree(TOP) as root:
        actor = Player()
        root.spawn(actor, name="p")
        with pytest.raises(ValueError, match=r"already in a tree, as top/p"):
            root.spawn(actor, name="q")
        assert names(root.tree()) == ["p"]
    with pytest.raises(LookupError, match="not in a tree yet"):
        _ = Player().address


async def test_an_actor_knows_where_it_is() -> None:
    async with open_tree(TOP) as root:
        actor = Player()
        address = root.spawn(actor, name="p")
        assert (actor.path, actor.address, actor.supervisor) == ("top/p", address, root)
        assert root.name == "top"
        with pytest.raises(LookupError, match="is the root"):
            _ = root.supervisor
        with pytest.raises(LookupError, match="no mailbox"):
            _ = root.inbox


async def test_a_closed_supervisor_takes_nobody() -> None:
    async with open_tree(TOP) as root:
        pass
    with pytest.raises(SupervisorClosed, match="top accepts no children: not running"):
        root.spawn(Player(), name="p")
    with pytest.raises(SupervisorClosed), root.adopt("x", kind="y"):
        pass
    with pytest.raises(SupervisorClosed):
        await root.add(player("a", History()))


async def test_an_added_child_is_started_restarted_and_stopped_in_its_place(autojump_clock: MockClock) -> None:
    history = History()
    async with open_tree(SupervisorSpec("top", children=(player("a", history),), backoff=STEADY)) as root:
        address = await root.add(player("b", history))
        assert history.take() == ["a+ 0", "b+ 0"]
        address.kill()
        await trio.sleep(1)
    assert history.take() == ["b- 0", "b+ 0.1", "b- 1", "a- 1"]


async def test_an_added_child_that_does_not_start_is_not_declared(autojump_clock: MockClock) -> None:
    history = History()
    async with open_tree(SupervisorSpec("top", intensity=Intensity(0, per=1))) as root:
        with pytest.raises(StartFailed, match="top/b failed to start: Boom: start"):
            await root.add(player("b", history, fail_start=fails_on(1)))
        await trio.sleep(5)
        assert history.take() == ["b! 0"]
        assert names(root.tree()) == []


async def test_a_start_that_takes_too_long_has_failed(autojump_clock: MockClock) -> None:
    class Sleeper(Player):
        async def start(self) -> None:
            await trio.sleep_forever()

    with pytest.raises(StartFailed, match="TooSlowError"):
        async with open_tree(SupervisorSpec("top", children=(ChildSpec("s", Sleeper, start_within=7),))):
            pass
    assert trio.current_time() == 7


async def test_a_factory_that_raises_is_a_failed_start() -> None:
    def make() -> Player:
        raise Boom("factory")

    with pytest.raises(StartFailed, match="Boom: factory"):
        async with open_tree(SupervisorSpec("top", children=(ChildSpec("s", make),))):
            pass


async def test_a_session_is_an_added_supervisor_that_ends_with_its_main_child() -> None:
    async with open_tree(SupervisorSpec("top", children=(SupervisorSpec("sessions"),))) as root:
        sessions = root.supervisor_of("sessions")
        main = player("main", History(), restart=Restart.TEMPORARY, significant=True)
        session = await sessions.add(SupervisorSpec("s-12", children=(main,), restart=Restart.TEMPORARY))
        request = session.spawn(Player(), name="r-1")
        assert request.path == "top/sessions/s-12/r-1"
        assert root.supervisor_of("sessions/s-12") is session
        await session.address_of(main).stop()
        assert (await session.address.wait_ended()).why == "returned"
        assert (await request.wait_ended()).why == "stopped"
        assert names(sessions.tree()) == []
        with pytest.raises(LookupError):
            root.supervisor_of("sessions/s-12")


async def test_a_supervisor_is_the_same_after_its_restart_and_its_children_are_new(
    autojump_clock: MockClock,
) -> None:
    leaf = player("leaf", History())
    spec = SupervisorSpec("top", children=(SupervisorSpec("inner", children=(leaf,)),), backoff=STEADY)
    async with open_tree(spec) as root:
        inner = root.supervisor_of("inner")
        first, spawned = inner.address_of(leaf), inner.spawn(Player(), name="p")
        inner.address.kill()
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(SupervisorClosed):
            inner.spawn(Player(), name="q")
        assert spawned.ended == first.ended == Ended(How.CANCELLED, "its supervisor was cancelled")
        await inner.address.wait_started()
        assert root.supervisor_of("inner") is inner
        assert inner.address_of(leaf) != first
        assert names(inner.tree()) == ["leaf"]


async def test_a_supervisor_is_found_while_its_group_brings_it_back(autojump_clock: MockClock) -> None:
    main = player("main", History(), restart=Restart.TEMPORARY, significant=True)
    inner = SupervisorSpec("inner", children=(main,), restart=Restart.TRANSIENT)
    p = player("p", History())
    spec = SupervisorSpec("top", children=(p, inner), strategy=Strategy.ONE_FOR_ALL, backoff=STEADY)
    async with open_tree(spec) as root:
        found = root.supervisor_of("inner")
        await root.address_of(main).stop()
        await found.address.wait_ended()
        root.address_of(p).kill()
        while trio.current_time() < 0.2:
            assert root.supervisor_of("inner") is found
            await trio.sleep(0.1)
        assert found.address.ended is None


async def test_adopted_blocks_are_in_the_tree_and_can_be_cancelled(autojump_clock: MockClock) -> None:
    async with open_tree(TOP) as root:
        with root.adopt("r-1", kind="Request", facts=lambda: {"method": "tools/call"}) as adopted:
            await trio.sleep(2)
            [node] = root.tree().children
            assert attrs.asdict(node, recurse=False) == {
                **attrs.asdict(
                    Snapshot(name="r-1", path="top/r-1", kind="Request", state="running", age=2.0), recurse=False
                ),
                "facts": {"method": "tools/call"},
            }
            adopted.state = "parked"
            assert root.tree().children[0].state == "parked"
            adopted.cancel()
            await trio.sleep_forever()
        assert adopted.scope.cancelled_caught
        assert root.tree().children == ()


async def test_what_an_adopted_block_raises_is_its_adopters() -> None:
    async with open_tree(TOP) as root:
        with pytest.raises(Boom), root.adopt("r-1", kind="Request"):
            raise Boom
        assert root.tree().children == ()


async def test_adopted_blocks_get_the_drain_time_when_their_supervisor_stops(autojump_clock: MockClock) -> None:
    ends: list[float] = []

    async def block(supervisor: Supervisor, name: str, takes: float) -> None:
        with supervisor.adopt(name, kind="Request") as adopted:
            await trio.sleep(takes)
        ends.append(trio.current_time())
        assert adopted.scope.cancelled_caught == (takes > 4)

    spec = SupervisorSpec("top", drain=4, children=(player("a", History(), linger=3),))
    async with trio.open_nursery() as nursery, open_tree(spec) as root:
        nursery.start_soon(block, root, "short", 1)
        nursery.start_soon(block, root, "long", 99)
        await trio.testing.wait_all_tasks_blocked(0)
    assert sorted(ends) == [1, 4]
    assert trio.current_time() == 7


async def test_facts_that_fail_do_not_break_the_tree() -> None:
    class Shy(Player):
        def facts(self) -> dict[str, str]:
            raise Boom

    def shy() -> dict[str, str]:
        raise Boom

    async with open_tree(TOP) as root:
        root.spawn(Shy(), name="p")
        with root.adopt("x", kind="y", facts=shy):
            assert [child.facts for child in root.tree().children] == [{"facts_failed": "Boom"}] * 2


async def test_keyboard_interrupt_is_nobodys_to_catch() -> None:
    class Interrupted(Actor[Add]):
        async def run(self) -> None:
            raise KeyboardInterrupt

    with pytest.raises(BaseExceptionGroup) as caught:  # noqa: PT012
        async with open_tree(TOP) as root:
            root.spawn(Interrupted(), name="p")
            await trio.sleep_forever()
    assert caught.group_contains(KeyboardInterrupt)


async def test_ten_thousand_actors_leave_nothing() -> None:
    async with open_tree(TOP) as root:
        before = root.tree()
        actors = [Player() for _ in range(10_000)]
        addresses = [root.spawn(actor, name=f"p{n}") for n, actor in enumerate(actors)]
        assert await addresses[-1].ask(Get(), within=60) == 0
        assert len(root.tree().children) == 10_000
        for address in addresses:
            address.begin_stop()
        for address in addresses:
            await address.wait_ended()
        assert attrs.evolve(root.tree(), age=0.0) == attrs.evolve(before, age=0.0)
        remembered = [weakref.ref(actor) for actor in actors]
        del actors, addresses, address
        gc.collect()
        assert [actor for actor in remembered if actor() is not None] == []


async def test_a_cancel_storm_ends_all_and_nobody_else() -> None:
    async with open_tree(TOP) as root:
        neighbour = root.spawn(Player(), name="neighbour")
        addresses = [root.spawn(Player(), name=f"p{n}") for n in range(1000)]
        for address in addresses:
            address.send_nowait(Hang())
        await trio.testing.wait_all_tasks_blocked()
        for address in addresses:
            address.kill()
        assert await neighbour.ask(Get(), within=60) == 0
        assert [(await address.wait_ended()).how for address in addresses] == [How.CANCELLED] * 1000
        assert names(root.tree()) == ["neighbour"]


async def test_a_supervisor_stopped_while_it_starts_starts_nobody_else(autojump_clock: MockClock) -> None:
    class Sleeper(Player):
        async def start(self) -> None:
            await trio.sleep_forever()

    history = History()
    inner = SupervisorSpec("in", children=(ChildSpec("s", Sleeper, shutdown=2), player("late", history)))
    async with open_tree(TOP) as root, trio.open_nursery() as nursery:
        nursery.start_soon(root.add, inner)
        await trio.testing.wait_all_tasks_blocked()
        assert (await root.child("in").stop()).why == "stopped"
        assert trio.current_time() == 2
    assert history.take() == []


async def test_a_killed_supervisor_takes_all_three_kinds_with_it(autojump_clock: MockClock) -> None:
    declared = player("declared", History())
    inner = SupervisorSpec("in", children=(declared,), backoff=STEADY, restart=Restart.TEMPORARY)
    async with open_tree(SupervisorSpec("top", children=(inner,))) as root:
        supervisor = root.supervisor_of("in")
        backing_off, spawned = supervisor.address_of(declared), supervisor.spawn(Player(), name="spawned")
        backing_off.kill()
        await trio.sleep(0.05)
        with supervisor.adopt("adopted", kind="Request") as adopted:
            supervisor.address.kill()
            await trio.sleep_forever()
        assert adopted.scope.cancelled_caught
        for address in (backing_off, spawned):
            assert address.ended == Ended(How.CANCELLED, "its supervisor was cancelled")


async def test_looking_for_somebody_who_is_not_there_says_so() -> None:
    async with open_tree(SupervisorSpec("top", children=(SupervisorSpec("in"),))) as root:
        with pytest.raises(LookupError, match="no running x under top"):
            root.address_of(player("x", History()))
        with pytest.raises(LookupError, match="no running x under top"):
            root.child("x")
        with pytest.raises(LookupError, match="no supervisor x under in"):
            root.supervisor_of("in/x")


async def test_an_actor_without_a_run_crashes() -> None:
    async with open_tree(TOP) as root:
        assert (await root.spawn(Actor[Add](), name="p").wait_ended()).why == "NotImplementedError"


async def test_one_stopped_before_its_first_step_sees_it_at_once(autojump_clock: MockClock) -> None:
    async with open_tree(SupervisorSpec("top", children=(SupervisorSpec("in"),))) as root:
        for n in range(20):  # which task runs first is chance
            inner = await root.add(SupervisorSpec(f"in{n}"))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(inner.add, player("p", History()))
                await trio.lowlevel.checkpoint()
                assert (await inner.address.stop()).why == "stopped"
        assert trio.current_time() == 0


async def test_one_declared_anew_while_its_group_halts_is_not_started_twice(autojump_clock: MockClock) -> None:
    history = History()
    a, b = player("a", history), player("b", history, linger=2)
    spec = SupervisorSpec("top", children=(a, b), strategy=Strategy.ONE_FOR_ALL, backoff=STEADY)
    async with open_tree(spec) as root:
        await root.address_of(a).send(Crash())
        await trio.sleep(1)
        await root.address_of(a).stop()
        await root.add(a)
        await trio.sleep(9)
        assert history.take() == ["a+ 0", "b+ 0", "a- 0", "a+ 1", "b- 2", "b+ 2"]


async def test_a_significant_child_that_could_not_be_added_ends_nobody(autojump_clock: MockClock) -> None:
    async with open_tree(TOP) as root:
        with pytest.raises(StartFailed):
            await root.add(player("p", History(), significant=True, fail_start=fails_on(1)))
        await trio.testing.wait_all_tasks_blocked(0)
        assert await root.spawn(Player(), name="p").ask(Get(), within=1) == 0


async def test_an_error_that_cannot_be_told_or_logged_costs_nobody_else_anything() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise Boom

    class Odd(Player):
        def facts(self) -> dict[str, str]:
            return None  # type: ignore[return-value]

        async def run(self) -> None:
            raise Mute

    def closed(*_: object) -> str:
        raise BrokenPipeError

    async with open_tree(TOP) as root:
        neighbour = root.spawn(Player(), name="neighbour")
        with capture_logs(processors=[closed]):
            assert (await root.spawn(Odd(), name="p").wait_ended()).why == "Mute"
        assert await neighbour.ask(Get(), within=1) == 0


async def test_an_ended_actor_is_freed_while_somebody_holds_its_address() -> None:
    """At once, with no help from the garbage collector."""
    async with open_tree(TOP) as root:
        actor = Player()
        remembered = weakref.ref(actor)
        gc.disable()
        try:
            address = root.spawn(actor, name="p")
            del actor
            assert await address.ask(Get(), within=1) == 0
            await address.stop()
            await trio.testing.wait_all_tasks_blocked()
            assert remembered() is None
        finally:
            gc.enable()


async def test_the_error_of_a_crash_keeps_no_frame() -> None:
    remembered: list[weakref.ref[History]] = []

    def lookup(local: History) -> None:
        remembered.append(weakref.ref(local))
        raise KeyError

    class Failing(Player):
        async def fail(self) -> None:
            try:
                lookup(History())
            except KeyError as cause:
                raise Boom from cause

        async def run(self) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.fail)

    async with open_tree(TOP) as root:
        address = root.spawn(Failing(), name="p")
        ended = await address.wait_ended()
        await trio.testing.wait_all_tasks_blocked()
        gc.collect()
        assert isinstance(ended.error, ExceptionGroup)
        assert [local() for local in remembered] == [None]
