"""What an address promises: through restarts, at the end, and to those who watch."""

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs
from trio.testing import MockClock

from callboard.errors import ActorGone
from callboard.supervisor import (
    Actor,
    Ended,
    How,
    Lost,
    MailboxSpec,
    Overflow,
    Restart,
    Strategy,
    SupervisorSpec,
    open_tree,
)
from tests.supervisor.players import STEADY, Add, Crash, Get, Hang, History, Player, Return, player

TOP = SupervisorSpec("top")


async def test_an_address_and_its_mailbox_outlive_a_crash(autojump_clock: MockClock) -> None:
    p = player("p", History())
    async with open_tree(SupervisorSpec("top", children=(p,), backoff=STEADY)) as root:
        address = root.address_of(p)
        for message in (Add(1), Crash(), Add(10), Add(100)):
            await address.send(message)
        assert await address.ask(Get(), within=5) == 110  # the state is new, the rest of the mailbox is kept
        assert trio.current_time() == 0.1
        assert root.address_of(p) == address
        [node] = root.tree().children
        assert (node.restarts, node.last_failure, node.handled) == (1, "Boom: p", 5)
    assert root.dead_letters.counts == {}


async def test_the_mailbox_of_a_sibling_restarted_with_others_is_kept_too(autojump_clock: MockClock) -> None:
    history = History()
    a, b = player("a", history), player("b", history, linger=1)
    spec = SupervisorSpec("top", children=(a, b), backoff=STEADY, strategy=Strategy.ONE_FOR_ALL)
    async with open_tree(spec) as root:
        root.address_of(a).kill()
        await trio.testing.wait_all_tasks_blocked(0)
        await root.address_of(b).send(Add(7))
        assert await root.address_of(b).ask(Get(), within=9) == 7
        assert history.take() == ["a+ 0", "b+ 0", "a- 0", "b- 1", "a+ 1", "b+ 1"]


async def test_telling_the_ended_is_a_dead_letter_and_no_error() -> None:
    async with open_tree(TOP) as root:
        address = root.spawn(Player(), name="p")
        await address.stop()
        await address.send(Add(1))
        address.send_nowait(Add(2))
        assert root.dead_letters.counts == {("Add", Lost.ENDED): 2}
        assert [letter.path for letter in root.dead_letters.recent] == ["top/p", "top/p"]


async def test_telling_one_that_has_no_mailbox_is_a_dead_letter() -> None:
    async with open_tree(SupervisorSpec("top", children=(SupervisorSpec("inner"),))) as root:
        await root.child("inner").send(Add(1))
        root.child("inner").send_nowait(Add(1))
        assert root.dead_letters.counts == {("Add", Lost.ENDED): 2}


async def test_an_actor_of_the_same_name_is_another_one() -> None:
    async with open_tree(TOP) as root:
        first = root.spawn(Player(), name="p")
        assert first == root.child("p")
        assert hash(first) == hash(root.child("p"))
        await first.stop()
        second = root.spawn(Player(), name="p")
        assert first != second
        assert first.path == second.path
        assert "top/p ended" in repr(first)


async def test_a_slow_consumer_is_ended_and_said_so() -> None:
    class Slow(Player):
        mailbox = MailboxSpec(size=2, overflow=Overflow.END)

    async with open_tree(TOP) as root:
        address = root.spawn(Slow(), name="p")
        await address.send(Hang())
        await trio.testing.wait_all_tasks_blocked()
        for n in range(4):
            address.send_nowait(Add(n))
        assert await address.wait_ended() == Ended(How.CANCELLED, "mailbox overflowed")
        assert root.dead_letters.counts == {("Add", Lost.OVERFLOWED): 2, ("Add", Lost.ENDED): 2}


@pytest.mark.parametrize(
    ("way", "ended"),
    [
        ("return", Ended(How.RETURNED, "returned")),
        ("raise", Ended(How.RAISED, "Boom: player")),
        ("kill", Ended(How.CANCELLED, "killed")),
        ("stop", Ended(How.RETURNED, "stopped")),
    ],
)
async def test_its_end_says_how_it_ended(way: str, ended: Ended) -> None:
    async with open_tree(TOP) as root:
        address = root.spawn(Player(), name="p")
        match way:
            case "return":
                await address.send(Return())
            case "raise":
                await address.send(Crash())
            case "kill":
                address.kill()
            case _:
                address.begin_stop()
        assert await address.wait_ended() == ended
        assert address.ended == ended


async def test_killing_the_ended_does_nothing() -> None:
    async with open_tree(TOP) as root:
        p = root.spawn(Player(), name="p")
        await p.stop()
        p.kill()
        p.begin_stop()
        assert (await p.stop()).why == "stopped"


