"""What an operator changes while a server runs: tokens, certificates, configurations; and what can be wrong with it."""

import errno
import json
import os
import signal
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import structlog.testing
import trio
from trio.testing import MockClock

from callboard import connect
from callboard.broker.pins import Pins
from callboard.broker.reload import Reloader
from callboard.config.files import read_file
from callboard.config.load import read_configuration
from callboard.config.watch import POLL, Why, watching
from callboard.errors import CannotConnect, CannotRead, CannotServe, ConnectionLost
from callboard.serve.renew import Renewing
from callboard.serve.tokens import TokenFile, TokenTable
from callboard.supervisor import SupervisorSpec, open_tree
from callboard.transports import signals
from callboard.transports.server.tls import Certificate
from tests.certificate import write_certificate
from tests.process import CALLBOARD, started
from tests.serve.test_serve import call, post, said, served
from tests.shared import APPS
from tests.transports.server.http.stage import Client

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")

OLD: Final = "0123456789abcdef-old"
NEW: Final = "0123456789abcdef-new"
APP: Final = str(APPS / "noisy.py")


def write(file: Path, text: str) -> None:
    file.write_text(text)


def hang_up() -> None:
    os.kill(os.getpid(), signal.SIGHUP)


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as lines:
        yield lines


async def wait_logged(lines: list[Any], event: str, count: int = 1) -> Any:
    with trio.fail_after(10):
        while len(found := [line for line in lines if line["event"] == event]) < count:  # noqa: ASYNC110  # structlog has no event
            await trio.sleep(0.01)
    return found[-1]


async def wait_reloaded(lines: list[Any], **totals: int) -> None:
    """Wait until reloads of the tokens together report *totals*.

    The watcher of the file may see a change before the signal does. Then there are two reloads, the second of which
    finds nothing new, and either may be logged first.
    """
    with trio.fail_after(10):
        while True:
            reloads = [line for line in lines if line["event"] == "tokens_reloaded"]
            if {name: sum(line[name] for line in reloads) for name in totals} == totals:
                return
            await trio.sleep(0.01)  # structlog has no event to wait for


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens.txt"
    file.write_text(f"ada {OLD}\n")
    file.chmod(0o600)
    return file


@pytest.mark.finding("newcomer-P4")
async def test_a_revoked_token_is_refused_and_a_new_one_is_let_in_after_a_hangup(
    tokens: Path, logged: list[Any]
) -> None:
    async with served(http="127.0.0.1:0", authenticate=TokenFile(tokens)) as here:
        ask = partial(post, here.url("http"), call("who"))
        assert said((await ask(token=OLD))[1]) == "ada"
        stream = await trio.open_tcp_stream("127.0.0.1", urlsplit(here.url("http")).port or 0)
        stays = Client(stream, stream.socket, urlsplit(here.url("http")).netloc.encode())
        again = stays.modern("tools/call", name="who", arguments={}, headers={"authorization": f"Bearer {OLD}"})
        for _ in range(2):  # what is remembered of a head must not outlive the token
            await stays.send(again)
            assert (await stays.answer()).status == 200
        write(tokens, f"grace {NEW}\n")
        hang_up()
        await wait_reloaded(logged, added=1, revoked=1)
        assert {line["principals"] for line in logged if line["event"] == "tokens_reloaded"} == {1}
        assert (await ask(token=OLD))[0] == 401
        await stays.send(again)
        assert (await stays.answer()).status == 401
        await stays.aclose()
        assert said((await ask(token=NEW))[1]) == "grace"
        write(tokens, "grace short\n")  # wrong: those that are known stay
        hang_up()
        assert "shorter than" in (await wait_logged(logged, "tokens_not_reloaded"))["reason"]
        assert said((await ask(token=NEW))[1]) == "grace"
    assert not any(OLD in str(line) or NEW in str(line) for line in logged)


@pytest.mark.finding("newcomer-P4")
async def test_what_is_open_with_a_revoked_token_ends_and_what_others_have_open_goes_on(
    tokens: Path, logged: list[Any]
) -> None:
    write(tokens, f"ada {OLD}\ngrace {NEW}\n")
    async with served(http="127.0.0.1:0", ws="127.0.0.1:0", authenticate=TokenFile(tokens)) as here:
        url = here.url("ws")
        listen: Any = {"notifications": {"toolsListChanged": True}}
        at = urlsplit(here.url("http"))
        stream = await trio.open_tcp_stream("127.0.0.1", at.port or 0)
        listener = Client(stream, stream.socket, at.netloc.encode())
        bearer = {"authorization": f"Bearer {OLD}"}
        await listener.send(listener.modern("subscriptions/listen", headers=bearer, **listen))
        events = await listener.stream_of()
        assert (await events.message())["method"] == "notifications/subscriptions/acknowledged"
        by_ada, by_grace = ({"Authorization": f"Bearer {token}"} for token in (OLD, NEW))
        async with connect(url, headers=by_grace) as stays:
            async with connect(url, headers=by_ada) as leaves:
                assert "ada" in str((await leaves.call("who")).content)
                write(tokens, f"grace {NEW}\n")
                hang_up()
                assert "result" in (await events.rest())[-1]
                await wait_reloaded(logged, sessions_ended=2)
                with pytest.raises((ConnectionLost, CannotConnect)):
                    await leaves.call("who")
            assert "grace" in str((await stays.call("who")).content)
        await listener.aclose()


