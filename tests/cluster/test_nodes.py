"""Two nodes and one Redis, as their operator starts them: real processes, real signals, real certificates."""

import signal
from pathlib import Path

from tests.cluster.stage import kill_node, two_nodes
from tests.workers.crowd import Crowd, CrowdSession


def at(node: Crowd, session: CrowdSession) -> CrowdSession:
    """The same session, by way of another node."""
    return CrowdSession(node, session.id)


async def test_a_session_is_used_at_any_node_and_goes_on_when_its_own_is_killed(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (_, one, other):
        session = await one.session()
        home = await session.call("where")
        assert home in one.workers()
        assert await at(other, session).call("where") == home
        await kill_node(one)
        assert await at(other, session).call("where") in other.workers()


async def test_a_node_that_ends_hands_its_sessions_over(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (_, one, other):
        sessions = [await one.session() for _ in range(5)]
        one.process.signal(signal.SIGTERM)
        assert await one.process.wait() == 0
        for session in sessions:
            assert await at(other, session).call("where") in other.workers()