async def test_stopping_is_graceful_what_is_queued_is_handled_first() -> None:
    async with open_tree(TOP) as root:
        actor = Player()
        p = root.spawn(actor, name="p")
        for _ in range(3):
            await p.send(Add(1))
        assert await p.stop() == Ended(How.RETURNED, "stopped")
        assert actor.total == 3
    assert root.dead_letters.total == 0


async def test_one_that_does_not_stop_is_cancelled_when_its_drain_time_has_passed(
    autojump_clock: MockClock,
) -> None:
    async with open_tree(TOP) as root:
        p = root.spawn(Player(), name="p", shutdown=3)
        await p.send(Hang())
        await p.send(Add(1))
        assert await p.stop() == Ended(How.CANCELLED, "drain time passed")
        assert trio.current_time() == 3
        assert root.dead_letters.counts == {("Add", Lost.ENDED): 1}


async def test_a_permanent_child_that_is_stopped_stays_stopped(autojump_clock: MockClock) -> None:
    history = History()
    p = player("p", history)
    async with open_tree(SupervisorSpec("top", children=(p,), backoff=STEADY)) as root:
        await root.address_of(p).stop()
        await trio.sleep(60)
        assert history.take() == ["p+ 0", "p- 0"]
        with pytest.raises(LookupError):
            root.address_of(p)
        root.spawn(Player(), name="p")


async def test_one_that_waits_to_return_can_be_stopped(autojump_clock: MockClock) -> None:
    history = History()
    p = player("p", history)
    async with open_tree(SupervisorSpec("top", children=(p,), backoff=STEADY)) as root:
        address = root.address_of(p)
        address.kill()
        await trio.sleep(0.05)
        assert root.tree().children[0].state == "backing_off"
        await address.send(Add(1))
        assert (await address.stop()).why == "killed"
        assert root.dead_letters.counts == {("Add", Lost.ENDED): 1}
        await trio.sleep(60)
    assert history.take() == ["p+ 0", "p- 0"]


async def test_an_actor_without_a_loop_hears_that_it_should_stop(autojump_clock: MockClock) -> None:
    class Listener(Actor[Add]):
        async def run(self) -> None:
            await self.wait_stopping()

    async with open_tree(TOP) as root:
        address = root.spawn(Listener(), name="l")
        await trio.sleep(1)
        assert (await address.stop()).why == "stopped"


async def test_a_crash_is_logged_once_without_values() -> None:
    async with open_tree(TOP) as root:
        with capture_logs() as logs:
            address = root.spawn(Player(), name="p")
            await address.send(Crash())
            await address.wait_ended()
    [entry] = logs
    assert entry["where"].startswith("players.py:")
    del entry["where"]
    assert entry == {
        "event": "actor_crashed",
        "log_level": "error",
        "path": "top/p",
        "kind": "Player",
        "how": "raised",
        "failure": "Boom: player",
        "facts": {},
    }


async def test_a_crash_in_a_nursery_is_one_short_line() -> None:
    class Many(Actor[Add]):
        async def run(self) -> None:
            async with trio.open_nursery() as nursery:
                for n in range(3):
                    nursery.start_soon(self.fail, n)

        async def fail(self, n: int) -> None:
            raise ValueError(f"{n}\n" + "x" * 500)

    async with open_tree(TOP) as root:
        ended = await root.spawn(Many(), name="m").wait_ended()
    assert ended.how is How.RAISED
    assert ended.why.startswith("ValueError: ")
    assert "\n" not in ended.why
    assert len(ended.why) <= 200


async def test_temporary_is_what_dynamic_children_are() -> None:
    async with open_tree(TOP) as root:
        assert root.spawn(Player(), name="p").node.restart is Restart.TEMPORARY


async def test_telling_one_that_is_stopping_is_a_dead_letter(autojump_clock: MockClock) -> None:
    async with open_tree(TOP) as root:
        address = root.spawn(Player(linger=1), name="p")
        await trio.testing.wait_all_tasks_blocked()
        address.begin_stop()
        await address.send(Add(1))
        address.send_nowait(Add(2))
        assert address.ended is None
        assert root.dead_letters.counts == {("Add", Lost.ENDED): 2}


async def test_nobody_has_an_address_before_it_has_a_mailbox() -> None:
    async with open_tree(TOP) as root, trio.open_nursery() as nursery:
        for n in range(20):  # which task runs first is chance
            spec = player(f"p{n}", History())
            nursery.start_soon(root.add, spec)
            while True:
                try:
                    address = root.address_of(spec)
                    assert root.child(spec.name) == address
                    break
                except LookupError:
                    await trio.lowlevel.checkpoint()
            address.send_nowait(Add(1))
            assert await address.ask(Get(), within=1) == 1


async def test_a_queued_question_hears_why_its_actor_ended() -> None:
    async with open_tree(TOP) as root:
        address = root.spawn(Player("p"), name="p")
        await address.send(Crash())
        with pytest.raises(ActorGone, match="top/p has ended: Boom: p"):
            await address.ask(Get(), within=1)