async def test_what_was_opened_with_a_removed_token_ends_although_its_principal_has_another(
    tokens: Path, logged: list[Any]
) -> None:
    write(tokens, f"ada {OLD} admin\nada {NEW}\n")
    async with served(http="127.0.0.1:0", ws="127.0.0.1:0", authenticate=TokenFile(tokens)) as here:
        url = here.url("ws")
        by_old, by_new = ({"Authorization": f"Bearer {token}"} for token in (OLD, NEW))
        async with connect(url, headers=by_new) as stays:
            async with connect(url, headers=by_old) as leaves:
                assert "ada" in str((await leaves.call("who")).content)
                write(tokens, f"ada {NEW}\n")
                hang_up()
                await wait_reloaded(logged, revoked=1, sessions_ended=1)
                with pytest.raises((ConnectionLost, CannotConnect)):
                    await leaves.call("who")
            assert "ada" in str((await stays.call("who")).content)


@pytest.mark.finding("newcomer-P4")
@pytest.mark.parametrize("engine", ["native", "asgi"])
async def test_a_renewed_certificate_is_served_after_a_hangup(tmp_path: Path, engine: str, logged: list[Any]) -> None:
    certificate, key = write_certificate(tmp_path, "localhost")
    options: Any = {"http": "localhost:0", "http_engine": engine, "tls_cert": str(certificate), "tls_key": str(key)}
    async with served(**options) as here:
        trusting = ssl.create_default_context(cafile=certificate)
        assert said((await post(here.url("http"), call("echo", text="x"), tls=trusting))[1]) == "x"
        write_certificate(tmp_path, "localhost")
        hang_up()
        await wait_logged(logged, "certificate_reloaded")
        renewed = ssl.create_default_context(cafile=certificate)
        assert said((await post(here.url("http"), call("echo", text="y"), tls=renewed))[1]) == "y"
        with pytest.raises(trio.BrokenResourceError):
            await post(here.url("http"), call("echo", text="z"), tls=trusting)
        key.write_text("no key")
        hang_up()
        assert "TLS" in (await wait_logged(logged, "certificate_not_reloaded"))["reason"]
        assert said((await post(here.url("http"), call("echo", text="still"), tls=renewed))[1]) == "still"


@pytest.mark.finding("newcomer-P4")
async def test_a_hangup_does_not_end_a_server_that_has_nothing_to_reload() -> None:
    async with started(*CALLBOARD, "run", APP, "--http", "0", "--json", start_new_session=True) as process:
        while (line := await process.line()) == b"loading":
            pass
        url = next(one["url"] for one in json.loads(line or b"")["listening"])
        process.signal(signal.SIGHUP)
        assert (await post(url, call("echo", text="still there")))[0] == 200
        process.signal(signal.SIGHUP)
        process.signal()
        assert await process.wait() == 0


async def test_every_part_of_a_process_hears_a_hangup_whichever_ends_first() -> None:
    before = signal.getsignal(signal.SIGHUP)
    first, second = signals.heed_hangups(), signals.heed_hangups()
    one, other = first.__enter__(), second.__enter__()
    hang_up()
    with trio.fail_after(5):
        await one.receive()
        await other.receive()
        first.__exit__(None, None, None)
        hang_up()
        await other.receive()
    second.__exit__(None, None, None)
    assert signal.getsignal(signal.SIGHUP) == before


# Without a free descriptor.


@pytest.mark.finding("faults-M4")
async def test_a_hangup_without_a_free_descriptor_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open
    is_full = False

    def reluctant(path: Any, *more: Any, **named: Any) -> int:
        if is_full:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opened(os.devnull if path == "/dev/tty" else path, *more, **named)

    monkeypatch.setattr(os, "open", reluctant)
    with signals.heed_hangups() as hangups:
        is_full = True
        hang_up()
        with trio.fail_after(5):
            await hangups.receive()
        signals._write_no_more([0])  # and if the terminal is gone, that it cannot be replaced is no error
        is_full = False


