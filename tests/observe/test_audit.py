"""The audit log: what a line says and what it never says; what happens when it cannot be written."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import structlog.testing
import trio

from callboard import tree
from callboard.codecs.caller import Caller
from callboard.errors import CannotServe
from callboard.observe import audit as audit_module
from callboard.observe import audit_writer
from callboard.observe.audit import DEEPEST, FROM_STRANGERS, Audit, AuditLine, actors_of, digest_of, without_query
from callboard.observe.audit_file import AuditFile, read_audit_key
from callboard.observe.audit_writer import AuditWriter, finish
from callboard.supervisor import SupervisorSpec, open_tree
from callboard.supervisor.audit import is_audited, note, taking_notes


def told(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def line(name: str = "x") -> AuditLine:
    return AuditLine(0.0, "request", name=name)


@contextmanager
def opened(path: Path | str) -> Iterator[AuditFile]:
    file = AuditFile(str(path))
    file.open()
    try:
        yield file
    finally:
        file.close()


async def wait_written(audit: Audit, count: int) -> None:
    with trio.fail_after(10):
        while audit.written < count:  # noqa: ASYNC110  # a thread writes
            await trio.sleep(0.01)


async def wait_failing(audit: Audit) -> None:
    while not audit.is_failing:  # noqa: ASYNC110  # a thread writes
        await trio.sleep(0.01)


# A line.


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("notes://shelf/a?page=secret", "notes://shelf/a"),
        ("https://ada:secret@x.example/a/b@c#secret", "https://x.example/a/b@c"),
        ("https://ada:secret@x.example", "https://x.example"),
        ("file:///etc/hosts", "file:///etc/hosts"),
        ("urn:a:b?=secret", "urn:a:b"),
    ],
)
def test_a_uri_is_shown_without_what_may_be_a_secret(uri: str, shown: str) -> None:
    assert without_query(uri) == shown
    assert len(without_query("x://" + "a" * 10_000)) <= audit_module.LONGEST


def test_of_claims_only_those_are_told_on_whose_behalf_a_caller_acts() -> None:
    acts: dict[str, Any] = {}
    for number in range(10):
        acts = {"act": {"sub": f"s{number}", **acts}, "email": "secret"}
    assert actors_of(Caller(principal="ada", claims=acts)) == [f"s{number}" for number in range(9, 9 - DEEPEST, -1)]
    assert actors_of(Caller(claims={"act": "no object"})) == []
    endless: dict[str, Any] = {"sub": "x"}
    endless["act"] = endless
    assert len(actors_of(Caller(claims={"act": endless}))) == DEEPEST


def test_a_note_is_clipped_and_cleaned_and_unknown_fields_are_details() -> None:
    audit = Audit(clock=lambda: 0.0)
    caller = Caller(principal="ada", tenant="acme", issuer="https://i.example", claims={"x": "secret"})
    with taking_notes(audit.take):
        assert is_audited()
        note("rule_refused", caller=caller, rule="r" * 1000, name="a\nb\x1b[0m", code=-31006, kind="k" * 1000, count=3)
        note("many", **{f"n{number}": number for number in range(100)})
    note("after the end")
    assert not is_audited()
    first, second = (json.loads(one) for one in audit.encode(audit.batch()))
    assert first.pop("id")
    assert first.pop("rule") == "r" * 255 + "…"
    assert first.pop("detail") == {"kind": "k" * 255 + "…", "count": 3}
    assert first == {
        "time": "1970-01-01T00:00:00Z",
        "event": "rule_refused",
        "principal": "ada",
        "tenant": "acme",
        "issuer": "https://i.example",
        "name": "a\nb\x1b[0m",
        "code": -31006,
    }
    assert b"\x1b" not in audit.encode(audit.batch())[0]
    assert audit.encode(audit.batch())[0].count(b"\n") == 1
    assert len(second["detail"]) == audit_module.MOST_DETAILS


def test_arguments_have_a_digest_that_needs_the_key_and_no_spelling() -> None:
    audit = Audit(key=b"k" * 32)
    audit.put(line(), b'{"b": 1.0, "a": "x"}')
    audit.put(line(), b'{"a":"x","b":1}')
    audit.put(line(), b'{"a":"x","b":2}')
    same, again, other = (json.loads(one)["arguments"] for one in audit.encode(audit.batch()))
    assert same == again == digest_of(b"k" * 32, b'{"a":"x","b":1}') != other
    assert digest_of(b"l" * 32, b'{"a":"x","b":1}') != same
    assert digest_of(b"k" * 32, b'{"a":1,"a":2}') == "invalid"


def test_the_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    name = str(tmp_path / "audit")
    key = read_audit_key(name)
    assert len(key) == 32
    assert read_audit_key(name) == key
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    with pytest.raises(CannotServe, match="chmod 600"):
        read_audit_key(name)
    file.chmod(0o600)
    file.write_text("short")
    with pytest.raises(CannotServe, match="64 hexadecimal digits"):
        read_audit_key(name)


def test_a_line_that_is_no_unicode_does_not_hold_up_the_others() -> None:
    audit = Audit()
    for name in ("a", "half \ud800", "b"):
        audit.put(line(name))
    lines = [json.loads(one) for one in audit.encode(audit.batch())]
    assert [one.get("name") for one in lines] == ["a", None, "b"]
    assert lines[1]["reason"] == "cannot be written as JSON"


def test_strangers_cannot_fill_the_log() -> None:
    now = [0.0]
    audit = Audit(clock=lambda: now[0])
    for _ in range(1000):
        audit.take("authentication_refused", {"remote": "10.0.0.1"})
    assert len(audit.waiting) == FROM_STRANGERS.count
    now[0] = 1.0
    audit.take("authentication_refused", {})
    assert audit.waiting[-1][0].left_out == 1000 - FROM_STRANGERS.count


# The file.


def test_a_file_is_made_for_its_owner_alone_and_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    for word in (b"a\n", b"b\n"):
        with opened(path) as file:
            assert file.write([word]) == 1
    assert path.read_bytes() == b"a\nb\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_was_moved_away_or_removed_is_made_anew(tmp_path: Path) -> None:
    path, old = tmp_path / "audit", tmp_path / "audit.1"
    with opened(path) as file:
        file.write([b"a\n"])
        path.rename(old)
        file.write([b"b\n"])
        assert (old.read_bytes(), path.read_bytes()) == (b"a\n", b"b\n")
        path.unlink()
        file.write([b"c\n"])
        assert path.read_bytes() == b"c\n"


def test_a_line_of_which_a_part_was_written_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a disk that is nearly full."""
    write, room = os.write, [7]

    def short(handle: int, data: bytes) -> int:
        written = write(handle, data[: room[0]])
        room[0] -= written
        if not written:
            raise OSError(28, "No space left on device")
        return written

    monkeypatch.setattr(os, "write", short)
    path = tmp_path / "audit"
    with opened(path) as file:
        lines = [b"aaa\n", b"bbb\n", b"ccc\n"]
        assert file.write(lines) == 1
        with pytest.raises(OSError, match="No space"):
            file.write(lines[1:])
        room[0] = 100
        assert file.write(lines[1:]) == 2
        assert file.lines == 3
    assert path.read_bytes() == b"aaa\nbbb\nbbb\nccc\n"


