"""The flags of `bench`, and what they mean."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import attrs
import msgspec
from cyclopts import Group, Parameter

from callboard.bench.engine import LoadPlan
from callboard.bench.identities import BadTokens, read_tokens
from callboard.bench.limits import BadLimit, Limit
from callboard.bench.pace import Pace
from callboard.bench.provenance import MAX_LABEL
from callboard.bench.search import Conditions
from callboard.bench.steps import Scenario
from callboard.bench.times import HOW, read_time
from callboard.bench.work import Act, Work
from callboard.cli.arguments import BadArgument
from callboard.cli.bench_checks import check_flags
from callboard.cli.profiles import CONCURRENCY_OF, COUNTED, SESSIONS_OF, Profile, read_scenario
from callboard.errors import CannotServe
from callboard.supervisor.printable import clean
from callboard.transports.bind import BindAddress

_WHAT: Final = Group("Requests", sort_key=0)
_HOW: Final = Group("Load", help="Times are 500ms, 10s, 2m, or a number of seconds.", sort_key=1)
_OUT: Final = Group("Output", sort_key=2)
LONGEST_COUNT: Final = "10m"
"""Longest time in which `--requests` are made, by default: a server that hangs is not waited for without end."""

PROBE: Final = ("5s", "500ms")
"""Duration of each probe of `--find-limit`, and of its warm-up: a dozen of them take a minute."""

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
            "answers to elicitation. Or a recording to play again: FILE.jsonl, or FILE.jsonl#SERVER.",
        ),
    ] = None
    sessions: Annotated[
        int | None,
        Parameter(
            group=_HOW,
            help="Number of sessions (of processes, if the target is a command); fanout: of subscribers. Default: 1; "
            "fanout and idle: 10; isolation: 8.",
        ),
    ] = None
    concurrency: Annotated[
        int | None,
        Parameter(
            group=_HOW,
            help="Requests in flight (closed loop). Default: the number of sessions; storm: 50; isolation: 32.",
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
    find_limit: Annotated[
        list[str] | None,
        _MANY,
        Parameter(
            group=_HOW,
            help="Search for the highest rate at which this is true: p99<50ms, max<1s, errors<0.1%. May be repeated: "
            "all must hold. --rate is the first rate to try, --duration that of each probe (5s).",
        ),
    ] = None
    burst: Annotated[
        str | None,
        Parameter(group=_HOW, help="Requests at once, and how often (open loop): 50/1s sends 50 every second."),
    ] = None
    requests: Annotated[
        int | None,
        Parameter(group=_HOW, help="Number of requests, instead of a duration; then there is no warm-up by default."),
    ] = None
    duration: Annotated[
        str | None,
        Parameter(group=_HOW, help="Duration of the measurement. Default: 10s; with --requests at most 10m."),
    ] = None
    warmup: Annotated[
        str | None, Parameter(group=_HOW, help="Duration of load before the measurement. Default: 1s.")
    ] = None
    ramp: Annotated[str, Parameter(group=_HOW, help="Time in which the load rises to the full rate.")] = "0s"
    profile: Annotated[
        Profile,
        Parameter(
            group=_HOW,
            help="steady: requests in long-lived sessions. churn: a new session, or process, for each request. "
            "storm: --concurrency calls are cancelled at once, repeatedly, while another session sends requests. "
            "fanout: one session calls --tool, the others receive the notification. idle: --sessions are opened "
            "and left idle. chaos: the server process is killed at random. isolation: {canary} in --args is different "
            "in each request, and no answer may contain that of another session; without it, answers must be alike.",
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
    generator: Annotated[
        list[str] | None,
        _MANY,
        Parameter(
            group=_HOW,
            help="Command that starts callboard on another machine, as 'ssh HOST callboard': it makes a part of the "
            "load, instead of this process. May be repeated.",
        ),
    ] = None
    every: Annotated[
        str | None,
        Parameter(
            group=_HOW,
            help="storm: time until calls are cancelled (100ms); fanout: interval of changes (50ms); chaos: average "
            "interval of kills (2s).",
        ),
    ] = None
    token_file: Annotated[
        Path | None,
        Parameter(
            group=_HOW,
            help="File with a bearer token on each line: sessions use them in turn, as different identities.",
        ),
    ] = None
    pid: Annotated[
        int | None,
        Parameter(group=_HOW, help="Process id of a server that bench did not start, to measure memory and CPU."),
    ] = None
    yes_remote: Annotated[
        bool, _FLAG, Parameter(group=_HOW, help="Allow a target on another machine. Make sure that you may test it.")
    ] = False
    label: Annotated[
        str, Parameter(group=_OUT, help="A name of this run for reports: a commit, a version, a machine.")
    ] = ""
    csv: Annotated[Path | None, Parameter(group=_OUT, help="Write per-second figures to this CSV file.")] = None
    html: Annotated[Path | None, Parameter(group=_OUT, help="Write an HTML report with plots to this file.")] = None
    summary: Annotated[
        Path | None,
        Parameter(group=_OUT, help="Append a summary in Markdown to this file, as $GITHUB_STEP_SUMMARY is."),
    ] = None
    junit: Annotated[
        Path | None, Parameter(group=_OUT, help="Write the limits of --fail-if as test cases to this JUnit XML file.")
    ] = None
    metrics: Annotated[
        str | None,
        Parameter(group=_OUT, help="Serve /metrics (Prometheus) at this address of this machine during the run."),
    ] = None
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
        return [file for file in (self.csv, self.html, self.summary, self.junit) if file is not None]

    @property
    def parts(self) -> int:
        """How many processes make the load."""
        return len(self.generator or ()) or self.processes

    def generators(self) -> Sequence[Sequence[str]]:
        """The commands of `--generator`. No shell reads them. Raises `BadArgument`."""
        found = []
        for text in self.generator or ():
            try:
                words = shlex.split(text)
            except ValueError as error:
                raise BadArgument(f"--generator {text[:100]!r}: {str(error).lower()}") from None
            if not words:
                raise BadArgument("--generator needs a command, as 'ssh HOST callboard'")
            found.append([*words, "bench", "generator"])
        return found

    @property
    def is_open(self) -> bool:
        """Whether requests are sent at a rate, and not after an answer."""
        return self.rate is not None or self.burst is not None

    def label_text(self) -> str:
        """The label on one line. Raises `BadArgument` if it is too long for a table."""
        if len(self.label) > MAX_LABEL:
            raise BadArgument(f"--label is longer than {MAX_LABEL} characters")
        return clean(" ".join(self.label.split()))

    def plan(self) -> LoadPlan:
        """Raises `BadArgument`."""
        duration, warmup = self._times()
        ramp = seconds_in("--ramp", self.ramp)
        check_flags(self)
        sessions = SESSIONS_OF.get(self.profile, self.parts) if self.sessions is None else self.sessions
        concurrency = CONCURRENCY_OF.get(self.profile, sessions) if self.concurrency is None else self.concurrency
        if sessions < 1 or concurrency < 1:
            raise BadArgument("--sessions and --concurrency must be at least 1")
        if self.parts > min(sessions, concurrency if not self.is_open else sessions):
            least = "the number of generators" if self.generator else "--processes"
            raise BadArgument(f"--sessions and --concurrency must be at least {least}")
        if not duration:
            raise BadArgument("--duration must be greater than 0")
        return LoadPlan(
            sessions=sessions,
            concurrency=concurrency,
            pace=self._pace(ramp),
            duration=duration,
            warmup=warmup,
            ramp=ramp,
            requests=self.requests,
        )

    def _times(self) -> tuple[float, float]:
        """The duration, and the time to warm up. Raises `BadArgument`."""
        usual = ("10s", "1s")
        if self.requests is not None:
            usual = (LONGEST_COUNT, "0s")
        elif self.find_limit:
            usual = PROBE
        return seconds_in("--duration", self.duration or usual[0]), seconds_in("--warmup", self.warmup or usual[1])

    def _pace(self, ramp: float) -> Pace | None:
        """Raises `BadArgument`."""
        if self.burst is not None:
            count, _, every = self.burst.partition("/")
            seconds = read_time(every)
            if not re.fullmatch(r"\d{1,9}", count) or not int(count) or not seconds:
                raise BadArgument(f"--burst {self.burst[:50]!r}: expected a number of requests and a time, as 50/1s")
            return Pace(rate=int(count) / seconds, ramp=ramp, burst=int(count))
        if self.rate is None:
            return None
        if not 0 < self.rate < float("inf"):
            raise BadArgument("--rate must be greater than 0")
        return Pace(rate=self.rate, ramp=ramp)

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

    def tokens(self) -> Sequence[str]:
        """Those of `--token-file`. Raises `BadArgument`, without what is in it."""
        if self.token_file is None:
            return ()
        file = self.token_file
        try:
            return read_tokens(file.read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise BadArgument(f"{file}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise BadArgument(f"{file}: is not UTF-8") from None
        except BadTokens as error:
            raise BadArgument(f"{file}: {error}") from None

    def metrics_at(self) -> BindAddress | None:
        """The address of `--metrics`. Raises `BadArgument`."""
        if self.metrics is None:
            return None
        try:
            place = BindAddress.parse(self.metrics)
        except CannotServe as error:
            raise BadArgument(f"--metrics: {error}") from None
        if not place.is_local:
            raise BadArgument(
                f"--metrics {place}: no token is asked for, so it must be a loopback address or unix:/path"
            )
        return place

    def limits(self) -> Sequence[Limit]:
        """Raises `BadArgument`."""
        try:
            return [Limit.parse(text, self.profile) for text in self.fail_if or ()]
        except BadLimit as error:
            raise BadArgument(f"--fail-if {error}") from None

    def conditions(self) -> Conditions | None:
        """Those of `--find-limit`. Raises `BadArgument`."""
        try:
            return Conditions.parse(self.find_limit) if self.find_limit else None
        except BadLimit as error:
            raise BadArgument(f"--find-limit {error}") from None

    def described(self, plan: LoadPlan) -> dict[str, Any]:
        """How the load was made, for readers of the result."""
        return {
            "profile": self.profile,
            "load": self._told(plan),
            "counted": COUNTED.get(self.profile, "requests"),
            "sessions": plan.sessions,
            "concurrency": plan.concurrency if plan.pace is None else None,
            "rate": None if plan.pace is None else plan.pace.rate,
            "burst": None if plan.pace is None or plan.pace.burst == 1 else plan.pace.burst,
            "requests": plan.requests,
            "duration": plan.duration,
            "warmup": plan.warmup,
            "ramp": plan.ramp,
            "processes": self.parts,
            "generators": len(self.generator or ()),
        }

    def _told(self, plan: LoadPlan) -> str:
        """How much, in words."""
        sessions = f"{plan.sessions} session{'s' if plan.sessions > 1 else ''}"
        pace = "" if plan.pace is None else f"{plan.pace.rate:g} per second (open loop)"
        if plan.pace is not None and self.burst is not None:
            pace = f"{plan.pace.burst} at once every {plan.pace.burst / plan.pace.rate:g} s (open loop)"
        if self.scenario is not None:
            return f"{sessions}, each runs one script after another" if not pace else f"{sessions}, scripts: {pace}"
        match self.profile:
            case "idle":
                return f"{sessions} idle"
            case "fanout":
                return f"1 publisher, {plan.sessions} subscribers" + (f", {pace}" if pace else "")
            case "storm":
                return f"{sessions}, {plan.concurrency} calls cancelled at once"
            case "isolation":
                return f"{sessions}, rounds of {plan.concurrency} requests at once, answers compared"
            case "churn":
                sessions = "a session each"
        if self.generator:
            sessions += f" of {self.parts} generator{'s' if self.parts > 1 else ''}"
        elif self.processes > 1:
            sessions += f" in {self.processes} processes"
        if self.find_limit:
            return f"{sessions}, probes of {plan.duration:g} s at different rates (open loop)"
        number = f"{plan.requests:,} requests, " if plan.requests is not None else ""
        return f"{number}{sessions}, {pace or f'{plan.concurrency} at once (closed loop)'}"


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
