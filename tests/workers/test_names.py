"""Names that clients hold: a forged one costs little, and one that may be used once is used once, in all workers."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio
from hypothesis import given
from hypothesis import strategies as st

from callboard import Context, InputRequired, Rate
from callboard.codecs.home import HOME_SIZE, HomeNames, chosen_home, new_worker_name
from callboard.codecs.seal import KeyRing
from callboard.errors import INVALID_PARAMS
from callboard.workers.book import MAX_BYTES, RECORD_WEIGHT, Book, Found, key_of
from callboard.workers.shared_rate import LOCK_WAIT, MeterPage, SharedRateLimit, create_meters
from tests.figures import BUSY
from tests.transports.server.http.house import Name
from tests.transports.server.http.stage import Answer
from tests.workers.stage import Worker, office

ADA = {"action": "accept", "content": {"name": "Ada"}}


def names() -> HomeNames:
    return HomeNames(KeyRing.generate(), new_worker_name())


def test_a_name_leads_to_its_home_for_its_principal_alone() -> None:
    ring = KeyRing.generate()
    here, there = (HomeNames(ring, new_worker_name()) for _ in range(2))
    name = here.new("ada")
    assert there.home_of(name, "ada") == here.here
    assert there.home_of(name, "ada") == here.here  # remembered
    assert there.home_of(name, "bob") is None
    assert HomeNames(KeyRing.generate(), there.here).home_of(name, "ada") is None
    assert HomeNames(ring, there.here, purpose="task").home_of(name, "ada") is None
    assert len(name) < 100


@given(st.text(max_size=200))
def test_what_is_no_name_leads_nowhere(text: str) -> None:
    assert names().home_of(text, "ada") is None


def test_a_forged_name_is_refused_in_microseconds() -> None:
    ours, forged = names(), [HomeNames(KeyRing.generate(), new_worker_name()).new("ada") for _ in range(2000)]
    began = time.process_time()
    assert not any(ours.home_of(name, "ada") for name in forged)
    assert (time.process_time() - began) / len(forged) < 100e-6  # 5 us, on a machine that does nothing else
    assert not ours._known


@given(st.binary(min_size=1, max_size=16), st.lists(st.binary(min_size=8, max_size=8), min_size=2, unique=True))
def test_all_choose_the_same_home_and_only_what_belonged_to_one_that_ended_moves(
    key: bytes, living: list[bytes]
) -> None:
    home = chosen_home(key, living)
    assert chosen_home(key, reversed(living)) == home
    rest = [name for name in living if name != home]
    assert chosen_home(key, [home, *rest[1:]]) == home


# States that were handed over.


async def test_a_state_is_accepted_once_however_many_workers_it_is_sent_to_at_once(tmp_path: Path) -> None:
    async with office(tmp_path, 3) as (_, workers):
        for worker in workers:
            _offer_question(worker)
        for _ in range(10):
            client = await workers[0].place.connect()
            asked = (await client.call("once")).result
            answers: list[Answer] = []

            async def send(worker: Worker, state: str, key: str, heard: list[Answer]) -> None:
                client = await worker.place.connect()
                more: dict[str, Any] = {"inputResponses": {key: ADA}, "requestState": state}
                await client.send(client.modern("tools/call", name="once", arguments={}, **more))
                heard.append(await client.answer())

            async with trio.open_nursery() as nursery:
                for worker in (*workers, *workers):
                    (key,) = asked["inputRequests"]
                    nursery.start_soon(send, worker, asked["requestState"], key, answers)
            accepted = [answer for answer in answers if "result" in answer.json]
            assert len(accepted) == 1
            assert {answer.code for answer in answers if answer not in accepted} == {INVALID_PARAMS}


def _offer_question(worker: Worker) -> None:
    @worker.house.server.tool
    async def once(*, ctx: Context) -> str | InputRequired:
        question = ctx.elicit("Who?", Name, key="who")
        answered = ctx.answered(question)
        return InputRequired([question], state=1) if answered is None else answered.name


# The book.


def test_a_session_without_a_worker_is_given_to_one_and_the_others_hear_to_which() -> None:
    book = Book(ttl=60)
    book.keep("s", b"record", b"one")
    assert book.take("s", b"two", {b"one", b"two"}, 0) == Found(b"one")
    assert book.free_all_of(b"one", 5) == ["s"]
    assert book.take("s", b"two", {b"two", b"three"}, 6) == Found(b"two", b"record")
    assert book.take("s", b"three", {b"two", b"three"}, 7) == Found(b"two")
    assert book.take("s", b"three", {b"three"}, 8) == Found(b"three", b"record")  # that one has ended, too
    book.drop("s")
    assert book.take("s", b"three", {b"three"}, 9) is None


def test_a_session_that_was_released_is_not_released_again_by_the_one_that_had_it() -> None:
    book = Book(ttl=60)
    book.keep("s", b"record", b"one")
    book.release("s", b"one", 1)
    assert book.take("s", b"two", {b"one", b"two"}, 2) == Found(b"two", b"record")
    book.release("s", b"one", 3)
    assert book.take("s", b"one", {b"one", b"two"}, 4) == Found(b"two")


def test_a_session_that_no_client_comes_back_for_is_forgotten() -> None:
    book = Book(ttl=60)
    book.keep("s", b"record", b"one")
    book.free_all_of(b"one", 0)
    book.forget_old(60)
    assert len(book) == 1
    assert book.take("s", b"two", {b"two"}, 61) is None
    assert len(book) == 0


def test_the_book_is_bounded_in_bytes() -> None:
    book, size = Book(ttl=60), 1_000_000
    for number in range(2 * MAX_BYTES // size):
        book.keep(str(number), b"x" * size, b"one")
    assert len(book) * (size + RECORD_WEIGHT) <= MAX_BYTES
    assert book.take("0", b"two", (), 0) is None


def test_the_book_knows_no_ids() -> None:
    name = names().new("ada")
    assert name not in key_of(name)
    assert key_of(name) == key_of(name) != key_of(name + "x")


# Shares and rates.


def test_a_rate_holds_for_all_that_share_its_page() -> None:
    descriptor = create_meters()
    try:
        shares = [SharedRateLimit.of(Rate(10, per=600), MeterPage(descriptor), "tools/list") for _ in range(3)]
        other = SharedRateLimit.of(Rate(10, per=600), MeterPage(descriptor), "prompts/list")
        allowed = [shares[number % 3].allow("ada", 0) for number in range(30)]
        assert allowed == [True] * 10 + [False] * 20
        assert shares[0].allow("bob", 0)
        assert other.allow("ada", 0)
    finally:
        os.close(descriptor)


@contextmanager
def locked(descriptor: int, seconds: float) -> Iterator[None]:
    """Another process has the lock for so long, as one that loses its core in the middle of it."""
    words = f"import fcntl, time; fcntl.lockf({descriptor}, fcntl.LOCK_EX); print(flush=True); time.sleep({seconds})"
    command = [sys.executable, "-I", "-S", "-c", words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[descriptor]) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield
        holder.kill()


def test_a_rate_is_exact_though_a_worker_loses_its_core_while_it_counts() -> None:
    descriptor = create_meters()
    try:
        share, other = (SharedRateLimit.of(Rate(1, per=600), MeterPage(descriptor), "x") for _ in range(2))
        assert share.allow("ada", 0)
        with locked(descriptor, LOCK_WAIT / 5):
            assert not other.allow("ada", 0)
        # For a worker that hangs, the others wait once, and then each counts for itself.
        with locked(descriptor, 60.0):
            began = time.monotonic()
            assert [other.allow("ada", 0) for _ in range(4)] == [True, False, False, False]
            assert LOCK_WAIT <= time.monotonic() - began < 2 * LOCK_WAIT * BUSY
    finally:
        os.close(descriptor)


def test_workers_have_names_of_their_own() -> None:
    assert len({new_worker_name() for _ in range(1000)}) == 1000
    assert len(new_worker_name()) == HOME_SIZE
