"""How much hosted tasks may take up, how they make room, and how a server ends that has some."""

from typing import Any

import pytest
import trio

from callboard import Server
from callboard.actors.server import task_store
from callboard.actors.server.drain import drain
from callboard.actors.server.host import Host
from callboard.serve.revoke import end_all_of
from callboard.server import Context, Tasks
from callboard.testing import Peer, Refusal
from tests.server.test_tasks import Name, peer_of


def server(**options: Any) -> Server:
    made = Server("s", extensions=[Tasks(**options)])

    @made.tool(task="required")
    async def work(seconds: float, text: str = "", size: int = 0) -> str:
        await trio.sleep(seconds)
        return text[:1] + "x" * size

    return made


async def begin(client: Peer, seconds: float, **more: Any) -> str:
    arguments = {"seconds": seconds, **more}
    task_id: str = (await client.request("tools/call", name="work", arguments=arguments))["taskId"]
    return task_id


async def status(client: Peer, task_id: str) -> str:
    found: str = (await client.request("tasks/get", taskId=task_id))["status"]
    return found


def held(host: Host) -> tuple[int, int]:
    """How many tasks there are, and how much memory they count for."""
    store = host.offer.task_store
    assert store is not None
    return len(store), host.memory.total


async def test_a_task_whose_outcome_was_fetched_makes_room_and_no_other_does(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_store, "MAX_HOSTED_TASKS_EACH", 2)
    async with server().host() as host, peer_of(host, "alice") as alice, peer_of(host, "bob") as bob:
        first, second = await begin(alice, 1), await begin(alice, 1)
        await trio.sleep(2)
        with pytest.raises(Refusal, match="too many tasks"):
            await begin(alice, 1)
        assert await status(alice, second) == "completed"
        third = await begin(alice, 1)
        with pytest.raises(Refusal, match="Unknown task"):
            await status(alice, second)
        assert [await status(alice, one) for one in (first, third)] == ["completed", "working"]
        assert await status(bob, await begin(bob, 1)) == "working"


async def test_tasks_of_one_client_make_no_room_for_those_of_another_until_all_is_full(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_store, "MAX_HOSTED_TASKS", 2)
    async with server().host() as host, peer_of(host, "alice") as alice, peer_of(host, "bob") as bob:
        first, second = await begin(alice, 1), await begin(alice, 100)
        await trio.sleep(2)
        with pytest.raises(Refusal, match="too many tasks"):
            await begin(bob, 1)
        assert await status(alice, first) == "completed"
        await begin(bob, 1)
        assert await status(alice, second) == "working"
        assert held(host)[0] == 2


async def test_arguments_and_outcomes_are_counted_and_given_back(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_store, "MAX_TASK_BYTES_EACH", 10_000)
    async with server(ttl=60).host() as host, peer_of(host, "alice") as alice:
        before = host.memory.total
        with pytest.raises(Refusal, match="too many bytes of tasks"):
            await begin(alice, 1, text="t" * 10_000)
        assert held(host) == (0, before)
        first = await begin(alice, 1, text="t" * 5_000)
        assert held(host)[1] >= before + task_store.TASK_WEIGHT + 5_000
        second = await begin(alice, 2, size=6_000)
        await trio.sleep(3)
        failed = await alice.request("tasks/get", taskId=second)
        assert (failed["status"], failed["error"]["message"]) == ("failed", "too many bytes of tasks")
        assert await status(alice, first) == "completed"
        third = await begin(alice, 1, size=6_000)
        await trio.sleep(2)
        assert await status(alice, third) == "completed"
        await trio.sleep(61)
        assert held(host) == (0, before)


async def test_an_outcome_that_is_too_large_to_be_told_fails_its_task(autojump_clock: object) -> None:
    async with server().host() as host, peer_of(host, "alice") as alice:
        task_id = await begin(alice, 1, size=9 * 1024 * 1024)
        await trio.sleep(2)
        told = await alice.request("tasks/get", taskId=task_id)
        assert told["status"] == "failed"
        assert "larger than" in told["statusMessage"]


async def test_a_server_that_drains_gives_tasks_their_time_and_then_fails_them(autojump_clock: object) -> None:
    async with server().host() as host, peer_of(host, "alice") as alice:
        store = host.offer.task_store
        assert store is not None
        quick, slow = await begin(alice, 5), await begin(alice, 100)
        tasks = dict(store._held)
        started = trio.current_time()
        with trio.fail_after(40):
            await drain(host, within=30, spread=1)
        assert 28 <= trio.current_time() - started <= 31
        assert tasks[quick].status == "completed"
        assert (tasks[slow].status, tasks[slow].status_message) == ("failed", str(tasks[slow].failure()))
    assert all(task.is_ended for task in tasks.values())
    assert len(store) == 0


async def test_a_task_that_waits_for_its_client_does_not_hold_up_the_end(autojump_clock: object) -> None:
    made = Server("s")

    @made.tool(task="required")
    async def ask(*, ctx: Context) -> str:
        await trio.sleep(3)
        return str(await ctx.elicit("Name?", Name))

    async with made.host() as host, peer_of(host, "alice") as alice:
        store = host.offer.task_store
        assert store is not None
        await alice.request("tools/call", name="ask", arguments={})
        (task,) = store._held.values()
        started = trio.current_time()
        await drain(host, within=30, spread=1)
        assert trio.current_time() - started < 5
        assert task.status == "failed"


async def test_a_revoked_principal_has_no_tasks_any_more(autojump_clock: object) -> None:
    async with server().host() as host, peer_of(host, "alice") as alice, peer_of(host, "bob") as bob:
        await begin(alice, 100)
        other = await begin(bob, 100)
        await end_all_of(host, {"alice"})
        assert held(host)[0] == 1
        assert await status(bob, other) == "working"
