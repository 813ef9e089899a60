"""A small company of servers to try things out with: it needs no network, writes no file, and ends with the broker."""

import sys
from pathlib import Path
from typing import Final

from callboard.actors.broker.policy import BackendSettings
from callboard.config import BackendSpec, PythonTarget
from callboard.transports.client.process import Command

EXAMPLE: Final = """\
wardrobe__sew_costume role=Hamlet      # progress
box_office__book_seats play=hamlet     # a form
trapdoor__audition role=Puck           # a server of 2025-06-18 asks a client of 2026-07-28
trapdoor__fall                         # a server dies; call it again, and it is back\
"""
"""Calls that show something to their caller, one on each line."""

_HERE: Final = Path(__file__).resolve().parent
_SHARED: Final = BackendSettings(share="all")


def company() -> tuple[BackendSpec, ...]:
    """Two servers in this process, and two in processes of their own."""
    return (_in_process("box_office"), _in_process("stage_clock"), _process("wardrobe"), _process("trapdoor"))


def _in_process(name: str) -> BackendSpec:
    target = PythonTarget(file=_file(name), name="server")
    return BackendSpec(name=name, target=target, settings=_SHARED, shown=f"{name}.py")


def _process(name: str) -> BackendSpec:
    command = Command(args=(sys.executable, "-m", "callboard", "run", str(_file(name))))
    return BackendSpec(name=name, target=command, settings=_SHARED, shown=f"callboard run {name}.py")


def _file(name: str) -> Path:
    return _HERE / f"{name}.py"
