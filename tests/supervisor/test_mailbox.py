"""Mailboxes alone: each policy, closing and pausing, and a model that chooses the interleavings."""

from collections import deque
from typing import Any, TypeAlias

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from callboard.errors import MessageTooHeavy
from callboard.supervisor import Lost, Mailbox, MailboxSpec, Overflow

Item: TypeAlias = tuple[str, int]


@attrs.define
class Losses:
    """An owner that remembers."""

    lost: list[tuple[Any, Lost]] = attrs.field(factory=list)

    def lose(self, message: object, reason: Lost) -> None:
        self.lost.append((message, reason))


def box(owner: Losses | None = None, **spec: Any) -> Mailbox[Any]:
    return Mailbox(MailboxSpec(**spec), owner or Losses())


def taken(mailbox: Mailbox[Any]) -> list[Any]:
    items = []
    while True:
        try:
            items.append(mailbox.receive_nowait())
        except (trio.WouldBlock, trio.EndOfChannel):
            return items


def test_a_mailbox_holds_at_least_one_message() -> None:
    with pytest.raises(ValueError, match="size"):
        MailboxSpec(size=0)


def test_a_weight_needs_its_scales() -> None:
    with pytest.raises(ValueError, match="go together"):
        MailboxSpec(most_weight=10)


async def test_a_full_mailbox_makes_senders_wait_in_line() -> None:
    mailbox = box(size=2)
    mailbox.put_nowait(1)
    mailbox.put_nowait(2)
    with pytest.raises(trio.WouldBlock):
        mailbox.put_nowait(3)
    async with trio.open_nursery() as nursery:
        for n in (3, 4):
            nursery.start_soon(mailbox.put, n)
            await trio.testing.wait_all_tasks_blocked()
        assert mailbox.statistics().senders_waiting == 2
        assert await mailbox.receive() == 1
        with pytest.raises(trio.WouldBlock):
            mailbox.put_nowait(5)  # nobody overtakes those in line
        assert [await mailbox.receive() for _ in range(3)] == [2, 3, 4]
    statistics = mailbox.statistics()
    assert (statistics.depth, statistics.taken, statistics.senders_waiting) == (0, 4, 0)


async def test_a_cancelled_sender_has_sent_nothing_and_holds_nobody_up() -> None:
    mailbox = box(size=1)
    mailbox.put_nowait(1)
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(mailbox.put, 3)
            scope.cancel()
            await mailbox.put(2)
        await trio.testing.wait_all_tasks_blocked()
        assert await mailbox.receive() == 1
    assert taken(mailbox) == [3]


async def test_a_cancelled_reader_has_taken_nothing() -> None:
    mailbox = box()
    mailbox.put_nowait(1)
    with trio.CancelScope() as scope:
        scope.cancel()
        await mailbox.receive()
    assert scope.cancelled_caught
    assert taken(mailbox) == [1]
    with trio.move_on_after(0) as scope:
        await mailbox.receive()
    assert scope.cancelled_caught
    mailbox.put_nowait(2)
    assert await mailbox.receive() == 2


async def test_a_message_for_a_reader_that_is_cancelled_in_the_same_moment_is_kept() -> None:
    mailbox = box()
    got = []
    scope = trio.CancelScope()

    async def read() -> None:
        with scope:
            got.append(await mailbox.receive())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        mailbox.put_nowait(1)
        scope.cancel()
    assert [*got, *taken(mailbox)] == [1]


async def test_a_mailbox_has_one_reader() -> None:
    mailbox = box()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.receive)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await mailbox.receive()
        mailbox.put_nowait(1)


async def test_closing_lets_the_reader_finish_and_refuses_senders() -> None:
    mailbox = box(size=1)
    mailbox.put_nowait(1)
    async with trio.open_nursery() as nursery:

        async def refused() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await mailbox.put(2)

        nursery.start_soon(refused)
        await trio.testing.wait_all_tasks_blocked()
        mailbox.close()
        mailbox.close()
    with pytest.raises(trio.ClosedResourceError):
        mailbox.put_nowait(3)
    assert [message async for message in mailbox] == [1]
    with pytest.raises(trio.EndOfChannel):
        mailbox.receive_nowait()


