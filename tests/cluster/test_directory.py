"""How long a node is believed to live, and what waits to be told: arithmetic."""

from callboard.cluster.directory import DEAD_AFTER, MAX_NODES, NodeEntry, NodeWorker, Roll
from callboard.cluster.news import MAX_NEWS_BYTES, NodeMessage, PendingNews, read_node_message, write_node_message
from callboard.codecs.seal import KeyRing
from callboard.workers.messages import Told


def entry(name: str, beat: int = 1, *workers: NodeWorker) -> NodeEntry:
    return NodeEntry(name, "127.0.0.1", list(workers), beat=beat)


def names(roll: Roll) -> set[str]:
    return {entry.name for entry in roll.nodes()}


def test_a_node_is_dead_when_its_announcement_does_not_change_for_long() -> None:
    roll = Roll("me")
    assert roll.read([entry("me"), entry("a"), entry("b")], 0.0)
    assert names(roll) == {"a", "b"}
    assert not roll.read([entry("a", 2), entry("b")], DEAD_AFTER)  # which is still in the store, and old
    assert roll.read([entry("a", 3), entry("b")], DEAD_AFTER + 0.1)
    assert names(roll) == {"a"}


def test_an_old_announcement_brings_no_one_back_and_changes_nothing() -> None:
    roll, worker = Roll("me"), NodeWorker(b"12345678", 1, 1, 4000)
    roll.read([entry("a", 5, worker)], 0.0)
    assert not roll.read([entry("a", 4)], 1.0)
    assert roll.nodes() == [entry("a", 5, worker)]
    assert roll.read([], DEAD_AFTER + 0.1)
    assert roll.nodes() == []


def test_a_node_that_is_missing_in_the_store_lives_until_its_time_is_over() -> None:
    roll = Roll("me")
    roll.read([entry("a")], 0.0)
    assert not roll.read([], DEAD_AFTER - 0.1)
    assert names(roll) == {"a"}


def test_silence_while_the_store_was_away_means_nothing() -> None:
    roll = Roll("me")
    roll.read([entry("a")], 0.0)
    roll.excuse(1000.0)
    assert not roll.read([], 1000.0)
    assert roll.read([], 1000.0 + DEAD_AFTER + 0.1)


def test_a_node_that_says_that_it_ends_is_gone_at_once() -> None:
    roll = Roll("me")
    roll.read([entry("a")], 0.0)
    assert roll.remove("a")
    assert not roll.remove("a")
    assert roll.nodes() == []


def test_the_roll_is_bounded() -> None:
    roll = Roll("me")
    roll.read([entry(str(number)) for number in range(MAX_NODES + 10)], 0.0)
    assert len(roll.nodes()) == MAX_NODES


def test_changes_of_one_thing_are_one_and_too_many_are_everything() -> None:
    news = PendingNews()
    assert not news
    for _ in range(3):
        news.add(Told(["tools"], ["a://b"]))
    assert news.take() == Told(["tools"], ["a://b"])
    assert not news
    news.add(Told([], [f"a://{number:0100}" for number in range(MAX_NEWS_BYTES // 100)]))
    assert news.take() == Told(everything=True)
    news.add(Told(everything=True))
    news.add(Told(["tools"], ["a://b"]))
    assert news.take() == Told(everything=True)


def test_what_another_one_has_written_to_the_store_is_no_message() -> None:
    ring, other = KeyRing.generate(), KeyRing.generate()
    message = NodeMessage("a", "told", ["tools"])
    assert read_node_message(write_node_message(message, ring).encode(), ring) == message
    for text in (write_node_message(message, other).encode(), b"", b"\xff", b'{"node":"a","kind":"told"}'):
        assert read_node_message(text, ring) is None


def test_the_longest_news_fit_one_message() -> None:
    news, ring = PendingNews(), KeyRing.generate()
    while len(news._resources) * 104 < MAX_NEWS_BYTES - 200:
        news.add(Told([], [f"a://{len(news._resources):096}"]))
    told = news.take()
    assert not told.everything
    assert len(write_node_message(NodeMessage("a" * 16, "told", told.lists, told.resources), ring)) < 64 * 1024
