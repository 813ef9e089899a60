"""Node.js and its packages for tests: pinned by lock files beside the tests, installed from npm once."""

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.peers import INSTALL_TIME, once

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent / ".cache" / "node"
NPM = shutil.which("npm")

needs_npm = pytest.mark.skipif(NPM is None, reason="npm is not installed")


def installed(source: Path) -> Path:
    """The folder with *source*'s packages in its node_modules, made on first use. Raises CalledProcessError."""
    names = ("package.json", "package-lock.json")
    digest = hashlib.sha256(b"".join((source / name).read_bytes() for name in names)).hexdigest()

    def fill(folder: Path) -> None:
        assert NPM is not None, "npm is not installed"
        folder.mkdir(exist_ok=True)
        for name in names:
            shutil.copyfile(source / name, folder / name)
        # No scripts: packages are read and run, and none of them needs to be built.
        command = [NPM, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run(command, cwd=folder, check=True, timeout=INSTALL_TIME, stdout=subprocess.DEVNULL)

    return once(CACHE / f"{source.name}-{digest[:12]}", fill)


def node() -> Path:
    """The Node.js that is pinned beside the conformance suite: what a machine has may be too old for either."""
    modules = installed(HERE / "conformance") / "node_modules"
    return next(modules.glob("node-*/bin/node"))
