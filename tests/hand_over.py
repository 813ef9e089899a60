"""A command that a fork of another process does, which has everything imported: `hand_over.py DOOR MODULE ...`.

It hands its arguments, environment, folder and standard streams over (see `tests.forks`), passes signals on, and ends
as the fork ends. It imports nothing that takes time: the interpreter starts in a hundredth of a second.
"""

import array
import os
import signal
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SOL_SOCKET, socket
from types import FrameType

LOST = 70
"""The status if the fork cannot be asked for one."""

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def packed(arguments: list[str]) -> bytes:
    """What a fork is told, with zero bytes between, which none of it can have, and its length in front."""
    folder = os.getcwd()  # noqa: PTH109 -- pathlib takes longer to import than all the rest
    words = [str(len(arguments)), *arguments, folder, *(f"{name}={value}" for name, value in os.environ.items())]
    body = "\0".join(words).encode(errors="surrogateescape")
    return len(body).to_bytes(4, "big") + body


def hand_over(door: str, arguments: list[str]) -> int:
    """Have *arguments* done by a fork of the process that listens at *door*. Returns its status as `waitpid` has it."""
    connected = socket(AF_UNIX)
    connected.connect(door)
    connected.sendmsg([b"."], [(SOL_SOCKET, SCM_RIGHTS, array.array("i", [0, 1, 2]))])
    connected.sendall(packed(arguments))
    pid = int.from_bytes(connected.recv(4), "big")

    def pass_on(number: int, _frame: FrameType | None) -> None:
        os.kill(pid, number)

    for number in PASSED_ON if pid else ():
        signal.signal(number, pass_on)
    for stream in (0, 1, 2):
        os.close(stream)  # they are the fork's: what reads them hears it when the fork ends, or closes one
    status = connected.recv(4)
    return int.from_bytes(status, "big") if status else LOST << 8


if __name__ == "__main__":
    ended = hand_over(sys.argv[1], sys.argv[2:])
    if os.WIFSIGNALED(ended):
        if os.WTERMSIG(ended) in PASSED_ON:
            signal.signal(os.WTERMSIG(ended), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(ended))
    os._exit(os.WEXITSTATUS(ended))
