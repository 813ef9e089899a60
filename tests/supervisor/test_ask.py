"""A question ends in exactly one way: an answer, a refusal, or the reason why there is none."""

import gc
import weakref

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from callboard.errors import ActorGone, AskDropped, AskTimedOut
from callboard.supervisor import (
    Actor,
    Address,
    Ask,
    ChildSpec,
    Lost,
    MailboxSpec,
    Overflow,
    Supervisor,
    SupervisorSpec,
    open_tree,
)
from tests.supervisor.players import STEADY, Add, Crash, Get, Hang, History, Message, Player, player

TOP = SupervisorSpec("top")


@attrs.frozen
class Slow(Ask[str]):
    takes: float


@attrs.frozen
class Bad(Ask[str]):
    error: Exception


@attrs.frozen
class Twice(Ask[str]):
    pass


@attrs.define(eq=False)
class Clerk(Actor[Slow | Bad | Twice]):
    mailbox = MailboxSpec(size=2)

    async def run(self) -> None:
        async for message in self.inbox:
            match message:
                case Slow(takes):
                    await trio.sleep(takes)
                    message.reply("done")
                case Bad(error):
                    message.refuse(error)
                case Twice():
                    message.reply("once")
                    message.reply("twice")


class Dropping(Clerk):
    mailbox = MailboxSpec(size=1, overflow=Overflow.DROP_OLDEST)


class Merging(Clerk):
    mailbox = MailboxSpec(size=1, overflow=Overflow.COALESCE)


class Ending(Clerk):
    mailbox = MailboxSpec(size=1, overflow=Overflow.END)


async def outcome(address: Address[Slow], question: Slow, within: float = 60.0) -> tuple[str, float]:
    """What came of a question, and when."""
    try:
        result = await address.ask(question, within=within)
    except (ActorGone, AskTimedOut) as error:
        result = type(error).__name__
    return result, trio.current_time()


async def ask_all(address: Address[Slow], *questions: Slow) -> list[tuple[str, float]]:
    """Ask from a task each, in order; the outcomes in the same order."""
    got: dict[int, tuple[str, float]] = {}

    async def one(index: int, question: Slow) -> None:
        got[index] = await outcome(address, question)

    async with trio.open_nursery() as nursery:
        for index, question in enumerate(questions):
            nursery.start_soon(one, index, question)
            await trio.testing.wait_all_tasks_blocked()
    return [got[index] for index in range(len(questions))]


async def test_an_answer_comes_back() -> None:
    async with open_tree(TOP) as root:
        address = root.spawn(Player(), name="p")
        await address.send(Add(3))
        assert await address.ask(Get(), within=1) == 3


@pytest.mark.parametrize("error", [KeyError("no"), trio.ClosedResourceError("no"), trio.WouldBlock("no")])
async def test_a_refusal_is_raised_whatever_it_is(error: Exception) -> None:
    async with open_tree(TOP) as root:
        with pytest.raises(type(error), match="no") as caught:
            await root.spawn(Clerk(), name="c").ask(Bad(error), within=1)
        assert caught.value is error


async def test_silence_costs_exactly_the_deadline_and_the_late_answer_is_counted(
    autojump_clock: MockClock,
) -> None:
    async with open_tree(TOP) as root:
        address = root.spawn(Clerk(), name="c")
        with pytest.raises(AskTimedOut, match=r"top/c did not answer within 2.5 s"):
            await address.ask(Slow(10), within=2.5)
        assert trio.current_time() == 2.5
        assert root.dead_letters.total == 0
        await trio.sleep(10)
        assert root.dead_letters.counts == {("Slow", Lost.LATE_REPLY): 1}


async def test_an_answer_at_the_deadline_is_one_outcome(autojump_clock: MockClock) -> None:
    async with open_tree(TOP) as root:
        address = root.spawn(Clerk(), name="c")
        got, at = await outcome(address, Slow(5), within=5)
        assert at == 5
        await trio.testing.wait_all_tasks_blocked()
        assert root.dead_letters.counts == ({} if got == "done" else {("Slow", Lost.LATE_REPLY): 1})


