"""What is kept for a peer that comes back: the latest, within two bounds, until it is known to have arrived."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from callboard.codecs.websocket.replay_buffer import ReplayBuffer

MOST, MOST_BYTES = 5, 40


def test_nothing_was_said_yet() -> None:
    kept = ReplayBuffer(MOST, MOST_BYTES)
    assert (len(kept), kept.sent, kept.forgotten) == (0, 0, 0)
    assert kept.has_after(0)
    assert not kept.has_after(1)
    assert kept.after(0) == []


def test_the_oldest_go_first() -> None:
    kept = ReplayBuffer(3, 1000)
    for number in range(1, 6):
        kept.add(b"%d" % number)
    assert (kept.sent, kept.forgotten) == (5, 2)
    assert kept.after(2) == [b"3", b"4", b"5"]
    assert not kept.has_after(1)


def test_a_message_larger_than_the_bound_is_not_kept_but_counted() -> None:
    kept = ReplayBuffer(3, 10)
    kept.add(b"small")
    kept.add(b"x" * 11)
    assert (len(kept), kept.sent) == (0, 2)
    assert kept.has_after(2)
    assert not kept.has_after(1)


class Keeping(RuleBasedStateMachine):
    """Against a list of everything that was ever said."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = ReplayBuffer(MOST, MOST_BYTES)
        self.said: list[bytes] = []
        self.acknowledged = 0

    @rule(message=st.binary(max_size=50))
    def say(self, message: bytes) -> None:
        self.kept.add(message)
        self.said.append(message)

    @rule(number=st.integers(-3, 60))
    def acknowledge(self, number: int) -> None:
        self.kept.acknowledge(number)
        if number <= len(self.said):
            self.acknowledged = max(self.acknowledged, number)

    @invariant()
    def what_is_there_is_the_end_of_what_was_said(self) -> None:
        kept = self.kept
        assert kept.sent == len(self.said)
        for number in range(kept.forgotten, kept.sent + 1):
            assert kept.has_after(number)
            assert kept.after(number) == self.said[number:]

    @invariant()
    def the_bounds_hold(self) -> None:
        kept = self.kept.after(self.kept.forgotten)
        assert len(kept) <= MOST
        assert sum(map(len, kept)) <= MOST_BYTES

    @invariant()
    def no_more_is_let_go_than_must_be(self) -> None:
        left = self.said[self.acknowledged :][-MOST:]
        while sum(map(len, left)) > MOST_BYTES:
            del left[0]
        assert len(self.kept) == len(left)


TestKeeping = Keeping.TestCase
