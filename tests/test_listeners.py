"""The benchmark of idle peers on several workers: who is where, and that nothing of it is left behind."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from multiprocessing import Pipe

import psutil
import pytest

from benchmarks import listeners_client, listeners_many
from benchmarks.listeners_crowd import Missing, own_address
from benchmarks.listeners_many import NotEnoughDescriptors, enough_workers, gather_many, places
from tests.shared import ROOT

FEW = 20_000
"""Descriptors of a process."""


def test_workers_that_have_too_few_descriptors_are_refused_with_a_number_that_is_enough() -> None:
    with pytest.raises(NotEnoughDescriptors, match="a process may have 20000 descriptors: give --workers 6"):
        enough_workers(100_000, 5, FEW)
    assert enough_workers(100_000, 6, FEW) == 6
    assert enough_workers(100_000, None, FEW) == 6
    assert enough_workers(100_000, None, 1 << 20) == 2
    assert enough_workers(1_000, None, FEW) == 2
    assert enough_workers(1_000, 8, FEW) == 8


@pytest.mark.parametrize("count", [200, 4_002, 30_000, 100_000])
def test_clients_are_all_somewhere_and_no_address_has_more_than_its_share(count: int) -> None:
    found = places(8000, count, FEW)
    assert sum(place.count for place in found) == count
    assert all(place.count % 2 == 0 and place.count < FEW for place in found)
    each = Counter(
        own_address(place.first_address + number // place.each_address)
        for place in found
        for number in range(place.count)
    )
    assert max(each.values()) <= listeners_many.EACH_ADDRESS


def test_every_peer_is_told_once_and_no_process_is_left() -> None:
    before = psutil.Process().children()  # other tests may have some, and a browser starts and ends its own
    found = gather_many(200, 2, rest=0.1, publications=1)
    assert (found.count, found.workers, found.clients) == (200, 2, 2)
    assert 0 < found.heard_first <= found.heard_p50 <= found.heard_p99 <= found.heard_by_all
    assert found.most_descriptors - found.least_descriptors < 100
    assert 0 < found.kib_each < 1000
    assert found.pss_mib <= found.resident_mib
    assert set(psutil.Process().children()) <= set(before)


def test_a_peer_that_is_missing_ends_it_with_what_the_server_said() -> None:
    before = psutil.Process().children()
    with pytest.raises(Missing, match=r"(?s)the server said:.*worker_serves"):  # why it refused may be logged later
        gather_many(200, 2, rest=0.1, publications=1, flags=["--max-connections", "60"])
    assert set(psutil.Process().children()) <= set(before)


def test_ctrl_c_leaves_no_process() -> None:
    words = ["-m", "benchmarks.listeners", "--workers", "2", "--count", "2000", "--rest", "600"]
    bench = subprocess.Popen(
        [sys.executable, *words], cwd=ROOT, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        family = _grown(psutil.Process(bench.pid), 1 + 2 + 2)  # the parent, its workers, and the clients
        os.killpg(bench.pid, signal.SIGINT)  # as a terminal does
        _, said = bench.communicate(timeout=30)
    finally:
        bench.kill()
        bench.wait()
    assert (bench.returncode, said) == (130, b"")
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []


def test_a_client_that_was_told_no_place_ends_without_a_word() -> None:
    ours, theirs = Pipe()
    ours.close()
    listeners_client.main(os.dup(theirs.fileno()))
    theirs.close()


def _grown(process: psutil.Process, count: int) -> list[psutil.Process]:
    """The descendants of *process*, when there are so many."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        found = list(process.children(recursive=True))
        if len(found) >= count:
            return found
        time.sleep(0.05)  # no event tells when another process has children
    raise AssertionError(f"{process} has no {count} descendants")
