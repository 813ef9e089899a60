"""Promise 26: what a stranger, and what a backend, can take in all, though they do the worst at the same time."""

from pathlib import Path

import pytest

from benchmarks.memory import WORST, WORST_OF_BACKENDS, brokered, hosted, weigh
from benchmarks.memory_broker import ACTS as BY_BACKENDS
from benchmarks.memory_clients import ACTS as BY_CLIENTS
from benchmarks.memory_table import BACKEND_MIB, STRANGER_MIB
from tests.figures import LONG, figure

FEW = 150 if LONG else 75
"""Large things of each kind: 3.9 MB each, so that 75 of one kind alone are more than a stranger may take."""
MANY = 5_000 if LONG else 100
SOME = WORST if LONG else ("bodies",)


@pytest.mark.finding("security-8", "security-9", "security-22", "faults-C3")
@pytest.mark.usefixtures("many_descriptors")
async def test_26_strangers_take_no_more_than_they_may() -> None:
    found = await weigh(hosted(), [BY_CLIENTS[name] for name in SOME], FEW, MANY, rest=0.1)
    figure("promise 26", f"strangers: {found.peak:.0f} MiB ({found.did})", f"<= {STRANGER_MIB} MiB")
    assert found.peak <= STRANGER_MIB


@pytest.mark.finding("security-6", "faults-C2")
@pytest.mark.skipif(not LONG, reason="its lists alone take seconds to read")
async def test_26_a_backend_takes_no_more_than_it_may(tmp_path: Path) -> None:
    found = await weigh(brokered(tmp_path, "lists"), [BY_BACKENDS[name] for name in WORST_OF_BACKENDS], FEW, MANY)
    figure("promise 26", f"a backend: {found.peak:.0f} MiB (60 pages of 3.9 MB; {found.did})", f"<= {BACKEND_MIB} MiB")
    assert found.peak <= BACKEND_MIB