async def test_an_answer_between_the_deadline_and_the_asker_is_late() -> None:
    async with open_tree(TOP) as root:
        address = root.spawn(Clerk(), name="c")
        question, scope = Slow(1e9), trio.CancelScope()

        async def ask() -> None:
            with scope:
                await address.ask(question, within=60)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            while address.node.asks is None:
                await trio.lowlevel.checkpoint()
            scope.cancel()
            question.reply("too late")
        assert scope.cancelled_caught
        assert root.dead_letters.counts == {("Slow", Lost.LATE_REPLY): 1}
        address.kill()


async def test_waiting_for_room_counts_towards_the_deadline(autojump_clock: MockClock) -> None:
    async with open_tree(TOP) as root:
        address = root.spawn(Clerk(), name="c")
        for _ in range(3):
            await address.send(Slow(100))
        got = await outcome(address, Slow(0), within=7)
        assert got == ("AskTimedOut", 7.0)
        assert root.tree().children[0].mailbox_depth == 2
        address.kill()


async def test_only_the_first_of_two_answers_counts() -> None:
    async with open_tree(TOP) as root:
        assert await root.spawn(Clerk(), name="c").ask(Twice(), within=1) == "once"
        await trio.testing.wait_all_tasks_blocked()
        assert root.dead_letters.counts == {("Twice", Lost.ANSWERED_TWICE): 1}


async def test_a_crash_over_the_question_is_heard_at_once_and_the_next_question_is_kept(
    autojump_clock: MockClock,
) -> None:
    p = player("p", History())
    async with open_tree(SupervisorSpec("top", children=(p,), backoff=STEADY)) as root:
        address = root.address_of(p)
        got: list[object] = []

        async def doomed() -> None:
            with pytest.raises(ActorGone, match="top/p has ended: Boom: p"):
                await address.ask(Crash(), within=60)
            got.append(trio.current_time())

        async def patient() -> None:
            got.append(await address.ask(Get(), within=60))
            got.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(doomed)
            await trio.testing.wait_all_tasks_blocked(0)
            nursery.start_soon(patient)
        assert got == [0, 0, 0.1]
        assert address.ended is None


async def test_an_actor_that_ends_tells_those_it_was_answering_and_those_in_its_mailbox(
    autojump_clock: MockClock,
) -> None:
    async with open_tree(TOP) as root:
        address = root.spawn(Clerk(), name="c")

        async def end() -> None:
            await trio.sleep(3)
            address.kill()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(end)
            got = await ask_all(address, Slow(10), Slow(10), Slow(10), Slow(10))
        assert got == [("ActorGone", 3)] * 4  # handled, queued, queued, waiting for room
        assert root.dead_letters.counts == {("Slow", Lost.ENDED): 3}


async def test_asking_the_gone_is_answered_at_once(autojump_clock: MockClock) -> None:
    async with open_tree(TOP) as root:
        address = root.spawn(Clerk(), name="c")
        await address.stop()
        with pytest.raises(ActorGone, match="top/c has ended: stopped"):
            await address.ask(Slow(0), within=9)
    with pytest.raises(ActorGone):
        await address.ask(Slow(0), within=9)
    assert trio.current_time() == 0
    assert root.dead_letters.counts == {("Slow", Lost.ENDED): 2}


async def test_asking_one_that_is_stopping_is_answered_at_once(autojump_clock: MockClock) -> None:
    async with open_tree(TOP) as root:
        address = root.spawn(Clerk(), name="c")
        await address.send(Slow(2))
        await trio.testing.wait_all_tasks_blocked()
        address.begin_stop()
        assert await outcome(address, Slow(0)) == ("ActorGone", 0)