def test_a_pipe_gets_whole_lines_of_no_more_than_it_takes_in_one_piece(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="No such device"):  # without a reader it is not waited for
        AuditFile(str(pipe)).open()
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with opened(pipe) as file:
            lines = [b"%0999d\n" % number for number in range(1000)]
            count = file.write(lines)
            assert 0 < count < 1000  # it is full
            data = os.read(reading, 1 << 20)
            assert data == b"".join(lines[:count])
    finally:
        os.close(reading)


# The queue.


@attrs.define
class Full:
    """Hears whether new requests are refused."""

    heard: list[bool] = attrs.field(factory=list)

    def __call__(self, is_full: bool) -> None:
        self.heard.append(is_full)


def test_a_full_queue_drops_and_says_so_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "MOST_LINES", 10)
    audit = Audit("drop")
    audit.on_full = full = Full()
    for number in range(25):
        audit.put(line(str(number)))
    assert [one.name for one, _ in audit.waiting] == [str(number) for number in range(10)]
    assert audit.dropped == 15
    audit.settle(10, is_failing=False)
    assert [(one.event, one.detail) for one, _ in audit.waiting] == [("audit_lines_dropped", {"lines": 15})]
    assert not full.heard


def test_a_full_queue_refuses_and_loses_no_line_of_what_had_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "MOST_LINES", 10)
    monkeypatch.setattr(audit_module, "RESERVE", 20)
    audit = Audit("refuse")
    audit.on_full = full = Full()
    for number in range(31):
        audit.put(line(str(number)))
    assert full.heard == [True]
    assert audit.dropped == 1  # beyond all that may be in flight
    audit.settle(20, is_failing=False)
    assert full.heard == [True]  # not before it is half empty
    audit.settle(7, is_failing=False)
    assert full.heard == [True, False]


