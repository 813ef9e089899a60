"""The flags of `bench`, and what they mean."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import attrs
import msgspec
from cyclopts import Group, Parameter

from callboard.bench.engine import LoadPlan
from callboard.bench.limits import BadLimit, Limit
from callboard.bench.pace import Pace
from callboard.bench.steps import Scenario
from callboard.bench.times import HOW, read_time
from callboard.bench.work import Act, Work
from callboard.cli.arguments import BadArgument
from callboard.cli.profiles import CONCURRENCY_OF, COUNTED, EVERY_OF, SESSIONS_OF, Profile, read_scenario

_WHAT: Final = Group("Requests", sort_key=0)
_HOW: Final = Group("Load", help="Times are 500ms, 10s, 2m, or a number of seconds.", sort_key=1)
_OUT: Final = Group("Output", sort_key=2)
MAX_PROCESSES: Final = 64
"""Processes that make load. More than a machine has cores are of no use."""

_FLAG: Final = Parameter(negative="", show_default=False)
_MANY: Final = Parameter(negative="", json_list=False)


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class Load:
    """The flags, as they were given."""

    tool: Annotated[
        list[str] | None,
        _MANY,
        Parameter(
            group=_WHAT,
            help="Tool to call. May be repeated. Default: a tool that is marked read-only and needs no arguments.",
        ),
    ] = None
    args: Annotated[
        list[str] | None,
        _MANY,
        Parameter(group=_WHAT, help="Arguments as a JSON object. May be repeated: the nth is for the nth --tool."),
    ] = None
    read: Annotated[list[str] | None, _MANY, Parameter(group=_WHAT, help="Resource to read. May be repeated.")] = None
    lists: Annotated[bool, _FLAG, Parameter(name="--list", group=_WHAT, help="List the tools.")] = False
    weight: Annotated[
        list[float] | None,
        _MANY,
        Parameter(
            group=_WHAT,
            help="Relative frequency of a request. May be repeated, in the order tools, resources, --list. Default: 1.",
        ),
    ] = None
    scenario: Annotated[
        Path | None,
        Parameter(
            group=_WHAT,
            help="TOML file with scripts that each session repeats: calls, pauses, subscriptions, cancellations, "
            "answers to elicitation.",
        ),
    ] = None
    sessions: Annotated[
        int | None,
        Parameter(
            group=_HOW,
            help="Number of sessions (of processes, if the target is a command); fanout: of subscribers. Default: 1; "
            "fanout and idle: 10.",
        ),
    ] = None
    concurrency: Annotated[
        int | None,
        Parameter(
            group=_HOW,
            help="Requests in flight (closed loop). Default: the number of sessions; storm: 50.",
        ),
    ] = None
    rate: Annotated[
        float | None,
        Parameter(
            group=_HOW,
            help="Requests per second (open loop). Latency is measured from the time at which a request was due, so "
            "that stalls of the server are included.",
        ),
    ] = None
    duration: Annotated[str, Parameter(group=_HOW, help="Duration of the measurement.")] = "10s"
    warmup: Annotated[str, Parameter(group=_HOW, help="Duration of load before the measurement.")] = "1s"
    ramp: Annotated[str, Parameter(group=_HOW, help="Time in which the load rises to the full rate.")] = "0s"
    profile: Annotated[
        Profile,
        Parameter(
            group=_HOW,
            help="steady: requests in long-lived sessions. churn: a new session, or process, for each request. "
            "storm: --concurrency calls are cancelled at once, repeatedly, while another session sends requests. "
            "fanout: one session calls --tool, the others receive the notification. idle: --sessions are opened "
            "and left idle. chaos: the server process is killed at random.",
        ),
    ] = "steady"
    processes: Annotated[
        int,
        Parameter(
            group=_HOW,
            help="Number of load generator processes, for steady and churn, if one core is not enough. Each has "
            "its own sessions.",
        ),
    ] = 1
    every: Annotated[
        str | None,
        Parameter(
            group=_HOW,
            help="storm: time until calls are cancelled (100ms); fanout: interval of changes (50ms); chaos: average "
            "interval of kills (2s).",
        ),
    ] = None
    pid: Annotated[
        int | None,
        Parameter(group=_HOW, help="Process id of a server that bench did not start, to measure memory and CPU."),
    ] = None
    yes_remote: Annotated[
        bool, _FLAG, Parameter(group=_HOW, help="Allow a target on another machine. Make sure that you may test it.")
    ] = False
    csv: Annotated[Path | None, Parameter(group=_OUT, help="Write per-second figures to this CSV file.")] = None
    html: Annotated[Path | None, Parameter(group=_OUT, help="Write an HTML report with plots to this file.")] = None
    fail_if: Annotated[
        list[str] | None,
        _MANY,
        Parameter(
            group=_OUT,
            help="Exit with code 1 if this is true: p99>20ms, max>1s, errors>0, errors>1%, rate<1000, or a figure of a "
            "profile: late_answers>0, recovery_max>3s, memory_each>1MiB. May be repeated.",
        ),
    ] = None

    @property
    def files(self) -> Sequence[Path]:
        """The files that are written at the end."""
        return [file for file in (self.csv, self.html) if file is not None]

    def plan(self) -> LoadPlan:
        """Raises `BadArgument`."""
        duration, warmup = seconds_in("--duration", self.duration), seconds_in("--warmup", self.warmup)
        ramp = seconds_in("--ramp", self.ramp)
        self._check()
        sessions = SESSIONS_OF.get(self.profile, self.processes) if self.sessions is None else self.sessions
        concurrency = CONCURRENCY_OF.get(self.profile, sessions) if self.concurrency is None else self.concurrency
        if sessions < 1 or concurrency < 1:
            raise BadArgument("--sessions and --concurrency must be at least 1")
        if self.processes > min(sessions, concurrency if self.rate is None else sessions):
            raise BadArgument("--sessions and --concurrency must be at least --processes")
        if self.rate is not None and not 0 < self.rate < float("inf"):
            raise BadArgument("--rate must be greater than 0")
        if not duration:
            raise BadArgument("--duration must be greater than 0")
        pace = None if self.rate is None else Pace(rate=self.rate, ramp=ramp)
        return LoadPlan(
            sessions=sessions,
            concurrency=concurrency,
            pace=pace,
            duration=duration,
            warmup=warmup,
            ramp=ramp,
        )

    def _check(self) -> None:
        """Raises `BadArgument` for flags that exclude each other."""
        names_work = bool(self.tool or self.args or self.read or self.lists or self.weight)
        if self.rate is not None and self.concurrency is not None:
            raise BadArgument("--rate and --concurrency exclude each other: use one of them")
        if self.scenario is not None and names_work:
            raise BadArgument("--scenario excludes --tool, --read and --list")
        if self.scenario is not None and self.profile != "steady":
            raise BadArgument(
                f'--scenario excludes --profile {self.profile}; for churn, set session = "each" in the file'
            )
        if self.scenario is not None and self.concurrency is not None:
            raise BadArgument("--scenario takes --sessions, not --concurrency: each session runs one script at a time")
        if self.profile == "idle" and (names_work or self.rate is not None or self.concurrency is not None):
            raise BadArgument("--profile idle takes --sessions only: it sends no requests")
        if self.profile == "storm" and self.rate is not None:
            raise BadArgument("--profile storm takes --concurrency and --every, not --rate")
        if self.profile == "fanout" and self.concurrency is not None:
            raise BadArgument("--profile fanout takes --sessions, the number of subscribers")
        if not 1 <= self.processes <= MAX_PROCESSES:
            raise BadArgument(f"--processes must be from 1 to {MAX_PROCESSES}")
        if self.processes > 1 and (self.scenario is not None or self.profile not in ("steady", "churn")):
            raise BadArgument("--processes is only for the profiles steady and churn, without --scenario")
        if self.every is not None and self.profile not in EVERY_OF:
            raise BadArgument(f"--every is for --profile {', '.join(EVERY_OF)}")

    def pause(self) -> float | None:
        """The value of `--every`. Raises `BadArgument`."""
        found = None if self.every is None else seconds_in("--every", self.every)
        if found == 0:
            raise BadArgument("--every must be greater than 0")
        return found

    def script(self) -> Scenario | None:
        """The file of `--scenario`. Raises `BadArgument`."""
        return None if self.scenario is None else read_scenario(self.scenario)

    def work(self) -> Work | None:
        """None if nothing was named. Raises `BadArgument`."""
        tools, arguments, reads = self.tool or (), self.args or (), self.read or ()
        if len(arguments) > len(tools):
            raise BadArgument("more --args than --tool: each --args belongs to a --tool, in the same order")
        given = [*map(_object, arguments), *([{}] * (len(tools) - len(arguments)))]
        acts = [
            *(Act(kind="call", name=name, arguments=one) for name, one in zip(tools, given, strict=True)),
            *(Act(kind="read", name=uri) for uri in reads),
            *([Act(kind="list")] if self.lists else []),
        ]
        return Work(tuple(_weighed(acts, self.weight or ()))) if acts else None

    def limits(self) -> Sequence[Limit]:
        """Raises `BadArgument`."""
        try:
            return [Limit.parse(text, self.profile) for text in self.fail_if or ()]
        except BadLimit as error:
            raise BadArgument(f"--fail-if {error}") from None

    def described(self, plan: LoadPlan) -> dict[str, Any]:
        """How the load was made, for readers of the result."""
        return {
            "profile": self.profile,
            "load": self._told(plan),
            "counted": COUNTED.get(self.profile, "requests"),
            "sessions": plan.sessions,
            "concurrency": plan.concurrency if plan.pace is None else None,
            "rate": None if plan.pace is None else plan.pace.rate,
            "duration": plan.duration,
            "warmup": plan.warmup,
            "ramp": plan.ramp,
            "processes": self.processes,
        }

    def _told(self, plan: LoadPlan) -> str:
        """How much, in words."""
        sessions = f"{plan.sessions} session{'s' if plan.sessions > 1 else ''}"
        pace = "" if plan.pace is None else f"{plan.pace.rate:g} per second (open loop)"
        if self.scenario is not None:
            return f"{sessions}, each runs one script after another" if not pace else f"{sessions}, scripts: {pace}"
        match self.profile:
            case "idle":
                return f"{sessions} idle"
            case "fanout":
                return f"1 publisher, {plan.sessions} subscribers" + (f", {pace}" if pace else "")
            case "storm":
                return f"{sessions}, {plan.concurrency} calls cancelled at once"
            case "churn":
                sessions = "a session each"
        if self.processes > 1:
            sessions += f" in {self.processes} processes"
        return f"{sessions}, {pace or f'{plan.concurrency} at once (closed loop)'}"


def seconds_in(flag: str, text: str) -> float:
    """Raises `BadArgument`."""
    found = read_time(text)
    if found is None:
        raise BadArgument(f"{flag} {text[:50]!r} is not a time: {HOW}")
    return found


def _object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise BadArgument(f"--args {text[:100]!r} is not a JSON object: {error}") from None


def _weighed(acts: Sequence[Act], weights: Sequence[float]) -> Sequence[Act]:
    if not weights:
        return acts
    if len(weights) != len(acts):
        raise BadArgument(f"{len(weights)} --weight for {len(acts)} requests: expected one for each")
    if any(not 0 < weight < float("inf") for weight in weights):
        raise BadArgument("--weight must be greater than 0")
    return [attrs.evolve(act, weight=weight) for act, weight in zip(acts, weights, strict=True)]
