"""A server in several processes, as its operator starts it: real workers, real signals."""

import base64
import json
import os
import signal
import subprocess
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from callboard.errors import BACKEND_GONE
from callboard.workers.process import HANGS_AFTER
from tests.process import CALLBOARD
from tests.transports.server.http.stage import Answer, Gone, Stream
from tests.workers.crowd import APP, Crowd, CrowdSession, crowd, said, wait_until

KEY = bytes(range(100, 132))


async def homes(sessions: list[CrowdSession]) -> dict[CrowdSession, int]:
    return {session: await session.call("where") for session in sessions}


async def test_sessions_and_connections_are_shared_out_and_each_session_has_one_home() -> None:
    async with crowd() as many:
        assert len(many.workers()) == 2
        sessions = [await many.session() for _ in range(24)]
        first = await homes(sessions)
        assert await homes(sessions) == first
        shares = Counter(first.values())
        assert set(shares) == set(many.workers())
        assert min(shares.values()) >= 6, shares
        assert await many.ready()
        # News of one worker reach the listeners of all.
        listeners = [await _listen(many) for _ in range(6)]
        await many.call("tell")
        for stream in listeners:
            assert (await stream.message())["method"] == "notifications/tools/list_changed"
            await stream.client.aclose()
        grown = await many.modern("tools/call", name="grow", arguments={})
        assert "while several workers serve" in grown.result["content"][0]["text"]
        # A rate of the author's holds for all workers together.
        answers = [await many.modern("prompts/list") for _ in range(30)]
        assert Counter(answer.status for answer in answers) == {200: 20, 429: 10}


async def _listen(many: Crowd) -> Stream:
    """A subscription that has begun."""
    client = await many.connect()
    await client.send(client.modern("subscriptions/listen", notifications={"toolsListChanged": True}))
    stream = await client.stream_of()
    assert (await stream.message())["method"] == "notifications/subscriptions/acknowledged"
    return stream


async def test_a_worker_that_is_killed_takes_only_its_calls_along() -> None:
    async with crowd() as many:
        sessions = [await many.session() for _ in range(20)]
        where = await homes(sessions)
        victim, *_ = many.workers()
        answers: dict[CrowdSession, Answer | None] = {}

        async def wait(session: CrowdSession) -> None:
            answers[session] = None
            with suppress(Gone, trio.BrokenResourceError):  # its own connection was the worker's
                answers[session] = await session.answer_to("wait", seconds=2)

        async with trio.open_nursery() as nursery:
            for session in sessions:
                nursery.start_soon(wait, session)
            await trio.sleep(0.5)
            os.kill(victim, signal.SIGKILL)
            await wait_until(lambda: victim not in many.workers())
            after = await homes(sessions)
        for session, answer in answers.items():
            if answer is not None and where[session] == victim:
                assert (answer.status, answer.code) == (200, BACKEND_GONE)
            elif answer is not None:
                assert said(answer) == where[session]
        assert {answer is not None and where[session] == victim for session, answer in answers.items()} == {True, False}
        assert all(home == where[session] for session, home in after.items() if where[session] != victim)
        assert victim not in after.values()
        await wait_until(lambda: len(many.workers()) == 2)


async def test_a_pause_of_the_parent_is_waited_for_and_not_held_against_its_workers() -> None:
    async with crowd() as many:
        sessions = [await many.session() for _ in range(12)]
        where = await homes(sessions)
        victim, *_ = many.workers()
        os.kill(many.pid, signal.SIGSTOP)
        try:
            os.kill(victim, signal.SIGKILL)
            await trio.sleep(0.3)  # the other worker sees that the link has ended
            answers = list[int]()

            async def call(session: CrowdSession) -> None:
                answers.append(await session.call("where"))

            async with trio.open_nursery() as nursery:
                for session in sessions:
                    nursery.start_soon(call, session)
                await trio.sleep(HANGS_AFTER + 1)
                os.kill(many.pid, signal.SIGCONT)
        finally:
            os.kill(many.pid, signal.SIGCONT)
        assert len(answers) == len(where)
        assert victim not in answers
        assert "worker_hangs" not in many.process.words


