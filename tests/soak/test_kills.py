"""Promise 1: a backend that is killed takes nobody's request with it, and leaves nothing behind."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from benchmarks.nemesis import Plan, play
from benchmarks.nemesis_history import share
from benchmarks.nemesis_stand import BACKEND
from callboard.actors.broker.policy import Restarts
from callboard.supervisor import Backoff, Intensity
from callboard.testing import Peer, Refusal
from callboard.transports.client.process import Command
from tests.broker.front import backend, brokered, peer
from tests.figures import BUSY, LONG, figure
from tests.process import PATIENCE


@pytest.mark.parametrize(("front", "is_legacy"), [("ws", False), ("http", False), ("ws", True)])
async def test_1_killing_a_backend_hangs_nothing(front: str, is_legacy: bool) -> None:
    short, long = (22, 1000) if (front, is_legacy) == ("ws", False) else (8, 100)
    plan = Plan(kills=long if LONG else short, front=front, is_legacy=is_legacy, in_flight=200)
    report = await play("kills", plan)
    figure("promise 1", f"{front}{', legacy' if is_legacy else ''}, seed {plan.seed}: {report.text()}")
    assert report.is_well, report.text()
    verdict = report.verdict
    assert verdict.deaths == plan.kills + plan.backends
    assert verdict.outcomes["-31001"] == 200 * verdict.deaths == len(verdict.after_death)
    assert share(verdict.after_death, 0.99) <= 0.1 * BUSY
    assert verdict.after_death[-1] <= 0.5 * BUSY


def latest(journal: Path) -> int:
    """The process that started last."""
    facts = [json.loads(line) for line in journal.read_text().splitlines()]
    return int([fact["started"] for fact in facts if "started" in fact][-1])


async def killed_once(client: Peer, journal: Path) -> None:
    asked = [await client.begin("tools/call", name="hold", arguments={}) for _ in range(50)]
    await client.request("tools/call", name="meet", arguments={"count": 50})
    os.kill(latest(journal), signal.SIGKILL)
    for one in asked:
        with pytest.raises(Refusal, match="-31001"):
            await client.finish(one)


async def test_1_no_task_and_no_actor_is_left_of_the_dead(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    command = Command(args=(sys.executable, "-I", "-S", str(BACKEND), "only", str(journal)))
    soon = Restarts(intensity=Intensity(1000, per=1.0), backoff=Backoff(first=0.01, most=0.05))
    found: list[tuple[int, int]] = []
    with trio.fail_after(PATIENCE):
        async with brokered(backend(command, restarts=soon)) as host, peer(host, capabilities={}) as client:
            for _ in range(40 if LONG else 6):
                await killed_once(client, journal)
                await client.request("tools/call", name="echo", arguments={})
                await trio.testing.wait_all_tasks_blocked(0.05)
                actors = sum(1 for _ in host.root.tree().walk())
                found.append((trio.lowlevel.current_statistics().tasks_living, actors))
    figure("promise 1", f"tasks and actors at rest after each of {len(found)} deaths: {sorted(set(found))}")
    assert len(set(found)) == 1
