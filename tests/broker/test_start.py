"""Servers that fail or hang at their start: what the operator is told, how often they are started, and Ctrl-C."""

import json
import signal
import sys
import time
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from callboard import connect
from callboard.actors.broker.policy import BackendSettings, Restarts
from callboard.actors.server.parking import Parking
from callboard.broker import Broker
from callboard.errors import CallboardError, CannotServe
from callboard.serve.banner import as_json, as_text
from callboard.serve.options import Ready
from callboard.serve.run import _run
from callboard.supervisor import Backoff, Intensity
from callboard.transports.client.process import Command
from tests.broker.back import Back
from tests.broker.front import backend

ONCE = BackendSettings(restarts=Restarts(intensity=Intensity(1, per=1000.0), backoff=Backoff(first=0.01, most=0.01)))
FATAL = "FATAL: missing API_KEY environment variable"
DIES = f"echo '{FATAL}' >&2; echo 'Node.js v20.1' >&2; exit 1"
READS_AND_DIES = "read line; exit 1"


def script(text: str, starts: Path) -> Command:
    """A server that is a shell's script, and notes each start in a file."""
    return Command.of(["/bin/sh", "-c", f"echo . >>'{starts}'; {text}"])


@pytest.mark.finding("newcomer-H2")
async def test_a_server_that_fails_at_its_start_says_why(tmp_path: Path) -> None:
    broker = Broker([backend(script(DIES, tmp_path / "starts"), settings=ONCE)])
    with trio.fail_after(20), capture_logs() as logs:
        async with broker.host(parking=Parking("broker")):
            ready = Ready(broker.info, (), behind=broker.behind())
    [lost, *_] = [line for line in logs if line["event"] == "backend_lost"]
    assert FATAL in lost["said"]
    counted, not_up = as_text(ready).splitlines()[1:3]
    assert counted == "  0 of 1 server with 0 tools behind it"
    assert not_up.endswith(FATAL)
    assert json.loads(as_json(ready))["servers"][0]["why"].endswith(f"exited with 1: {FATAL}")


@pytest.mark.parametrize("wait", [0, 3])
async def test_a_file_says_how_long_slow_servers_are_waited_for(
    wait: float, tmp_path: Path, autojump_clock: MockClock
) -> None:
    file = tmp_path / "servers.toml"
    file.write_text(f'wait = {wait}\n[mcpServers.slow]\ncommand = "sleep"\nargs = ["1000"]\n')
    broker = Broker.of_file(file)
    began = trio.current_time()
    async with broker.host(parking=Parking("broker")):
        assert trio.current_time() - began == pytest.approx(wait, abs=0.5)
        [slow] = broker.behind().servers
        assert slow.why == "no response yet"


@pytest.mark.finding("newcomer-H2")
async def test_what_a_server_wrote_before_it_failed_is_not_told_to_clients(tmp_path: Path) -> None:
    broker = Broker([backend(script(DIES, tmp_path / "starts"), settings=ONCE)])
    with trio.fail_after(20):
        async with broker.host(parking=Parking("broker")):
            assert "FATAL" not in str(broker.backends["back"].gone())


@pytest.mark.finding("newcomer-H6")
async def test_a_python_server_that_cannot_be_loaded_is_left_out_if_wanted(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("from callboard import Server\nserver = Server('good')\n")
    (tmp_path / "bad.py").write_text("raise RuntimeError('no database')\n")
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {name: {"python": f"{name}.py"} for name in ("bad", "good")}}))
    with pytest.raises(CannotServe, match="no database"):
        async with Broker.of_file(file).host(parking=Parking("broker")):
            pass
    broker = Broker.of_file(file, skips_invalid=True)
    with capture_logs() as logs:
        async with broker.host(parking=Parking("broker")):
            assert [(one.name, one.is_up) for one in broker.behind().servers] == [("good", True)]
    [warning] = [str(line["warning"]) for line in logs if line["event"] == "config_warning"]
    assert warning.startswith("bad: ")
    assert warning.endswith("RuntimeError: no database; the server is skipped")


@pytest.mark.finding("newcomer-H3", "faults-low-handshake")
@pytest.mark.parametrize(("text", "extra"), [(DIES, 0), (READS_AND_DIES, 1)], ids=["at once", "in the handshake"])
async def test_a_server_that_ends_in_the_handshake_is_started_once_for_each_attempt(
    text: str, extra: int, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    settings = BackendSettings(
        restarts=Restarts(intensity=Intensity(4, per=1000.0), backoff=Backoff(first=0.01, most=0.01))
    )
    broker = Broker([backend(script(text, starts), settings=settings)])
    with trio.fail_after(20), capture_logs() as logs:
        async with broker.host(parking=Parking("broker")):
            while not any(line["event"] == "backend_down" for line in logs):  # noqa: ASYNC110
                await trio.sleep(0.01)
            attempts = broker.backends["back"].circuit.attempts
    # A server that has read the newest revision's first request may have died of it: it gets the old handshake, once.
    assert (attempts, len(starts.read_text().split())) == (5, 5 + extra)


@pytest.mark.finding("newcomer-H3")
async def test_a_client_starts_a_server_that_ends_by_itself_once(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    with trio.fail_after(20), pytest.raises(CallboardError, match="exited with 1"):
        async with connect(script(DIES, starts)):
            pass
    assert len(starts.read_text().split()) == 1


@pytest.mark.finding("newcomer-H4")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_before_it_is_ready_ends_it_at_once_and_unannounced(
    number: signal.Signals, autojump_clock: MockClock
) -> None:
    back = Back(holds={"server/discover", "initialize"})
    broker = Broker([backend(back.ways)])
    announced: list[Ready] = []
    is_interrupted = False
    with capture_logs() as logs:
        async with trio.open_nursery() as nursery:

            async def interrupt() -> None:
                await trio.sleep(3)
                assert [one.why for one in broker.behind().servers] == ["no response yet"]
                signal.raise_signal(number)

            nursery.start_soon(interrupt)
            try:
                await _run(broker, {"http": 0, "on_ready": announced.append})
            except KeyboardInterrupt:
                is_interrupted = True
    assert trio.current_time() < 4
    assert is_interrupted is (number is signal.SIGINT)
    assert announced == []
    assert [line["servers"] for line in logs if line["event"] == "waiting_for_servers"] == ["back"]


@pytest.mark.finding("newcomer-H4")
def test_ctrl_c_while_a_server_hangs_at_its_start_ends_within_a_second_with_130(tmp_path: Path) -> None:
    started, file = tmp_path / "started", tmp_path / "mcp.json"
    hung = {"command": "/bin/sh", "args": ["-c", f"trap '' TERM; echo . >'{started}'; while :; do sleep 1; done"]}
    file.write_text(json.dumps({"mcpServers": {"hung": hung}}))
    with Popen([sys.executable, "-m", "callboard", "serve", str(file), "--http", "0"], stdout=PIPE, stderr=PIPE) as run:
        while not started.exists():
            assert run.poll() is None
            time.sleep(0.02)
        began = time.monotonic()
        run.send_signal(signal.SIGINT)
        told, _ = run.communicate(timeout=20)
    assert (run.returncode, told) == (130, b"")
    assert time.monotonic() - began < 3  # a second, on a machine that does nothing else
