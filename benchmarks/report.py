"""Run every benchmark in a short form, and write docs/benchmarks.md with its plots: what `make bench` does.

    python -m benchmarks.report [--tiny] [--only NAME ...] [--from FOLDER] [--to FOLDER]

Figures are kept in .cache/bench, a file for each benchmark, so that one of them can be run again without the others. A
benchmark that fails is said so on the page, and the exit code is 1. The crowd of 100,000 is run with `--only crowd`
alone: it takes five minutes and some GiB.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.peers import CACHE, HERE
from benchmarks.report_page import EXTRA, Kept, page

ROOT: Final = HERE.parent
KEPT: Final = ROOT / ".cache" / "bench"
LONGEST: Final = 3600
"""Seconds that one benchmark may take. The longest takes some minutes."""


@attrs.frozen
class Benchmark:
    """How one is run: what is quoted, and what only shows that it works."""

    name: str
    short: Sequence[str]
    tiny: Sequence[str]
    module: str = ""
    """Where it is, if that is not its name."""

    def words(self, form: str) -> list[str]:
        return ["-m", f"benchmarks.{self.module or self.name}", *(self.tiny if form == "tiny" else self.short)]


_ONCE: Final = ("--rounds", "1", "--seconds", "1")

BENCHMARKS: Final = (
    Benchmark("hosting", ["--short"], ["--short", *_ONCE]),
    Benchmark("payload", [], [*_ONCE, "--most", "10000"]),
    Benchmark("client", ["--short"], ["--short", "--rounds", "1", "--calls", "320"]),
    Benchmark("broker", ["--short"], ["--short", *_ONCE, "--transport", "stdio"]),
    Benchmark("workers", [], _ONCE),
    Benchmark("nodes", ["--nodes"], ["--nodes", *_ONCE], module="workers"),
    Benchmark("observing", [], _ONCE),
    Benchmark("guarding", [], _ONCE),
    Benchmark("stages", ["--seconds", "5"], ["--seconds", "2"]),
    Benchmark("growth", ["--short"], ["--short", "--rounds", "1", "--most", "100"]),
    Benchmark("listeners", ["--short"], ["--short", "--count", "200", "--rest", "1"]),
    Benchmark(
        "crowd",
        ["--workers", "auto", "--count", "100000"],
        ["--workers", "auto", "--count", "400", "--rest", "1"],
        module="listeners",
    ),
    Benchmark("generator", ["--seconds", "2"], ["--seconds", "1", "--rounds", "1"]),
    Benchmark("agreement", ["--seconds", "3"], ["--seconds", "1", "--rounds", "1"]),
    Benchmark("codec", ["--quick"], ["--quick"]),
    Benchmark("actors", ["--quick"], ["--quick"]),
    Benchmark("sessions", ["--quick"], ["--quick"]),
)


def run(benchmark: Benchmark, form: str, folder: Path) -> Kept:
    """Run one, and keep what it found. Its own words go to the terminal."""
    words, file = benchmark.words(form), folder / f"{benchmark.name}.json"
    figures = folder / f"{benchmark.name}.figures"
    figures.unlink(missing_ok=True)
    started, failed = time.monotonic(), ""
    try:
        ended = subprocess.run([sys.executable, *words, "--json", str(figures)], cwd=ROOT, timeout=LONGEST, check=False)
    except subprocess.TimeoutExpired:
        failed = f"it did not end within {LONGEST} s"
    else:
        failed = f"it failed with exit status {ended.returncode}" if ended.returncode else ""
    data = json.loads(figures.read_text()) if not failed else None
    figures.unlink(missing_ok=True)
    about = {"form": form, "command": " ".join(["python", *words]), "seconds": time.monotonic() - started}
    kept = Kept(benchmark.name, {**about, "failed": failed, **surroundings()}, data)
    file.write_text(json.dumps(attrs.asdict(kept), indent=1) + "\n")
    return kept


def surroundings() -> dict[str, Any]:
    """Where and of what a figure is. Nothing in it names the machine."""
    today = datetime.now(UTC).date().isoformat()
    return {"commit": commit(), "date": today, "machine": machine(), "versions": versions()}


def commit() -> str:
    """The commit, and whether files of the program were changed since."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "callboard", "benchmarks")
    return git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")