@pytest.mark.finding("faults-M4")
async def test_a_file_that_could_not_be_read_is_read_again_and_said_once(
    tokens: Path, logged: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callboard.config.watch.POLL", 0.02)
    monkeypatch.setattr("callboard.config.watch.SETTLE", 0.01)
    file = TokenFile(tokens)
    tries = []
    read = TokenTable.read

    def reluctant(path: Path, **more: Any) -> TokenTable:
        tries.append(path)
        if len(tries) < 5:
            raise CannotRead(f"{path}: Too many open files")
        return read(path, **more)

    monkeypatch.setattr(TokenTable, "read", reluctant)
    async with open_tree(SupervisorSpec("top")) as root:
        root.spawn(Renewing(file), name="renewing", shutdown=0)
        write(tokens, f"grace {NEW}\n")
        await wait_logged(logged, "tokens_reloaded")
    assert [line["event"] for line in logged] == ["tokens_not_reloaded", "tokens_reloaded"]
    assert file.tokens.keys == {"grace"}
    assert file.known(NEW)


@pytest.mark.finding("faults-M4")
async def test_a_watcher_has_files_that_could_not_be_read_read_again(tmp_path: Path, autojump_clock: MockClock) -> None:
    with watching(tmp_path / "a", tmp_path / "b") as watcher:
        (tmp_path / "b").write_text("x")
        assert await watcher.wait_changed() is Why.CHANGED
        watcher.try_again()
        began = trio.current_time()
        assert await watcher.wait_changed() is Why.AGAIN
        assert trio.current_time() - began < 2 * POLL
        with trio.move_on_after(60) as patience:
            await watcher.wait_changed()
        assert patience.cancelled_caught


@pytest.mark.finding("faults-M4")
def test_pins_that_could_not_be_read_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pins = Pins.beside(tmp_path / "servers.toml")
    pins.file.write_text('{"servers": {"a": {"tool": {"pinned": "x"}}}}')

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr("callboard.broker.pins.read_file", full)
        with pytest.raises(CannotServe, match="Too many open files"):
            pins.look_again()
    assert pins.look_again() is True
    assert "tool" in pins.known()["a"]


@pytest.mark.finding("faults-M4")
async def test_a_configuration_that_could_not_be_read_is_read_again_without_another_hangup(
    tmp_path: Path, logged: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callboard.config.watch.POLL", 0.02)
    monkeypatch.setattr("callboard.config.watch.SETTLE", 0.01)
    file, reloaded = tmp_path / "servers.json", trio.Event()
    write(file, '{"mcpServers": {"a": {"command": "true"}}}')

    class Broker:
        async def reload(self, backends: Any, front: object = None) -> None:
            reloaded.set()

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    broker: Any = Broker()
    before = read_configuration(file)
    write(file, '{"mcpServers": {"a": {"command": "false"}}}')
    async with open_tree(SupervisorSpec("top")) as root:
        with monkeypatch.context() as patched:
            patched.setattr("callboard.config.load.read_file", full)
            root.spawn(Reloader(broker, before), name="reloading", shutdown=0)
            assert "Too many open files" in str(await wait_logged(logged, "config_rejected"))
            await trio.sleep(0.1)
        with trio.fail_after(5):
            await reloaded.wait()
    assert [line["event"] for line in logged] == ["config_rejected", "config_changed"]


# A pipe in the place of a file.


@pytest.mark.finding("faults-low-fifo")
def test_a_pipe_in_the_place_of_a_file_is_refused_at_once_by_a_server_that_runs(tmp_path: Path) -> None:
    pipe = tmp_path / "servers.toml"
    os.mkfifo(pipe)
    for read in (
        partial(read_file, pipe, 10, is_running=True),
        partial(read_configuration, pipe, is_running=True),
        partial(TokenTable.read, pipe, is_running=True),
        partial(Pins.beside, tmp_path / "servers"),
    ):
        if read.func == Pins.beside:
            os.mkfifo(tmp_path / "servers.pins.json")
        with pytest.raises((CannotServe, OSError), match="is not a regular file"):
            read()
    certificate, key = write_certificate(tmp_path, "localhost")
    renewable = Certificate(certificate, key)
    key.unlink()
    os.mkfifo(key)
    with pytest.raises(CannotServe, match="is not a regular file"):
        renewable.read()


async def test_at_the_start_a_pipe_is_read(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, f"ada {OLD}\n".encode())
    os.close(writing)
    try:
        file = TokenFile(Path(f"/dev/fd/{reading}"))
        assert file.tokens.keys == {"ada"}
        assert file.known(OLD)
    finally:
        os.close(reading)


# Files that others may change.


@pytest.mark.finding("security-24")
@pytest.mark.parametrize(("mode", "is_warned"), [(0o644, False), (0o664, False), (0o646, True)])
def test_a_configuration_that_others_may_write_is_warned_of(tmp_path: Path, mode: int, is_warned: bool) -> None:
    file = tmp_path / "servers.json"
    file.write_text('{"mcpServers": {"a": {"command": "true"}}}')
    file.chmod(mode)
    warnings = [str(warning) for warning in read_configuration(file).warnings]
    assert any("writable by all users" in warning for warning in warnings) == is_warned
