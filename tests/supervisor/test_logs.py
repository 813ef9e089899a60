"""Log lines go where the application says, and to standard error if it says nothing. Never to standard output."""

import errno
import subprocess
import sys

import pytest

from callboard.supervisor import get_logger

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