async def test_a_new_generation_takes_over_without_a_failed_call(tmp_path: Path) -> None:
    async with crowd() as many:
        before = set(many.workers())
        sessions = [await many.session() for _ in range(6)]
        asked = await many.modern("tools/call", name="ask", arguments={})
        is_over = trio.Event()
        failed: list[object] = []
        count = Counter[int]()

        async def call_on(session: CrowdSession | None) -> None:
            while not is_over.is_set():
                try:
                    count[await (many if session is None else session).call("where")] += 1
                except (AssertionError, Gone, OSError, trio.BrokenResourceError) as error:
                    failed.append(error)

        async with trio.open_nursery() as nursery:
            for session in (*sessions, None, None):
                nursery.start_soon(call_on, session)
            os.kill(many.pid, signal.SIGHUP)
            await wait_until(lambda: count.keys() - before and before & set(many.workers()) != before)
            # What was asked of the old generation is answered by it, through the new one.
            pid, name = await many.answer_ask(asked)
            assert (pid in before, name) == (True, "Ada")
            await wait_until(lambda: not before & set(many.workers()))
            is_over.set()
        assert failed == []
        assert sum(count.values()) > 50


async def test_a_worker_that_hangs_swallows_no_connection_and_its_sessions_are_refused() -> None:
    async with crowd() as many:
        sessions = [await many.session() for _ in range(8)]
        where = await homes(sessions)
        stopped = many.workers()[0]
        os.kill(stopped, signal.SIGSTOP)
        try:
            with trio.fail_after(5):
                assert {await many.call("where") for _ in range(40)} == set(many.workers()) - {stopped}
            theirs = next(session for session, home in where.items() if home == stopped)
            with trio.fail_after(8):
                while (answer := await _within(theirs, 0.3)) is None:
                    pass
            assert answer.status == 503
        finally:
            os.kill(stopped, signal.SIGCONT)


async def _within(session: CrowdSession, seconds: float) -> Answer | None:
    with trio.move_on_after(seconds):
        return await session.answer_to("where")
    return None


async def test_workers_end_when_their_parent_is_killed() -> None:
    async with crowd("--drain-time", "1") as many:
        workers = many.workers()
        many.process.signal(signal.SIGKILL)
        await wait_until(lambda: not any(map(_lives, workers)))


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _shown(pid: int) -> bytes:
    """What `ps` can show of a process."""
    return Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()


async def test_keys_are_seen_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(KEY.hex() + "\n")
    file.chmod(0o600)
    async with crowd("--state-key-file", str(file)) as many:
        await (await many.session()).call("where")
        seen = many.process.stderr
        for pid in (many.pid, *many.workers()):
            seen += _shown(pid)
        for form in (KEY, KEY.hex().encode(), base64.b64encode(KEY), base64.urlsafe_b64encode(KEY).rstrip(b"=")):
            assert form not in seen


async def test_a_state_outlives_a_restart_with_the_keys_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(base64.b64encode(KEY).decode())
    file.chmod(0o600)
    async with crowd("--state-key-file", str(file)) as many:
        session = await many.session()
        assert await session.call("where") in many.workers()
    async with crowd("--state-key-file", str(file)) as again:
        answer = await CrowdSession(again, session.id).answer_to("where")
        assert answer.status == 404  # it is known to be a name, and there is no record of it


def callboard(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself; a program of its own, for a parent runs its own program again."""
    return subprocess.run(
        [*CALLBOARD, *arguments], capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
    )


def test_what_cannot_be_is_said_in_one_line(tmp_path: Path) -> None:
    told = callboard("run", str(APP), "--workers", "2")
    assert (told.returncode, told.stderr.count("\n")) == (2, 1)
    assert "stdio" in told.stderr
    told = callboard("run", str(tmp_path / "none.py"), "--http", "0", "--workers", "2")
    assert (told.returncode, told.stderr) == (2, f"callboard: {tmp_path}/none.py: no such file\n")
    for count in ("0", "65", "many"):
        assert callboard("run", str(APP), "--http", "0", "--workers", count).returncode == 2
    (open_file := tmp_path / "open").write_text(KEY.hex())
    told = callboard("run", str(APP), "--http", "0", "--state-key-file", str(open_file))
    assert "chmod 600" in told.stderr


@pytest.mark.parametrize("text", ["", "abc", KEY.hex() * 2, f"{KEY.hex()}\n{KEY.hex()}", "zz" * 32])
def test_a_file_that_has_no_keys_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    file.chmod(0o600)
    told = callboard("run", str(APP), "--http", "0", "--state-key-file", str(file))
    assert told.returncode == 2
    assert str(file) in told.stderr
    assert json.dumps(KEY.hex()) not in told.stderr