def machine() -> dict[str, str]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "CPU": processor(),
        "cores": str(cores),
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def processor() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE) if info.exists() else None
    return found[1] if found else platform.machine()


def versions() -> dict[str, str]:
    """Ours, and of each peer what is installed for it."""
    found = {name: version(name) for name in ("callboard", "trio", "httptools", "msgspec")}
    for name, (folder, package) in PEERS.items():
        for place in CACHE.glob(f"{folder}/lib/python*/site-packages/{package}-*.dist-info"):
            found[name] = place.name.removesuffix(".dist-info").rpartition("-")[2]
    packages: dict[str, str] = json.loads((HERE / "hosting_node" / "package.json").read_text())["dependencies"]
    return found | packages


PEERS: Final = {
    "mcp": ("mcp-2*", "mcp"),
    "uvicorn": ("mcp-2*", "uvicorn"),
    "uvloop": ("mcp-2*", "uvloop"),
    "fastmcp": ("fastmcp-slim*", "fastmcp_slim"),
    "mcp below fastmcp": ("fastmcp-slim*", "mcp"),
    "websockets": ("websockets-*", "websockets"),
    "mcp-proxy": ("mcp-proxy-*", "mcp_proxy"),
    "mcp below mcp-proxy": ("mcp-proxy-*", "mcp"),
}
"""Whose version is in which environment: the tests keep others beside those."""


def read(folder: Path) -> dict[str, Kept]:
    """What was kept of earlier runs."""
    files = [folder / f"{one.name}.json" for one in BENCHMARKS]
    return {file.stem: Kept(**json.loads(file.read_text())) for file in files if file.exists()}


def write(kept: Mapping[str, Kept], folder: Path) -> bool:
    """Write the page and its plots, and print the targets. False if a benchmark is missing on it."""
    made = page(kept)
    place = folder / "benchmarks"
    place.mkdir(exist_ok=True)
    for old in place.glob("*.svg"):
        old.unlink()
    for name, svg in made.plots.items():
        (place / f"{name}.svg").write_text(svg)
    (folder / "benchmarks.md").write_text(made.text)
    print("\n".join(target.line() for target in made.targets))
    return made.is_whole


def main() -> None:
    names = [one.name for one in BENCHMARKS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="only to see that all of it works: the page says so")
    parser.add_argument("--only", choices=names, action="append", help="run these, and keep the figures of the others")
    parser.add_argument("--from", dest="source", type=Path, metavar="FOLDER", help="run nothing: take kept figures")
    parser.add_argument("--to", type=Path, default=ROOT / "docs", metavar="FOLDER", help="where the page goes (docs)")
    options = parser.parse_args()
    folder: Path = options.source or KEPT
    if options.source is None:
        folder.mkdir(parents=True, exist_ok=True)
        usual = names if options.tiny else [name for name in names if name not in EXTRA]
        run_all(options.only or usual, "tiny" if options.tiny else "short", folder)
    sys.exit(0 if write(read(folder), options.to) else 1)


def run_all(names: Sequence[str], form: str, folder: Path) -> None:
    """In turn, with a line before and after each."""
    started = time.monotonic()
    wanted = [one for one in BENCHMARKS if one.name in names]
    for number, benchmark in enumerate(wanted, 1):
        print(f"[{number}/{len(wanted)}] {benchmark.name} ...", flush=True)
        kept = run(benchmark, form, folder)
        print(f"[{number}/{len(wanted)}] {benchmark.name}: {kept.about['failed'] or 'done'}", end="")
        print(f", {kept.about['seconds']:.0f} s", flush=True)
    print(f"all in {(time.monotonic() - started) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
