"""`tests.conformance.client` with a record of its exit status: the arguments are a file and a URL.

The suite checks the exit status of a client that it runs alone, and ignores it when it runs many clients.
"""

import os
import sys
from pathlib import Path

from tests.conformance import client


def main() -> int:
    status = 1
    try:
        status = client.main()
    finally:
        with Path(sys.argv[1]).open("a") as file:  # clients write at the same time: a short line is appended whole
            file.write(f"{os.environ['MCP_CONFORMANCE_SCENARIO']} {status}\n")
    return status


def read(file: Path) -> dict[str, int]:
    """The exit status of the last client of each scenario."""
    lines = file.read_text().splitlines()
    return {name: int(status) for name, status in (line.rsplit(" ", 1) for line in lines)}