async def test_closing_wakes_a_reader_that_waits() -> None:
    mailbox = box()
    got: list[object] = []

    async def read() -> None:
        got.extend([message async for message in mailbox])
        got.append("end")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        mailbox.close()
    assert got == ["end"]


async def test_pausing_ends_one_reader_and_keeps_everything_for_the_next() -> None:
    mailbox = box()
    mailbox.put_nowait(1)
    mailbox.pause()
    assert [message async for message in mailbox] == []
    mailbox.put_nowait(2)
    mailbox.resume()
    assert taken(mailbox) == [1, 2]


async def test_waiting_is_a_checkpoint_on_every_path() -> None:
    mailbox = box(size=2)
    with trio.testing.assert_checkpoints():
        await mailbox.put(1)
    with trio.testing.assert_checkpoints():
        await mailbox.receive()


def test_drop_oldest_keeps_the_newest() -> None:
    losses = Losses()
    mailbox = box(losses, size=2, overflow=Overflow.DROP_OLDEST)
    for n in range(5):
        mailbox.put_nowait(n)
    assert taken(mailbox) == [3, 4]
    assert losses.lost == [(0, Lost.DROPPED), (1, Lost.DROPPED), (2, Lost.DROPPED)]


def test_coalesce_keeps_the_latest_value_in_the_first_ones_place() -> None:
    losses = Losses()
    mailbox = box(losses, size=3, overflow=Overflow.COALESCE, key=lambda item: item[0])
    for item in [("a", 1), ("b", 1), ("a", 2), ("c", 1), ("b", 2), ("b", 3)]:
        mailbox.put_nowait(item)
    with pytest.raises(trio.WouldBlock):
        mailbox.put_nowait(("d", 1))
    assert taken(mailbox) == [("a", 2), ("b", 3), ("c", 1)]
    assert losses.lost == [(("a", 1), Lost.COALESCED), (("b", 1), Lost.COALESCED), (("b", 2), Lost.COALESCED)]
    mailbox.put_nowait(("a", 4))
    assert taken(mailbox) == [("a", 4)]


async def test_a_newer_value_never_loses_to_an_older_one_that_stood_in_line() -> None:
    mailbox = box(size=1, overflow=Overflow.COALESCE, key=lambda item: item[0])
    mailbox.put_nowait(("x", 0))
    async with trio.open_nursery() as nursery:
        for item in [("a", 1), ("b", 1), ("a", 2)]:
            nursery.start_soon(mailbox.put, item)
            await trio.testing.wait_all_tasks_blocked()
        got = [await mailbox.receive()]
        with pytest.raises(trio.WouldBlock):
            mailbox.put_nowait(("a", 3))
        nursery.start_soon(mailbox.put, ("a", 3))
        got += [await mailbox.receive() for _ in range(3)]
    got += taken(mailbox)
    assert [item for item in got if item[0] == "a"][-1] == ("a", 3)
    assert [n for key, n in got if key == "a"] == sorted(n for key, n in got if key == "a")


def test_end_hands_the_overflow_to_the_owner() -> None:
    losses = Losses()
    mailbox = box(losses, size=1, overflow=Overflow.END)
    mailbox.put_nowait(1)
    mailbox.put_nowait(2)
    assert losses.lost == [(2, Lost.OVERFLOWED)]
    assert taken(mailbox) == [1]


def test_the_policy_may_depend_on_the_kind_of_message() -> None:
    """Progress gives way, a response never does: it waits."""
    losses = Losses()
    mailbox = box(
        losses, size=2, overflow=lambda m: Overflow.DROP_OLDEST if m.startswith("progress") else Overflow.WAIT
    )
    mailbox.put_nowait("response 1")
    mailbox.put_nowait("progress 1")
    mailbox.put_nowait("progress 2")
    mailbox.put_nowait("response 2")
    with pytest.raises(trio.WouldBlock):
        mailbox.put_nowait("response 3")
    mailbox.put_nowait("progress 3")
    assert taken(mailbox) == ["response 1", "response 2"]
    assert losses.lost == [(f"progress {n}", Lost.DROPPED) for n in (1, 2, 3)]


