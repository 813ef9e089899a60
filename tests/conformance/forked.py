"""Clients that start in a hundredth of the time: one process imports callboard, and forks for each scenario.

The suite starts a command for each scenario. That command is this file, run by a bare interpreter: it hands its
arguments, its environment and its standard streams to the process that has everything imported, and ends as its fork
ends. What the fork does is what `tests.conformance.client` does when it is started by itself.
"""

import array
import json
import os
import socket
import sys

STATUS_LOST = 70
"""The status of a client whose fork ended without one."""


def hand_over(path: str, url: str) -> int:
    """Have a scenario played by a fork of the process that listens at *path*. Returns its exit status."""
    given = {name: value for name, value in os.environ.items() if name.startswith("MCP_CONFORMANCE_")}
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(path)
        streams = array.array("i", [0, 1, 2])
        door.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
        door.sendall(json.dumps([url, given]).encode())
        door.shutdown(socket.SHUT_WR)
        status = door.recv(1)
    return status[0] if status else STATUS_LOST


if __name__ == "__main__":
    sys.exit(hand_over(sys.argv[1], sys.argv[2]))
