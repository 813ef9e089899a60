"""A Redis, certificates and keys for nodes on this machine, for `benchmarks.workers --nodes`."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.peers import HERE
from tests.served import free_port, is_accepting

CERTIFICATES: Final = HERE.parent / "deploy" / "make-certificates"
STARTS: Final = 10.0
"""Seconds for Redis to start."""


@contextmanager
def flags_of_nodes(count: int) -> Iterator[list[list[str]]]:
    """The flags of so many nodes, each at an address of its own, while the block lasts."""
    addresses = [f"127.0.0.{number}" for number in range(2, 2 + count)]
    with tempfile.TemporaryDirectory(prefix="callboard-bench-") as folder, _redis(Path(folder)) as url:
        subprocess.run(["sh", str(CERTIFICATES), folder, *addresses], check=True)
        shared = ["--cluster", url, "--cluster-ca", f"{folder}/ca.pem", "--state-key-file", f"{folder}/keys"]
        yield [[*shared, *_own(Path(folder), address)] for address in addresses]


def _own(folder: Path, address: str) -> list[str]:
    files = ["--cluster-cert", str(folder / f"{address}.pem"), "--cluster-key", str(folder / f"{address}.key")]
    return ["--cluster-address", address, *files]


@contextmanager
def _redis(folder: Path) -> Iterator[str]:
    program = shutil.which("redis-server")
    if program is None:
        raise SystemExit("redis-server is not installed: run sh tests/install-servers")
    port = free_port()
    command = [program, "--port", str(port), "--save", "", "--appendonly", "no", "--dir", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + STARTS
        while not is_accepting(port):
            if time.monotonic() > end:
                raise SystemExit("redis-server does not answer")
            time.sleep(0.02)
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
