"""A program of ours that counts, while it works, where its CPU time goes: the other side of `stages.py`.

    python -m benchmarks.stages_worker FILE MODULE [ARGUMENT ...]

Runs MODULE as `python -m` would. A timer of the CPU's time interrupts it; where it was then is counted by stage.
SIGUSR1 lets it begin anew, SIGUSR2 has it write to FILE what was counted. A call into the kernel is counted where it
was made; how much of the time was the kernel's is told apart from that. Nothing is counted outside of Trio: a program's
start is not what it does.
"""

import json
import os
import runpy
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Final

EVERY: Final = 0.001
"""Seconds of CPU between two looks. A kernel that ticks more slowly looks less often."""

WIRE: Final = "reading, writing and waiting, with the kernel"
TRIO: Final = "Trio: tasks, scopes, its loop"
REST: Final = "all else"

BY_TRIO: Final = {"_socket": WIRE, "_io_epoll": WIRE, "_unix_pipes": WIRE, "_highlevel_socket": WIRE}

HTTP: Final = "framing: HTTP, lines"
CODEC: Final = "messages: decode, check, encode"
SESSION: Final = "sessions, slots, requests"
ROUTING: Final = "routing and forwarding"
LINK: Final = "link to a server, as its client"
HANDLER: Final = "tools and results: all else of callboard"

BY_ROOM: Final = (
    ("callboard.transports.wire", WIRE),
    ("callboard.transports.pipe", WIRE),
    ("callboard.actors.broker", ROUTING),
    ("callboard.codecs.bridge", ROUTING),
    ("callboard.codecs.routing", ROUTING),
    ("callboard.actors.client.link", LINK),
    ("callboard.actors.client.conversation", LINK),
    ("callboard.actors.deadlines", LINK),
    ("callboard.transports.client", LINK),
    ("callboard.codecs.http.response_parser", LINK),
    ("callboard.client.client", LINK),
    ("callboard.client.call", LINK),
    ("callboard.client.base", LINK),
    ("callboard.codecs.http", HTTP),
    ("callboard.transports", HTTP),
    ("callboard.codecs", CODEC),
    ("callboard.actors.frames", CODEC),
    ("callboard.actors", SESSION),
    ("callboard.supervisor", SESSION),
    ("callboard", HANDLER),
)
"""The first that fits is taken."""


def stage(frame: FrameType | None) -> str | None:
    """Whose work it is: the kernel's, Trio's, or that of the innermost room of ours. Nobody's before Trio runs."""
    modules = []
    while frame is not None:
        modules.append(str(frame.f_globals.get("__name__", "")))
        frame = frame.f_back
    if "trio._core._run" not in modules:
        return None
    for module in modules:
        if module.startswith("trio."):
            return BY_TRIO.get(module.rpartition(".")[2], TRIO)
        if module.partition(".")[0] == "callboard":
            return next(name for room, name in BY_ROOM if module == room or module.startswith(room + "."))
        if module == "__main__":
            return REST
    return REST


def main() -> None:
    file, module, counted = Path(sys.argv[1]), sys.argv[2], Counter[str]()
    began = os.times()

    def look(_: int, frame: FrameType | None) -> None:
        if (found := stage(frame)) is not None:
            counted[found] += 1

    def begin(*_: object) -> None:
        nonlocal began
        counted.clear()
        began = os.times()

    def tell(*_: object) -> None:
        now = os.times()
        used = {"user": now.user - began.user, "system": now.system - began.system}
        told = {**used, "counted": dict(counted)}
        half = file.with_suffix(".half")
        half.write_text(json.dumps(told))
        half.replace(file)  # whoever waits for it finds it whole

    signal.signal(signal.SIGPROF, look)
    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, tell)
    signal.setitimer(signal.ITIMER_PROF, EVERY, EVERY)
    sys.argv = [module, *sys.argv[3:]]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)  # or else it goes off when nobody listens any more
        tell()


if __name__ == "__main__":
    main()
