"""The client of `tests.conformance.client`, which notes how it ended: its arguments are a file and a URL.

The suite looks at the exit status of a client that it runs alone, and not when it runs many.
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
        with Path(sys.argv[1]).open("a") as file:  # a short line is appended whole, whichever clients write at once
            file.write(f"{os.environ['MCP_CONFORMANCE_SCENARIO']} {status}\n")
    return status


def read(file: Path) -> dict[str, int]:
    """The exit status of the last client of each scenario."""
    lines = file.read_text().splitlines()
    return {name: int(status) for name, status in (line.rsplit(" ", 1) for line in lines)}
