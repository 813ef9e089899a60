"""Log lines go where the application says, and to standard error if it says nothing. Never to standard output."""

import errno
import fcntl
import os
import pty
import re
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
import structlog
import structlog.testing

from callboard.supervisor import get_logger
from callboard.supervisor.lines import BURST, MAX_KINDS, MERGED, SILENT, LogLines
from callboard.supervisor.standard_error import MOST_KEPT, StandardError

CRASH = """
import structlog, sys, trio
from callboard.supervisor import Actor, SupervisorSpec, open_tree
{configure}

class Failing(Actor[None]):
    async def run(self):
        raise ValueError("told")

async def main():
    async with open_tree(SupervisorSpec("top")) as root:
        await root.spawn(Failing(), name="p").wait_ended()

trio.run(main)
"""


def run(configure: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", CRASH.format(configure=configure)], capture_output=True, text=True, check=True
    )
    return done.stdout, done.stderr


CONFIGURATIONS = {
    "nothing": "",
    "processors only": "structlog.configure(processors=[structlog.processors.JSONRenderer()])",
    "text, nowhere in particular": "structlog.configure(logger_factory=structlog.WriteLoggerFactory())",
    "bytes, nowhere in particular": """structlog.configure(
        processors=[lambda _, __, line: repr(line).encode()], logger_factory=structlog.BytesLoggerFactory())""",
    "standard error": "structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))",
    "standard library": """import logging
logging.basicConfig()
structlog.configure(
    logger_factory=structlog.stdlib.LoggerFactory(),
    wrapper_class=structlog.stdlib.BoundLogger,
    processors=[
        structlog.stdlib.filter_by_level, structlog.stdlib.add_logger_name, structlog.stdlib.render_to_log_kwargs])""",
}


@pytest.mark.parametrize("configure", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_standard_output_is_left_alone(configure: str) -> None:
    stdout, stderr = run(configure)
    assert stdout == ""
    assert "actor_crashed" in stderr


def test_an_application_that_names_standard_output_gets_it() -> None:
    stdout, stderr = run("structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stdout))")
    assert "actor_crashed" in stdout
    assert stderr == ""


def test_a_closed_standard_error_costs_nothing() -> None:
    assert run("sys.stderr.close()") == ("", "")


def test_a_line_for_a_terminal_that_was_closed_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, *_: str) -> None:
            raise OSError(errno.EIO, "Input/output error")

        flush = write

    monkeypatch.setattr(sys, "stderr", Closed())
    get_logger("tests").warning("nobody_reads_this")


HOSTILE = "\x1b]0;owned\x07 \x9b31m \u202egnp.exe\u202c \x00 \x7f \ud800 ok"


@pytest.mark.finding("security-10", "newcomer-H5")
def test_what_others_wrote_reaches_no_terminal_as_a_command() -> None:
    with structlog.testing.capture_logs() as lines:
        get_logger("tests").info(
            HOSTILE, text=HOSTILE, said=[HOSTILE], facts={HOSTILE: (HOSTILE,)}, number=3, none=None
        )
    [line] = lines
    shown = repr(line)
    assert "ok" in shown
    assert all(char.isprintable() for char in str(line["text"]) + line["event"])
    assert "x1b" not in shown
    assert "202e" not in shown
    assert line["number"] == 3
    assert line["none"] is None
    assert isinstance(line["said"], list)


@pytest.mark.finding("security-10")
def test_a_terminal_gets_no_escape_of_a_peer(capsys: pytest.CaptureFixture[str]) -> None:
    get_logger("tests").info("a", b=HOSTILE.replace(" ", ""))  # without blanks the renderer quotes nothing
    shown = capsys.readouterr().err
    assert "\x1b]0" not in shown
    assert "\x9b" not in shown
    assert "\u202e" not in shown
    assert "owned" in shown


@pytest.mark.finding("security-19")
def test_a_long_fact_is_clipped() -> None:
    with structlog.testing.capture_logs() as lines:
        get_logger("tests").info("a", text="x" * 100_000, many=["y" * 5000] * 5000)
    assert len(repr(lines)) < 40_000


@pytest.mark.finding("security-19", "newcomer-H5")
def test_lines_that_say_the_same_are_merged() -> None:
    now = [0.0]
    lines, told = LogLines(lambda: now[0]), []

    def write(event: str, **facts: object) -> None:
        told.append((event, facts))

    for _ in range(100):
        lines.write(write, "failed", {"backend": "a", "why": "x"})
    assert told == [("failed", {"backend": "a", "why": "x"})]
    lines.write(write, "failed", {"backend": "a", "why": "y"})
    assert told[1:] == [
        ("failed", {"backend": "a", "why": "x", "repeated": 99}),
        ("failed", {"backend": "a", "why": "y"}),
    ]
    lines.write(write, "failed", {"backend": "a", "why": "y"})
    now[0] += MERGED
    lines.write(write, "other", {})
    assert told[3:] == [("failed", {"backend": "a", "why": "y", "repeated": 1}), ("other", {})]
    lines.write(write, "other", {})
    lines.flush()
    assert told[5:] == [("other", {"repeated": 1})]
    lines.flush()
    assert len(told) == 6