def test_weight_is_a_second_bound() -> None:
    losses = Losses()
    mailbox = box(losses, size=9, overflow=Overflow.DROP_OLDEST, most_weight=10, weigh=len)
    for message in ("aaaa", "bbbb", "cccc"):
        mailbox.put_nowait(message)
    assert mailbox.statistics().weight == 8
    assert losses.lost == [("aaaa", Lost.DROPPED)]
    with pytest.raises(MessageTooHeavy) as caught:
        mailbox.put_nowait("x" * 11)
    assert (caught.value.weight, caught.value.limit) == (11, 10)
    assert taken(mailbox) == ["bbbb", "cccc"]
    assert mailbox.statistics().weight == 0


async def test_a_light_message_does_not_overtake_a_heavy_one_in_line() -> None:
    mailbox = box(size=9, most_weight=10, weigh=len)
    mailbox.put_nowait("aaaaaa")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.put, "bbbbbbbb")
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.WouldBlock):
            mailbox.put_nowait("c")
        assert await mailbox.receive() == "aaaaaa"
    assert taken(mailbox) == ["bbbbbbbb"]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.tuples(st.sampled_from("abc"), st.integers(0, 9))),
        st.tuples(st.just("receive"), st.none()),
        st.tuples(st.just("cancel"), st.integers(0, 3)),
    ),
    max_size=40,
)


@given(steps=STEPS, size=st.integers(1, 4))
def test_under_wait_nothing_is_lost_doubled_or_reordered_whoever_is_cancelled(
    steps: list[tuple[str, Any]], size: int
) -> None:
    """A model of plain lists: the accepted, in order, and those in line."""

    async def play() -> None:
        losses = Losses()
        mailbox = box(losses, size=size)
        model: deque[Item] = deque()
        line: list[tuple[Item, trio.CancelScope]] = []
        got: list[Item] = []
        expected: list[Item] = []

        async def send(item: Item, scope: trio.CancelScope) -> None:
            with scope:
                await mailbox.put(item)

        async with trio.open_nursery() as nursery:
            for step, argument in steps:
                if step == "put":
                    scope = trio.CancelScope()
                    nursery.start_soon(send, argument, scope)
                    if len(model) < size and not line:
                        model.append(argument)
                    else:
                        line.append((argument, scope))
                elif step == "receive":
                    if model:
                        expected.append(model.popleft())
                        if line:
                            model.append(line.pop(0)[0])
                    with trio.move_on_after(1):
                        got.append(await mailbox.receive())
                elif argument < len(line):
                    line.pop(argument)[1].cancel()
                await trio.testing.wait_all_tasks_blocked()
                assert mailbox.depth == len(model) <= size
                assert list(mailbox.waiting()) == [item for item, _ in line]
            nursery.cancel_scope.cancel()
        assert got == expected
        assert taken(mailbox) == list(model)
        assert losses.lost == []

    trio.run(play, clock=trio.testing.MockClock(autojump_threshold=0))


@given(
    items=st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 99))),
    reads=st.sets(st.integers(0, 60)),
    overflow=st.sampled_from([Overflow.DROP_OLDEST, Overflow.COALESCE]),
    size=st.integers(1, 8),
)
def test_every_message_is_either_read_in_order_or_reported_lost(
    items: list[Item], reads: set[int], overflow: Overflow, size: int
) -> None:
    losses = Losses()
    mailbox = box(losses, size=size, overflow=overflow, key=lambda item: item[0])
    read: list[Item] = []
    refused = 0
    latest: dict[str, Item] = {}
    for index, item in enumerate(items):
        try:
            mailbox.put_nowait(item)
            latest[item[0]] = item
        except trio.WouldBlock:
            assert overflow is Overflow.COALESCE
            refused += 1
        assert mailbox.depth <= size
        if index in reads:
            read.append(mailbox.receive_nowait())
    read += taken(mailbox)
    assert len(read) + len(losses.lost) + refused == len(items)
    if overflow is Overflow.COALESCE:
        last_read = {key: (key, n) for key, n in read}
        assert last_read == latest
    else:
        rest = iter(items)
        assert all(item in rest for item in read)


def test_a_paused_mailbox_shows_its_end() -> None:
    mailbox = box()
    mailbox.put_nowait(1)
    mailbox.pause()
    with pytest.raises(trio.EndOfChannel):
        mailbox.receive_nowait()