@pytest.mark.parametrize(
    ("actor", "expected"),
    [
        (Dropping, [("done", 5), ("AskDropped", 0), ("done", 10)]),
        (Merging, [("done", 5), ("AskDropped", 0), ("done", 10)]),
        (Ending, [("ActorGone", 0), ("ActorGone", 0), ("AskDropped", 0)]),
    ],
)
async def test_a_question_that_overflow_gave_up_fails_at_once(
    autojump_clock: MockClock, actor: type[Clerk], expected: list[tuple[str, float]]
) -> None:
    async with open_tree(TOP) as root:
        address = root.spawn(actor(), name="c")
        assert await ask_all(address, Slow(5), Slow(5), Slow(5)) == expected
    assert issubclass(AskDropped, ActorGone)


async def test_an_asker_that_is_cancelled_leaves_nothing_and_the_answer_is_late(
    autojump_clock: MockClock,
) -> None:
    async with open_tree(TOP) as root:
        address = root.spawn(Clerk(), name="c")
        with trio.move_on_after(1) as scope:
            await address.ask(Slow(4), within=60)
        assert scope.cancelled_caught
        assert address.node.asks == set()
        await trio.sleep(10)
        assert root.dead_letters.counts == {("Slow", Lost.LATE_REPLY): 1}


async def test_a_cancelled_asker_asks_nothing() -> None:
    async with open_tree(TOP) as root:
        address = root.spawn(Player(), name="p")
        with trio.CancelScope() as scope:
            scope.cancel()
            await address.ask(Get(), within=1)
        assert address.node.mailbox is not None
        assert address.node.mailbox.depth == 0


async def test_a_question_is_asked_by_one_at_a_time(autojump_clock: MockClock) -> None:
    async with open_tree(TOP) as root:
        address = root.spawn(Player(), name="p")
        question = Get()
        assert await address.ask(question, within=1) == 0
        assert await address.ask(question, within=1) == 0
        hang = Hang()
        with pytest.raises(AskTimedOut):
            await address.ask(hang, within=1)
        with pytest.raises(RuntimeError, match="create a new one"):
            await address.ask(hang, within=1)
        address.kill()


async def test_a_question_that_was_only_told_may_be_answered_into_the_void() -> None:
    async with open_tree(TOP) as root:
        address = root.spawn(Player(), name="p")
        await address.send(Get())
        assert await address.ask(Get(), within=1) == 0
    assert root.dead_letters.total == 0


async def test_every_one_of_many_questions_to_a_crashing_actor_has_an_outcome(autojump_clock: MockClock) -> None:
    """Asked from many tasks; one question in 25 is a crash, and each crash is heard by its own asker only."""
    outcomes: list[str] = []

    async def many(root: Supervisor, spec: ChildSpec[Message]) -> None:
        address = root.address_of(spec)
        for n in range(100):
            try:
                await address.ask(Crash() if n % 25 == 24 else Get(), within=600)
                outcomes.append("answer")
            except ActorGone:
                outcomes.append("gone")

    p = player("p", History())
    spec = SupervisorSpec("top", children=(p,), backoff=STEADY, intensity=attrs.evolve(TOP.intensity, restarts=999))
    with trio.fail_after(600):
        async with open_tree(spec) as root, trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(many, root, p)
    assert len(outcomes) == 2000
    assert outcomes.count("gone") == 80


async def test_a_question_knows_its_answer() -> None:
    question = Get()
    assert question.question() is question
    with pytest.raises(trio.WouldBlock):
        question.answer()
    async with open_tree(TOP) as root:
        await root.spawn(Player(), name="p").ask(question, within=1)
    assert question.answer() == 0


async def test_a_failed_question_leaves_no_cycle() -> None:
    """Raised, its error refers to frames and these to the question, which must not refer back to the error."""

    async def fail(address: Address[Message]) -> weakref.ref[ActorGone]:
        try:
            await address.ask(Crash(), within=1)
        except ActorGone as error:
            return weakref.ref(error)
        raise AssertionError

    async with open_tree(TOP) as root:
        gc.disable()
        try:
            error = await fail(root.spawn(Player(), name="p"))
            assert error() is None
        finally:
            gc.enable()
