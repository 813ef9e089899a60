"""The command that `tests.fork_server.forked` names: `python -I -S fork_client.py SOCKET MODULE ARGUMENTS...`.

It sends its arguments, environment, working directory and descriptors to the fork server at SOCKET, forwards signals
to the fork, and exits with the status of the fork. Its imports are few, so that it starts in 15 ms.
"""

import array
import os
import signal
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SOL_SOCKET, socket
from types import FrameType

LOST = 70
"""The exit code if the fork server closes the connection without a status."""

NAME = "fork "
"""What this process is called, as `ps -o comm` shows it: this, and the process id of the fork."""

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def inherited() -> list[int]:
    """The standard streams, and what a parent passed on beside them, as a parent of workers does."""
    found = []
    for number in sorted(map(int, os.listdir("/proc/self/fd"))):  # noqa: PTH208 -- as below
        try:
            if number < 3 or os.get_inheritable(number):
                found.append(number)
        except OSError:
            continue  # it was the listing's own
    return found


def packed(arguments: list[str], descriptors: list[int]) -> bytes:
    """One request to the fork server: its length, and strings with a zero byte between them."""
    folder = os.getcwd()  # noqa: PTH109 -- importing pathlib takes longer than everything else here
    environment = (f"{name}={value}" for name, value in os.environ.items())
    words = [" ".join(map(str, descriptors)), str(len(arguments)), *arguments, folder, *environment]
    body = "\0".join(words).encode(errors="surrogateescape")
    return len(body).to_bytes(4, "big") + body


def run(path: str, arguments: list[str]) -> int:
    """Run *arguments* in a fork of the server at *path*. Returns the wait status of the fork."""
    descriptors = inherited()
    connected = socket(AF_UNIX)
    connected.connect(path)
    connected.sendmsg([b"."], [(SOL_SOCKET, SCM_RIGHTS, array.array("i", descriptors))])
    connected.sendall(packed(arguments, descriptors))
    pid = int.from_bytes(connected.recv(4), "big")
    with open("/proc/self/comm", "w") as name:  # noqa: PTH123 -- as above
        name.write(f"{NAME}{pid}")

    def forward(number: int, _frame: FrameType | None) -> None:
        os.kill(pid, number)

    for number in FORWARDED if pid else ():
        signal.signal(number, forward)
    for descriptor in descriptors:
        os.close(descriptor)  # the fork has them: their other ends must see it when the fork closes one
    status = connected.recv(4)
    return int.from_bytes(status, "big") if status else LOST << 8


if __name__ == "__main__":
    ended = run(sys.argv[1], sys.argv[2:])
    if os.WIFSIGNALED(ended):
        if os.WTERMSIG(ended) in FORWARDED:
            signal.signal(os.WTERMSIG(ended), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(ended))
    os._exit(os.WEXITSTATUS(ended))