def test_a_newer_value_that_is_too_heavy_for_now_waits_and_the_older_one_stays() -> None:
    mailbox = box(size=9, overflow=Overflow.COALESCE, key=lambda m: m[0], most_weight=10, weigh=len)
    mailbox.put_nowait("aaaa")
    mailbox.put_nowait("bbbb")
    with pytest.raises(trio.WouldBlock):
        mailbox.put_nowait("a" * 8)
    mailbox.put_nowait("aaaaaa")
    assert mailbox.statistics().weight == 10
    assert taken(mailbox) == ["aaaaaa", "bbbb"]


def test_one_key_stays_one_message_when_others_make_room_for_its_weight() -> None:
    owner = Losses()
    mailbox = box(
        owner,
        overflow=lambda item: Overflow.COALESCE if item[0] == "k" else Overflow.DROP_OLDEST,
        key=lambda item: item[0],
        most_weight=10,
        weigh=lambda item: item[1],
    )
    for item in (("k", 3), ("d", 6), ("k", 6)):
        mailbox.put_nowait(item)
    assert taken(mailbox) == [("k", 6)]
    assert owner.lost == [(("d", 6), Lost.DROPPED), (("k", 3), Lost.COALESCED)]


@pytest.mark.finding("faults-C2")
def test_a_full_mailbox_asks_no_message_again_whether_it_may_go() -> None:
    asked: list[Item] = []

    def overflow(item: Item) -> Overflow:
        asked.append(item)
        return Overflow.COALESCE if item[0] == "change" else Overflow.DROP_OLDEST

    mailbox = box(size=1024, overflow=overflow, key=lambda item: item)
    for n in range(1024):
        mailbox.put_nowait(("change", n))
    asked.clear()
    for n in range(100):
        with pytest.raises(trio.WouldBlock):
            mailbox.put_nowait(("change", 2000 + n))
    assert len(asked) == 100


@pytest.mark.finding("faults-C2")
def test_a_report_behind_a_thousand_answers_makes_room_without_a_search() -> None:
    losses = Losses()
    mailbox = box(losses, size=1001, overflow=lambda item: _KINDS[item[0]])
    for n in range(1000):
        mailbox.put_nowait(("answer", n))
    for n in range(5000):
        mailbox.put_nowait(("report", n))
    assert [message for message, _ in losses.lost] == [("report", n) for n in range(4999)]
    assert mailbox.depth == 1001
    assert len(list(mailbox.messages())) == 1001
    assert len(mailbox._queue or ()) <= 2 * 1001 + 1  # what was dropped does not pile up
    assert taken(mailbox) == [*(("answer", n) for n in range(1000)), ("report", 4999)]
    assert mailbox.depth == 0


_KINDS = {"answer": Overflow.WAIT, "report": Overflow.DROP_OLDEST}


@given(st.lists(st.sampled_from(["answer", "report", "take"]), max_size=60), st.integers(1, 6))
def test_dropping_is_what_a_search_for_the_oldest_would_do(script: list[str], size: int) -> None:
    losses = Losses()
    mailbox = box(losses, size=size, overflow=lambda item: _KINDS[item[0]], weigh=lambda _: 1, most_weight=1000)
    model: list[Item] = []
    lost: list[Item] = []
    for n, act in enumerate(script):
        if act == "take":
            assert taken_one(mailbox) == (model.pop(0) if model else None)
            continue
        item = (act, n)
        fits = len(model) < size
        oldest = next((one for one in model if one[0] == "report"), None)
        if not fits and oldest is not None:
            model.remove(oldest)
            lost.append(oldest)
            fits = True
        if fits:
            model.append(item)
            mailbox.put_nowait(item)
        elif act == "report":
            lost.append(item)
            mailbox.put_nowait(item)
        else:
            with pytest.raises(trio.WouldBlock):
                mailbox.put_nowait(item)
        assert list(mailbox.messages()) == model
        assert mailbox.statistics().weight == len(model)
    assert [message for message, _ in losses.lost] == lost
    assert taken(mailbox) == model


def taken_one(mailbox: Mailbox[Any]) -> Any:
    try:
        return mailbox.receive_nowait()
    except trio.WouldBlock:
        return None
