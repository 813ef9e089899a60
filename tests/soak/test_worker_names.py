"""Names that clients hold, where many workers hear them: SCALE's targets 20, 21 and 24."""

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import trio

from callboard.codecs.home import HomeNames, new_worker_name
from callboard.codecs.revisions.revision import R4
from callboard.codecs.seal import KeyRing
from tests.figures import BUSY, LONG, figure
from tests.transports.server.http.sessions import OpenSession
from tests.transports.server.http.stage import Answer
from tests.workers.crowd import Crowd, crowd, wait_until
from tests.workers.stage import office

FORGED = 1_000_000 if LONG else 20_000
STATES = 1_000 if LONG else 8
HISTORIES = 100_000 if LONG else 300
WORKERS = 4 if LONG else 2
ANSWER = {"action": "accept", "content": {"name": "Ada"}}


def test_20_forged_names_cost_microseconds_and_lead_nowhere() -> None:
    ours, theirs = HomeNames(KeyRing.generate(), new_worker_name()), HomeNames(KeyRing.generate(), new_worker_name())
    foreign = [theirs.new("ada") for _ in range(1000)]
    other = [ours.new("bob") for _ in range(1000)]
    flipped = [name[:-4] + ("AAAA" if name[-4:] != "AAAA" else "BBBB") for name in other]
    began = time.process_time()
    hits = 0
    for _ in range(FORGED // 3000):
        hits += sum(ours.home_of(name, "ada") is not None for name in (*foreign, *other, *flipped))
    each = (time.process_time() - began) / (FORGED // 3000 * 3000) * 1e6
    figure("target 20", f"{FORGED:,} forged or foreign ids: {hits} hits, {each:.1f} us each", "0 hits, 10 us")
    assert hits == 0
    assert each <= 10 * BUSY


async def test_21_a_state_is_accepted_once_whichever_workers_hear_it() -> None:
    async with crowd("--spread", "0.5", workers=WORKERS, patience=600.0) as many:
        accepted = [len(await _send_to_all(many, tool)) for _ in range(STATES // 2) for tool in ("once", "ask")]
        # Whether a state was used, only its home knows; without it, another worker may accept it once more.
        state = await _asked(many, "once")
        before = await _retry_all(many, "once", state)
        for victim in many.workers()[:1]:
            os.kill(victim, signal.SIGKILL)
            await wait_until(lambda victim=victim: victim not in many.workers())  # type: ignore[misc]  # its own
        after = await _retry_all(many, "once", state)
    figure(
        "target 21",
        f"{len(accepted):,} states, each to {WORKERS} workers at once: accepted {min(accepted)} to {max(accepted)}"
        f" times; one whose home may be killed: {len(before) + len(after)}",
        "once; 2 at most",
    )
    assert set(accepted) == {1}
    assert len(before) == 1
    assert len(after) <= 1


async def _send_to_all(many: Crowd, tool: str) -> list[Answer]:
    return await _retry_all(many, tool, await _asked(many, tool))


async def _asked(many: Crowd, tool: str) -> dict[str, Any]:
    return (await many.modern("tools/call", name=tool, arguments={})).result


async def _retry_all(many: Crowd, tool: str, asked: dict[str, Any]) -> list[Answer]:
    """Bring an answer twice as often as there are workers, at once. Returns the answers that accepted it."""
    (key,) = asked["inputRequests"]
    answers = list[Answer]()

    async def retry() -> None:
        more: dict[str, Any] = {"inputResponses": {key: ANSWER}, "requestState": asked["requestState"]}
        answers.append(await many.modern("tools/call", name=tool, arguments={}, **more))

    async with trio.open_nursery() as nursery:
        for _ in range(2 * WORKERS):
            nursery.start_soon(retry)
    assert {answer.status for answer in answers} <= {200, 400}
    return [answer for answer in answers if "result" in answer.json]


async def test_24_events_of_a_worker_that_is_gone_are_never_taken_for_those_of_its_successor(tmp_path: Path) -> None:
    numbers, refused = random.Random(24), Counter[int]()
    async with office(tmp_path, patience=600.0) as (all_, (here, there)):
        session = await OpenSession.open(here.place, R4)
        ids = list[str]()
        for _ in range(3):
            stream = await session.streamed("chat", words=["a", "b"])
            ids += [event.id for event in [await stream.event() for _ in range(3)] if event is not None]
        await all_.kill(here)
        away = attrs.evolve(session, place=there.place, client=await there.place.connect())
        for _ in range(6):  # so that all these numbers are known to the session that is
            assert (await (await away.streamed("chat", words=["x", "y", "z"])).rest())[-1]["result"]
        client = await there.place.connect()
        for _ in range(HISTORIES):
            prefix, number, last = here.homes.incarnation, numbers.randrange(9), numbers.randrange(6)
            made = numbers.choice([f"{prefix}{number}-{last}", f"{number}-{last}", numbers.choice(ids)])
            await client.send(away.get(made))
            refused[(await client.answer()).status] += 1
    figure("target 24", f"{HISTORIES:,} event ids of the older incarnation: {dict(refused)}", "400 always")
    assert refused == {400: HISTORIES}