def test_arguments_that_wait_have_a_bound_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "MOST_BYTES", 1000)
    audit = Audit("drop", key=b"k" * 32)
    for _ in range(10):
        audit.put(line(), b" " * 400)
    assert (len(audit.waiting), audit.dropped) == (3, 7)
    audit.settle(3, is_failing=False)
    audit.put(line(), b" " * 400)
    assert audit.dropped == 7


# The writer.


async def test_lines_are_written_together_and_what_is_left_at_the_end(tmp_path: Path) -> None:
    audit, path = Audit(), tmp_path / "audit"
    with opened(path) as file:
        async with open_tree(SupervisorSpec("top")) as root:
            writer = AuditWriter(audit, file)
            root.spawn(writer, name="audit", shutdown=0)
            for number in range(1200):
                audit.put(line(str(number)))
            await wait_written(audit, 1200)
            assert writer.facts() == {"written": 1200, "dropped": 0, "waiting": 0}
        audit.put(line("last"))
        await finish(audit, file)
    assert [one["name"] for one in told(path)] == [*map(str, range(1200)), "last"]
    assert len({one["id"] for one in told(path)}) == 1201


@pytest.mark.parametrize("when_full", ["drop", "refuse"])
async def test_a_full_disk_is_tried_again_until_there_is_room(
    when_full: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_writer, "AGAIN", 0.01)  # a mock clock would not wait for the thread
    audit = Audit(when_full)
    audit.on_full = full = Full()
    link = tmp_path / "audit"
    link.symlink_to("/dev/full")
    with trio.fail_after(10), structlog.testing.capture_logs() as logged, opened(link) as file:
        async with open_tree(SupervisorSpec("top")) as root:
            root.spawn(AuditWriter(audit, file), name="audit", shutdown=0)
            audit.put(line("first"))
            await wait_failing(audit)
            assert audit.written == 0
            assert full.heard == ([True] if when_full == "refuse" else [])
            link.unlink()  # there is room
            await wait_written(audit, 1)
            assert not audit.is_failing
            assert full.heard == ([True, False] if when_full == "refuse" else [])
    assert [one["name"] for one in told(link)] == ["first"]
    assert [one["event"] for one in logged] == ["audit_log_not_written", "audit_log_written_again"]
    assert logged[0]["reason"] == "No space left on device"


async def test_a_writer_that_crashes_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit, path, write = Audit(), tmp_path / "audit", AuditFile.write

    def broken(self: AuditFile, lines: Any) -> int:
        monkeypatch.setattr(AuditFile, "write", write)
        raise RuntimeError("by a test")

    monkeypatch.setattr(AuditFile, "write", broken)
    with structlog.testing.capture_logs(), opened(path) as file:
        async with open_tree(tree.audit(lambda: AuditWriter(audit, file))):
            audit.put(line("kept"))
            await wait_written(audit, 1)
    assert [one["name"] for one in told(path)] == ["kept"]


async def test_a_hangup_opens_the_file_anew(tmp_path: Path) -> None:
    audit, path = Audit(), tmp_path / "audit"
    with trio.fail_after(10), structlog.testing.capture_logs() as logged, opened(path) as file:
        async with open_tree(SupervisorSpec("top")) as root:
            root.spawn(AuditWriter(audit, file), name="audit", shutdown=0)
            audit.put(line("old"))
            await wait_written(audit, 1)
            path.rename(tmp_path / "audit.1")
            os.kill(os.getpid(), signal.SIGHUP)
            while not any(one["event"] == "audit_log_opened_anew" for one in logged):  # noqa: ASYNC110
                await trio.sleep(0.01)
            assert path.read_bytes() == b""  # it is there before there is anything to write
            audit.put(line("new"))
            await wait_written(audit, 2)
    assert [one["name"] for one in told(tmp_path / "audit.1")] == ["old"]
    assert [one["name"] for one in told(path)] == ["new"]


async def test_what_a_thread_wrote_that_was_not_waited_for_is_not_written_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit, path = Audit(), tmp_path / "audit"
    begun, go_on = trio.Event(), threading.Event()
    token, write = trio.lowlevel.current_trio_token(), AuditFile.write

    def slow(self: AuditFile, lines: Any) -> int:
        token.run_sync_soon(begun.set)
        go_on.wait(5)
        return write(self, lines)

    monkeypatch.setattr(AuditFile, "write", slow)
    with trio.fail_after(10), opened(path) as file:
        async with open_tree(SupervisorSpec("top")) as root:
            root.spawn(AuditWriter(audit, file), name="audit", shutdown=0)
            audit.put(line("once"))
            await begun.wait()
        go_on.set()  # after the actor has ended
        await finish(audit, file)
    assert [one["name"] for one in told(path)] == ["once"]
