"""A broker on two nodes: each node has a backend once, and a legacy session stays with that of its home."""

from pathlib import Path

from tests.cluster.stage import at, fleet_of, known, together
from tests.workers.test_keeper_processes import count, write


async def test_each_node_has_a_backend_once_and_a_session_stays_with_its_own(tmp_path: Path) -> None:
    file = write(tmp_path / "callboard.toml", once="")
    async with (
        fleet_of(tmp_path) as fleet,
        together(*(fleet.node(app=file, command="serve") for _ in range(2))) as nodes,
    ):
        for node in nodes:
            await known(node, 1)
        backends = [{(await count(node))[1] for _ in range(3)} for node in nodes]
        assert [len(one) for one in backends] == [1, 1]
        assert backends[0] != backends[1]
        session = await nodes[0].session()
        counts = [await at(node, session).call("once__count") for node in nodes * 3]
        numbers, pids = zip(*counts, strict=True)
        assert {*pids} == backends[0]
        assert list(numbers) == list(range(numbers[0], numbers[0] + 6))
