"""Dead letters equal what a history says, and say nothing of what was in them."""

import attrs
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.supervisor import (
    Actor,
    DeadLetters,
    Lost,
    MailboxSpec,
    Overflow,
    SupervisorSpec,
    open_tree,
)
from callboard.supervisor.dead_letters import REMEMBERED


@attrs.frozen
class Note:
    secret: int


@attrs.frozen
class Memo:
    secret: int


@attrs.define(eq=False)
class Desk(Actor[Note | Memo]):
    read: list[Note | Memo]

    async def run(self) -> None:
        async for message in self.inbox:
            self.read.append(message)


class DroppingDesk(Desk):
    mailbox = MailboxSpec(size=3, overflow=Overflow.DROP_OLDEST)


class MergingDesk(Desk):
    mailbox = MailboxSpec(size=3, overflow=Overflow.COALESCE)


@given(
    desk=st.sampled_from([Desk, DroppingDesk, MergingDesk]),
    steps=st.lists(st.sampled_from(["note", "memo", "rest", "stop"]), max_size=40),
)
def test_every_message_is_read_or_a_dead_letter(desk: type[Desk], steps: list[str]) -> None:
    async def play() -> None:
        read: list[Note | Memo] = []
        sent: list[Note | Memo] = []
        async with open_tree(SupervisorSpec("top")) as root:
            address = root.spawn(desk(read), name="desk")
            for n, step in enumerate(steps):
                match step:
                    case "note" | "memo":
                        sent.append(Note(n) if step == "note" else Memo(n))
                        address.send_nowait(sent[-1])
                    case "rest":
                        await wait_all_tasks_blocked()
                    case _:
                        address.begin_stop()
        for kind in (Note, Memo):
            counted = sum(n for (name, _), n in root.dead_letters.counts.items() if name == kind.__name__)
            assert counted == sum(type(m) is kind for m in sent) - sum(type(m) is kind for m in read)
        assert len(root.dead_letters.recent) == root.dead_letters.total

    trio.run(play, clock=MockClock(autojump_threshold=0))


def test_the_ring_remembers_a_thousand_and_the_counts_remember_all() -> None:
    letters = DeadLetters()
    for n in range(REMEMBERED + 5):
        letters.add("top/p", Note(n), Lost.DROPPED, at=float(n))
    assert letters.counts == {("Note", Lost.DROPPED): REMEMBERED + 5}
    assert [letter.at for letter in letters.recent] == [float(n) for n in range(5, REMEMBERED + 5)]
    assert not any("secret" in repr(letter) for letter in letters.recent)
