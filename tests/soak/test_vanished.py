"""A machine that vanishes: a network namespace of its own, whose packets are dropped. SCALE's target 15."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

import pytest
import trio

from tests.cluster.stage import Fleet, at, fleet_of, kill_node, known, together
from tests.figures import BUSY, LONG, figure
from tests.shared import IN_CI
from tests.transports.server.http.stage import Answer
from tests.workers.crowd import Crowd, CrowdSession, crowd

IP = shutil.which("ip", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") or ""
NUMBER = os.getpid() % 250
"""So that tests that run beside this one have names and addresses of their own."""
HERE, THERE = f"10.99.{NUMBER}.1", f"10.99.{NUMBER}.2"
CARD_HERE, CARD_THERE = f"cb-here-{NUMBER}", f"cb-there-{NUMBER}"
LOOKED_EVERY = 0.1
"""Seconds between two requests."""


def ip(*words: str) -> None:
    subprocess.run((IP, *words), check=True)


@contextmanager
def far_machine() -> Iterator[str]:
    """A namespace with the address THERE; this machine is HERE."""
    if os.geteuid() != 0 or not IP or sys.platform != "linux":
        (pytest.fail if IN_CI else pytest.skip)("network namespaces need Linux, root and iproute2")
    name = f"callboard-{os.getpid()}"
    inside = ("netns", "exec", name, IP)
    try:
        ip("netns", "add", name)
        ip("link", "add", CARD_HERE, "type", "veth", "peer", "name", CARD_THERE, "netns", name)
        ip("addr", "add", f"{HERE}/24", "dev", CARD_HERE)
        ip("link", "set", CARD_HERE, "up")
        ip(*inside, "addr", "add", f"{THERE}/24", "dev", CARD_THERE)
        ip(*inside, "link", "set", CARD_THERE, "up")
        ip(*inside, "link", "set", "lo", "up")
        yield name
    finally:
        subprocess.run((IP, "link", "del", CARD_HERE), check=False)  # connections may keep the namespace for a while
        ip("netns", "del", name)


def drop_packets(name: str) -> None:
    """Without a word to either side: each sends to a network card that is not there."""
    for before, address, card in (((), THERE, CARD_HERE), (("netns", "exec", name, IP), HERE, CARD_THERE)):
        ip(*before, "neigh", "replace", address, "lladdr", "02:00:00:00:00:99", "nud", "permanent", "dev", card)


async def test_15_a_machine_that_vanishes(tmp_path: Path) -> None:
    """Its sessions are refused, and then they go on elsewhere; the short form sees only the first."""
    with far_machine() as name:
        async with fleet_of(tmp_path, bind="0.0.0.0") as fleet, _on_both(fleet, name) as (one, far):  # noqa: S104
            await known(one, 1)
            session = await far.session()
            assert (await at(one, session).answer_to("where")).status == 200
            drop_packets(name)
            answers = await _asked(one, session, _is_restored if LONG else _is_refused)
            await kill_node(far)
    refused, first = next((when, answer) for when, answer in answers if _is_refused(answer))
    restored = answers[-1][0]
    figure(
        "target 15, vanished",
        f"first answer after {answers[0][0]:.1f} s, 503 after {refused:.1f} s"
        + (f", 200 after {restored:.1f} s" if LONG else ""),
        "503 after 6 s, restored after 15 s",
    )
    assert "retry-after" in first.headers
    assert refused <= 6 * BUSY + LOOKED_EVERY
    if LONG:
        assert {answer.status for _, answer in answers} == {200, 503}
        assert restored <= 15


def _on_both(fleet: Fleet, name: str) -> AbstractAsyncContextManager[list[Crowd]]:
    """A node on this machine, and one on the far one."""
    url, drained = f"redis://{HERE}:{fleet.redis.port}", ("--drain-time", "4")
    here, there = ((*fleet.flags(address=address, url=url), *drained) for address in (HERE, THERE))
    return together(
        crowd(*here, workers=1, patience=120.0),
        crowd(
            *(*there, "--allow-host", "*"),
            workers=1,
            host=THERE,
            before=(IP, "netns", "exec", name),
            patience=120.0,
        ),
    )


async def _asked(node: Crowd, session: CrowdSession, is_last: Callable[[Answer], bool]) -> list[tuple[float, Answer]]:
    """All answers of a session by way of *node*, and when they came, up to the last."""
    answers, began = list[tuple[float, Answer]](), trio.current_time()
    with trio.fail_after(60):
        while not answers or not is_last(answers[-1][1]):
            answer = await at(node, session).answer_to("where")
            answers.append((trio.current_time() - began, answer))
            await trio.sleep(LOOKED_EVERY)
    return answers


def _is_restored(answer: Answer) -> bool:
    return "result" in answer.json


def _is_refused(answer: Answer) -> bool:
    return answer.status == 503
