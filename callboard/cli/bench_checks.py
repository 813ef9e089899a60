"""Flags of `bench` that exclude each other: one table, which says also what to use instead."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from callboard.cli.arguments import BadArgument
from callboard.cli.profiles import EVERY_OF, Profile

MAX_PROCESSES: Final = 64
"""Processes that make load. More than a machine has cores are of no use."""

PLAIN: Final = ("steady", "churn")
"""Profiles that send requests of flags, and nothing else."""


class GivenFlags(Protocol):
    """The flags that the rules are about."""

    @property
    def tool(self) -> list[str] | None: ...
    @property
    def args(self) -> list[str] | None: ...
    @property
    def read(self) -> list[str] | None: ...
    @property
    def lists(self) -> bool: ...
    @property
    def weight(self) -> list[float] | None: ...
    @property
    def scenario(self) -> Path | None: ...
    @property
    def concurrency(self) -> int | None: ...
    @property
    def rate(self) -> float | None: ...
    @property
    def find_limit(self) -> list[str] | None: ...
    @property
    def ramp(self) -> str: ...
    @property
    def burst(self) -> str | None: ...
    @property
    def requests(self) -> int | None: ...
    @property
    def processes(self) -> int: ...
    @property
    def generator(self) -> list[str] | None: ...
    @property
    def parts(self) -> int: ...
    @property
    def every(self) -> str | None: ...
    @property
    def profile(self) -> Profile: ...


def check_flags(flags: GivenFlags) -> None:
    """Raises `BadArgument` for flags that exclude each other."""
    for rule in (_of_load, _of_searches, _of_scenarios, _of_profiles, _of_processes):
        for is_wrong, why in rule(flags):
            if is_wrong:
                raise BadArgument(why)


Rules = Iterator[tuple[bool, str]]


def _of_load(flags: GivenFlags) -> Rules:
    is_counted = flags.requests is not None
    yield (
        flags.rate is not None and flags.concurrency is not None,
        "--rate and --concurrency exclude each other: use one of them",
    )
    yield (
        flags.burst is not None and (flags.rate is not None or flags.concurrency is not None),
        "--burst excludes --rate and --concurrency: it says how many are sent, and when",
    )
    yield flags.requests is not None and flags.requests < 1, "--requests must be at least 1"
    yield (
        is_counted and (flags.scenario is not None or flags.profile not in PLAIN),
        "--requests is only for the profiles steady and churn, without --scenario: use --duration",
    )


def _of_searches(flags: GivenFlags) -> Rules:
    others = (flags.concurrency, flags.burst, flags.requests, flags.scenario)
    yield (
        bool(flags.find_limit) and any(other is not None for other in others),
        "--find-limit excludes --concurrency, --burst, --requests and --scenario: it has rates of its own",
    )
    yield (
        bool(flags.find_limit) and (flags.profile != "steady" or flags.parts > 1 or flags.ramp != "0s"),
        "--find-limit excludes --profile, --processes, --generator and --ramp",
    )


def _of_scenarios(flags: GivenFlags) -> Rules:
    has_script = flags.scenario is not None
    yield has_script and _names_work(flags), "--scenario excludes --tool, --read and --list"
    yield (
        has_script and flags.profile != "steady",
        f'--scenario excludes --profile {flags.profile}; for churn, set session = "each" in the file',
    )
    yield (
        has_script and flags.concurrency is not None,
        "--scenario takes --sessions, not --concurrency: each session runs one script at a time",
    )


def _of_profiles(flags: GivenFlags) -> Rules:
    is_open = flags.rate is not None or flags.burst is not None
    yield (
        flags.profile == "idle" and (_names_work(flags) or is_open or flags.concurrency is not None),
        "--profile idle takes --sessions only: it sends no requests",
    )
    yield flags.profile == "storm" and is_open, "--profile storm takes --concurrency and --every, not --rate"
    yield (
        flags.profile == "isolation" and is_open,
        "--profile isolation takes --sessions and --concurrency, the requests that are sent at once, not --rate",
    )
    yield (
        flags.profile == "fanout" and (flags.concurrency is not None or flags.burst is not None),
        "--profile fanout takes --sessions, the number of subscribers, and --rate",
    )
    yield (
        flags.every is not None and flags.profile not in EVERY_OF,
        f"--every is for --profile {', '.join(EVERY_OF)}",
    )


def _of_processes(flags: GivenFlags) -> Rules:
    name, number = ("--generator", "the number of generators") if flags.generator else ("--processes", "--processes")
    yield bool(flags.generator) and flags.processes > 1, "--generator excludes --processes: repeat it for each core"
    yield bool(flags.generator) and bool(flags.find_limit), "--find-limit excludes --generator"
    yield not 1 <= flags.processes <= MAX_PROCESSES, f"--processes must be from 1 to {MAX_PROCESSES}"
    yield flags.parts > MAX_PROCESSES, f"--generator may be given {MAX_PROCESSES} times"
    yield (
        (flags.parts > 1 or bool(flags.generator)) and (flags.scenario is not None or flags.profile not in PLAIN),
        f"{name} is only for the profiles steady and churn, without --scenario",
    )
    yield (
        flags.requests is not None and flags.requests < flags.parts,
        f"--requests must be at least {number}",
    )


def _names_work(flags: GivenFlags) -> bool:
    return bool(flags.tool or flags.args or flags.read or flags.lists or flags.weight)
