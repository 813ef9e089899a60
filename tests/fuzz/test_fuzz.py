"""Spoiled frames at every codec: only our own errors come out, nothing hangs, nothing grows.

`CALLBOARD_FUZZ` says how many frames for each codec, `CALLBOARD_FUZZ_SEED` repeats a run.
"""

import gc
import logging
import os
import random
import time

import psutil
import pytest

from tests.fuzz.codecs import CODECS, Codec, answer
from tests.fuzz.mutate import mutated

COUNT = int(os.environ.get("CALLBOARD_FUZZ", "5000"))
SEED = int(os.environ.get("CALLBOARD_FUZZ_SEED", "2026"))
HANG = 0.1
"""Longest that one frame may take, in seconds."""
GROWTH = 32 * 2**20
"""Most that the process may grow over a whole run, in bytes: caches fill, nothing else."""


@pytest.fixture(autouse=True)
def quiet_rdflib() -> None:
    logging.getLogger("rdflib").setLevel(logging.CRITICAL)  # it logs every literal that it cannot read


def seconds(codec: Codec, frame: bytes) -> float:
    started = time.perf_counter()
    answer(codec.read, frame)
    return time.perf_counter() - started


@pytest.mark.parametrize("name", CODECS)
def test_spoiled_frames_meet_only_our_own_errors(name: str) -> None:
    codec, draw = CODECS[name], random.Random(f"{SEED} {name}")
    size = 0
    for number in range(COUNT):
        frame = mutated(draw, codec.corpus)
        started = time.perf_counter()
        try:
            read = answer(codec.read, frame)
            agrees = codec.again is None or answer(codec.again, frame) == read
        except Exception as error:
            pytest.fail(f"{name}: {frame!r} (seed {SEED}, frame {number}) met {type(error).__name__}: {error}")
        assert agrees, f"{name}: one lump and byte by byte disagree on {frame!r}"
        if time.perf_counter() - started > HANG:  # the machine may have been busy: ask again before saying so
            assert min(seconds(codec, frame) for _ in range(3)) < HANG, f"{name}: {frame!r} took too long"
        if number == COUNT // 5:
            gc.collect()
            size = psutil.Process().memory_info().rss
    gc.collect()
    assert psutil.Process().memory_info().rss - size < GROWTH


@pytest.mark.parametrize("name", CODECS)
def test_the_good_frames_are_good(name: str) -> None:
    """Otherwise all that follows would only ever see one refusal."""
    codec = CODECS[name]
    for frame in codec.corpus:
        codec.read(frame)
