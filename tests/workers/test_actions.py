"""What an operator does to a server in several processes reaches the process that it is about, and no other."""

from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.observe.admin import Operator, token_file
from tests.process import CALLBOARD
from tests.workers.crowd import crowd, said
from tests.workers.test_keeper_processes import LEGACY, PLAIN, wait_found, write


def flags(folder: Path) -> tuple[str, ...]:
    return "--admin-actions", "--admin-token-file", token_file(folder)


async def test_of_two_clients_that_their_workers_call_the_same_only_one_is_disconnected(tmp_path: Path) -> None:
    async with crowd(*flags(tmp_path), program=CALLBOARD) as many:  # the page has process ids of the parent
        operator = Operator(many.admin)
        sessions = [await many.session() for _ in range(8)]
        homes = {session: await session.call("where") for session in sessions}
        assert len(set(homes.values())) == 2
        view: Any = await operator.view()
        pids = {row["name"]: row["pid"] for row in view["server"]["workers"]}
        names = [row["name"] for row in view["clients"]]
        local = Counter(name.partition("/")[2] for name in names)
        (same, times) = local.most_common(1)[0]
        assert times == 2  # else this proves nothing
        (victim, other) = sorted(name for name in names if name.endswith(f"/{same}"))
        assert await operator.act("disconnect", same) == 404  # whose?
        assert await operator.act("disconnect", f"worker-99/{same}") == 404
        assert await operator.act("disconnect", victim) == 200
        assert await operator.act("disconnect", victim) == 404
        answers = {session: (await session.answer_to("where")).status for session in sessions}
        assert Counter(answers.values()) == {200: 7, 404: 1}
        (ended,) = [session for session, status in answers.items() if status == 404]
        assert homes[ended] == pids[victim.partition("/")[0]]
        assert other in [row["name"] for row in (await operator.view())["clients"]]
    lines = [line for line in many.process.words.splitlines() if "operator_action" in line]
    assert len(lines) == 4  # the parent's, and no worker's
    assert sum("outcome=done" in line and f"subject={victim}" in line and "operator=ops" in line for line in lines) == 1


async def test_a_server_is_restarted_where_it_runs(tmp_path: Path) -> None:
    config = write(tmp_path / "servers.toml", once=f'{LEGACY}\nshare = "all"', each=f"{LEGACY}\nlocal = true")
    async with crowd(*flags(tmp_path), command="serve", app=config) as many:
        operator = Operator(many.admin)

        async def pids(name: str) -> set[int]:
            """The processes that answer; none if it is not up. Connections stay open: so each worker has some."""
            answers = []
            async with AsyncExitStack() as stack:
                for _ in range(8):
                    client = await stack.enter_async_context(many.client())
                    await client.send(client.modern("tools/call", meta=PLAIN, name=f"{name}__count", arguments={}))
                    answers.append(await client.answer())
            return set() if any("error" in one.json for one in answers) else {said(one)[1] for one in answers}

        async def are_others(name: str, before: set[int]) -> bool:
            after = await pids(name)
            return len(after) == len(before) and not after & before

        once, each = await pids("once"), await pids("each")
        assert (len(once), len(each)) == (1, 2)
        assert await operator.act("restart", "nothing") == 404
        assert await operator.act("restart", "once") == 200
        await wait_found(lambda: are_others("once", once))
        assert await pids("each") == each
        assert await operator.act("restart", "each") == 200
        await wait_found(lambda: are_others("each", each))
