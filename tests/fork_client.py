"""The command that `tests.fork_server.forked` names: `python -I -S fork_client.py SOCKET MODULE ARGUMENTS...`.

It sends its arguments, environment, working directory and standard streams to the fork server at SOCKET, forwards
signals to the fork, and exits with the status of the fork. Its imports are few, so that it starts in 15 ms.
"""

import array
import os
import signal
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SOL_SOCKET, socket
from types import FrameType

LOST = 70
"""The exit code if the fork server closes the connection without a status."""

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def packed(arguments: list[str]) -> bytes:
    """One request to the fork server: its length, and strings with a zero byte between them."""
    folder = os.getcwd()  # noqa: PTH109 -- importing pathlib takes longer than everything else here
    words = [str(len(arguments)), *arguments, folder, *(f"{name}={value}" for name, value in os.environ.items())]
    body = "\0".join(words).encode(errors="surrogateescape")
    return len(body).to_bytes(4, "big") + body


def run(path: str, arguments: list[str]) -> int:
    """Run *arguments* in a fork of the server at *path*. Returns the wait status of the fork."""
    connected = socket(AF_UNIX)
    connected.connect(path)
    connected.sendmsg([b"."], [(SOL_SOCKET, SCM_RIGHTS, array.array("i", [0, 1, 2]))])
    connected.sendall(packed(arguments))
    pid = int.from_bytes(connected.recv(4), "big")

    def forward(number: int, _frame: FrameType | None) -> None:
        os.kill(pid, number)

    for number in FORWARDED if pid else ():
        signal.signal(number, forward)
    for stream in (0, 1, 2):
        os.close(stream)  # the fork has them: their other ends must see it when the fork closes one
    status = connected.recv(4)
    return int.from_bytes(status, "big") if status else LOST << 8


if __name__ == "__main__":
    ended = run(sys.argv[1], sys.argv[2:])
    if os.WIFSIGNALED(ended):
        if os.WTERMSIG(ended) in FORWARDED:
            signal.signal(os.WTERMSIG(ended), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(ended))
    os._exit(os.WEXITSTATUS(ended))
