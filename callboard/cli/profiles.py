"""Kinds of load: plain requests, a scenario, or a profile, and the flags that each needs."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs

from callboard.bench.chaos import EVERY, Chaos
from callboard.bench.engine import Drive, Engine, Lane, LoadPlan, OpenLane
from callboard.bench.fanout import BETWEEN, Fanout, Publication
from callboard.bench.hub import Hub, is_possible
from callboard.bench.identities import by_cycle, by_turns
from callboard.bench.idle import Idle, Rest
from callboard.bench.isolation import Isolation
from callboard.bench.lanes import ClientLane, by_churn, by_client, by_process, within
from callboard.bench.machine import memory_of, seconds_of
from callboard.bench.player import Player, players
from callboard.bench.prepared import by_requests
from callboard.bench.probes import LimitSearch
from callboard.bench.replay import replay_of
from callboard.bench.scenario import BadScenario, parse_scenario
from callboard.bench.script import Scripts
from callboard.bench.seats import Open
from callboard.bench.steps import Scenario
from callboard.bench.storm import IN_FLIGHT, Storm
from callboard.bench.work import Work
from callboard.cli.arguments import BadArgument
from callboard.client.client import Client, Common, connect
from callboard.client.routes import Target
from callboard.config.entry import Remote
from callboard.server.server import Server
from callboard.transports.client.process import Command, kill

Profile: TypeAlias = Literal["steady", "churn", "storm", "fanout", "idle", "chaos", "isolation"]

EVERY_OF: Final[dict[str, float]] = {"storm": IN_FLIGHT, "fanout": BETWEEN, "chaos": EVERY}
"""Defaults of `--every`, for the profiles that have it."""

SESSIONS_OF: Final[dict[str, int]] = {"fanout": 10, "idle": 10, "isolation": 8}
CONCURRENCY_OF: Final[dict[str, int]] = {"storm": 50, "isolation": 32}
"""How many there are by default, where one would show nothing."""

COUNTED: Final[dict[str, str]] = {"storm": "bystander's requests", "fanout": "deliveries", "idle": "sessions opened"}
"""The unit that latencies are measured of, if it is not requests."""

_SERVE: Final = "serve it (callboard run FILE.py:NAME --http 127.0.0.1:8000) and use its URL"


def read_scenario(file: Path) -> Scenario:
    """That of a TOML file, or of a recording: `FILE.jsonl`, or `FILE.jsonl#SERVER`. Raises `BadArgument`, with the line
    that is wrong."""
    path, found, server = str(file).rpartition("#")
    recording, name = (Path(path), server) if found and path.endswith(".jsonl") else (file, None)
    try:
        if recording.suffix == ".jsonl":
            return replay_of(recording.read_bytes(), recording, name)
        return parse_scenario(file.read_text(encoding="utf-8-sig"), file)
    except OSError as error:
        raise BadArgument(f"{file}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise BadArgument(f"{file}: is not UTF-8") from None
    except BadScenario as error:
        raise BadArgument(str(error)) from None


def publication(work: Work | None) -> Publication:
    """The publisher's tool and resource. Raises `BadArgument`."""
    acts = () if work is None else work.acts
    calls, reads = ([act for act in acts if act.kind == kind] for kind in ("call", "read"))
    if len(calls) != 1 or len(reads) > 1 or len(acts) > 2:
        raise BadArgument(
            "--profile fanout needs one --tool that changes something, and at most one --read URI, the resource "
            "that it changes; without --read, changes of any list are counted"
        )
    return Publication(calls[0], reads[0].name if reads else None)


def check_profile(profile: Profile, there: Command | Remote | Server, work: Work | None) -> None:
    """Whether the target is one for this profile, and enough was named. Raises `BadArgument`."""
    if profile == "chaos" and not isinstance(there, Command):
        raise BadArgument("--profile chaos kills the server: the target must be a command after --, or FILE.py:NAME")
    if profile in ("fanout", "isolation") and isinstance(there, Command):
        raise BadArgument(
            f"--profile {profile} needs one server for all sessions, and a command starts one each: {_SERVE}"
        )
    if profile == "fanout":
        publication(work)
    if profile == "storm" and work is None:
        raise BadArgument("--profile storm needs a --tool that takes longer than --every (100ms)")


@attrs.frozen(kw_only=True)
class ProfileStage:
    """Everything that a drive is made of."""

    profile: Profile
    scenario: Scenario | None
    every: float | None
    plan: LoadPlan
    there: Command | Remote | Server
    target: Target
    """The same, watched if it is a command."""
    identities: Sequence[Common]
    """Options of a session, as each identity has them. There is one, or as many as there are tokens."""
    on_open: Callable[..., None]
    pids: set[int]
    hub: Hub
    has_timeout: bool
    patience: float
    """Seconds in which each session must open."""
    search: Callable[[Work, OpenLane], LimitSearch] | None = None
    """Makes the search for the highest rate, if there is to be one."""

    def drive(self, work: Work | None) -> Drive[Any, Any]:
        """The driver of the load. *work* is given by flags, or chosen by default."""
        made = self._drive(work)
        made.open_lane = within(self.patience, made.open_lane)
        return made

    def _drive(self, work: Work | None) -> Drive[Any, Any]:
        if self.scenario is not None:
            return Scripts(self.plan, self.scenario, self._players(self.scenario))
        if self.profile == "idle":
            return Idle(self.plan, Rest(), self._clients(), memory=self._memory, cpu=self._cpu)
        if self.profile == "fanout":
            return Fanout(self.plan, publication(work), self._clients(), every=self._every)
        if work is None:
            raise BadArgument("no --tool, --read or --list given")
        if self.profile == "storm":
            is_shared = not isinstance(self.there, Command)
            return Storm(self.plan, work, self._clients(), every=self._every, has_bystander=is_shared)
        if self.profile == "isolation":
            return Isolation(self.plan, work, self._clients())
        if self.profile == "chaos" and isinstance(self.there, Command):
            opens = by_process(self.there, self.identities[0], self._met, self.pids)
            return Chaos(self.plan, work, opens, kill=_kill, every=self._every)
        make = self.search or partial(Engine, self.plan)
        return make(work, self._lanes(work))

    @property
    def _every(self) -> float:
        return EVERY_OF[self.profile] if self.every is None else self.every

    def _clients(self) -> Open[ClientLane]:
        return by_turns([by_client(self.target, common, self._met) for common in self.identities])

    def _players(self, scenario: Scenario) -> Open[Player]:
        each = enumerate(self.identities)
        return by_turns([players(self.target, common, scenario, self._met, seed) for seed, common in each])

    def _lanes(self, work: Work) -> OpenLane:
        if self.profile == "churn":
            clients = by_cycle([partial(connect, self.target, **common) for common in self.identities])
            return by_churn(within(self.patience, clients), self._met)
        # A deadline for each request is the client's, and costs as much as half of a fast one.
        if is_possible() and not self.has_timeout:
            fast = [by_requests(self.target, common, work, self.on_open, self.hub) for common in self.identities]
            return by_turns(fast)
        return self._clients()

    def _met(self, client: Client) -> None:
        self.on_open(client, False)

    def _memory(self) -> int | None:
        return memory_of(self.pids)

    def _cpu(self) -> float | None:
        return seconds_of(self.pids)


def _kill(lane: Lane) -> None:
    if isinstance(lane, ClientLane) and lane.process is not None:
        kill(lane.process)