@pytest.mark.finding("security-19")
def test_one_peer_writes_so_many_lines_of_an_event_and_others_are_not_left_out() -> None:
    now = [0.0]
    lines, told = LogLines(lambda: now[0]), []

    def write(_: str, **facts: object) -> None:
        told.append(facts)

    for number in range(4000):
        lines.write(write, "subscribe_failed", {"session": "a", "uri": str(number)})
    assert len(told) == BURST
    lines.write(write, "subscribe_failed", {"session": "b", "uri": "x"})
    lines.write(write, "other", {"session": "a"})
    assert len(told) == BURST + 2
    now[0] += 1
    lines.write(write, "subscribe_failed", {"session": "a", "uri": "y"})
    assert told[-1] == {"session": "a", "uri": "y", "left_out": 4000 - BURST}
    for number in range(10 * MAX_KINDS):
        lines.write(write, "joined", {"session": str(number)})
    assert len(lines._kinds) == MAX_KINDS
    now[0] += SILENT + 1
    lines.write(write, "joined", {"session": "the last"})
    assert len(lines._kinds) == 1  # nothing is kept of those that have left


@pytest.mark.parametrize(
    ("level", "written"),
    [
        ("", ["info", "error"]),
        ("debug", ["debug", "info", "error"]),
        ("WARNING", ["error"]),
        ("loud", ["info", "error"]),
    ],
)
def test_debug_lines_are_written_only_where_they_are_asked_for(
    level: str, written: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(structlog, "is_configured", lambda: False)
    monkeypatch.setenv("CALLBOARD_LOG_LEVEL", level)
    log = get_logger("tests")
    log.debug("a-debug")
    log.info("a-info")
    log.error("a-error")
    assert re.findall(r"a-(\w+)", capsys.readouterr().err) == written


# Standard error that nobody reads.


@contextmanager
def standard_error(fd: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandardError]:
    """Have *fd* be standard error."""
    with os.fdopen(fd, "w", closefd=False) as file:
        monkeypatch.setattr(sys, "stderr", file)
        yield StandardError()
        monkeypatch.undo()


def talk(file: StandardError, lines: int = 3000) -> float:
    began = time.monotonic()
    for number in range(lines):
        print(f"line-{number} {'x' * 500}", file=cast("Any", file), flush=True)
    return time.monotonic() - began


@pytest.mark.finding("faults-H1")
def test_a_log_that_nobody_reads_stops_nothing_and_says_later_how_much_was_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = os.pipe()
    with standard_error(theirs, monkeypatch) as file:
        assert talk(file) < 5
        assert file._bytes <= MOST_KEPT
        with os.fdopen(ours) as pipe:
            lines = [pipe.readline()]
            while "left out" not in lines[-1]:
                lines.append(pipe.readline())
            file.drain()
            print("and again", file=cast("Any", file))
            assert pipe.readline() == "and again\n"
    os.close(theirs)
    numbers = [int(found[1]) for found in re.finditer(r"line-(\d+)", "".join(lines))]
    assert numbers == list(range(len(numbers)))
    assert 300 < len(numbers) < 3000
    assert lines[-1] == f"({3000 - len(numbers)} log lines left out: standard error was not read)\n"


@pytest.mark.finding("faults-H1")
def test_a_reader_that_leaves_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.pipe()
    with standard_error(theirs, monkeypatch) as file:
        talk(file, 1000)
        os.close(ours)
        file.drain(5)
        assert file._writer is None
        talk(file, 1000)
        file.drain(5)
        assert file._bytes == 0
    os.close(theirs)


@pytest.mark.finding("faults-H1")
def test_a_stopped_terminal_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    termios.tcflow(theirs, termios.TCOOFF)  # as Ctrl-S does
    with standard_error(theirs, monkeypatch) as file:
        assert talk(file) < 5
        assert not fcntl.fcntl(theirs, fcntl.F_GETFL) & os.O_NONBLOCK  # its flags are the shell's, too
        os.close(ours)
        file.drain(5)
    os.close(theirs)


@pytest.mark.finding("faults-H1")
def test_a_process_whose_log_is_never_read_ends_all_the_same() -> None:
    script = (
        "from callboard.supervisor import get_logger\nfor n in range(3000): get_logger('x').info(f'{n}', x='x' * 500)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE) as process:
        assert process.wait(30) == 0


def test_a_line_goes_out_before_the_next_thing_happens(capfd: pytest.CaptureFixture[str]) -> None:
    file = StandardError()
    file.write("one")
    assert capfd.readouterr().err == ""
    file.write(" line\n")
    assert capfd.readouterr().err == "one line\n"
    file.write(b"bytes")
    file.flush()
    assert capfd.readouterr().err == "bytes"
    file.drain()
