"""A server in several processes, as its operator starts it: real workers, real signals."""

import base64
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
import trio

from callboard.workers.process import HANGS_AFTER
from tests.process import CALLBOARD, callboard
from tests.transports.server.http.stage import Stream
from tests.workers.crowd import APP, Crowd, CrowdSession, crowd, wait_until

KEY = bytes(range(100, 132))


async def _listen(many: Crowd) -> Stream:
    """A subscription that has begun."""
    client = await many.connect()
    await client.send(client.modern("subscriptions/listen", notifications={"toolsListChanged": True}))
    stream = await client.stream_of()
    assert (await stream.message())["method"] == "notifications/subscriptions/acknowledged"
    return stream


async def test_workers_wait_for_a_parent_that_pauses_and_end_when_it_is_killed() -> None:
    async with crowd("--drain-time", "1") as many:
        sessions = [await many.session() for _ in range(12)]
        for session in sessions:  # by then all of them are written down
            await session.call("where")
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
        assert len(answers) == len(sessions)
        assert victim not in answers
        assert "worker_hangs" not in many.process.words
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


async def test_keys_of_a_file_are_seen_nowhere_and_good_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(base64.b64encode(KEY).decode())
    file.chmod(0o600)
    async with crowd("--state-key-file", str(file), "--access-log", "--debug", "--log-level", "debug") as many:
        session = await many.session()
        assert await session.call("where") in many.workers()
        assert await many.ready()
        await _hear_of_changes(many)
        grown = await many.modern("tools/call", name="grow", arguments={})
        assert "while several workers serve" in grown.result["content"][0]["text"]
        await many.process.wait_said(b"name=grow")
        seen = bytes(many.process.stderr)
        for pid in (many.pid, *many.workers()):
            seen += _shown(pid)
        for form in (KEY, KEY.hex().encode(), base64.b64encode(KEY), base64.urlsafe_b64encode(KEY).rstrip(b"=")):
            assert form not in seen
    async with crowd("--state-key-file", str(file)) as again:
        answer = await CrowdSession(again, session.id).answer_to("where")
        assert answer.status == 404  # it is known to be a name, and there is no record of it


async def _hear_of_changes(many: Crowd) -> None:
    """News of one worker reach the listeners of all."""
    listeners = [await _listen(many) for _ in range(6)]
    await many.call("tell")
    for stream in listeners:
        assert (await stream.message())["method"] == "notifications/tools/list_changed"
        await stream.client.aclose()


def test_what_cannot_be_is_said_in_one_line(tmp_path: Path) -> None:
    told = callboard("run", str(APP), "--workers", "2")
    assert (told.returncode, told.stderr.count("\n")) == (2, 1)
    assert "stdio" in told.stderr
    command = [*CALLBOARD, "run", str(tmp_path / "none.py"), "--http", "0", "--workers", "2"]  # runs itself again
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
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
