"""Contenders in turn, as every table of `hosting.py` has them: each prepared once, then called round by round."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import attrs

from benchmarks.hosting_calls import Caller, tool_call
from benchmarks.hosting_load import Load, Sample, write_calls
from benchmarks.hosting_servers import Running

WARM_UP: Final = 64
"""Connections for each second before the first round: every answer is looked at, and nothing is measured."""

K = TypeVar("K")
CallFor: TypeAlias = Callable[[float], Sample]
"""Puts load on one contender, for so many seconds."""


@attrs.frozen
class Plan:
    """How long it is measured, and with what."""

    load: Load
    rounds: int
    seconds: float

    def in_turn(self, contenders: Mapping[K, CallFor]) -> dict[K, list[Sample]]:
        """All of them, *rounds* times."""
        samples: dict[K, list[Sample]] = {name: [] for name in contenders}
        for _ in range(self.rounds):
            for name, call in contenders.items():
                samples[name].append(call(self.seconds))
        return samples


@attrs.frozen(kw_only=True)
class Job:
    """What is called, and what is in every answer."""

    tool: str
    expected: str
    text: str = ""
    """Its argument, if it is not the usual one."""
    is_legacy: bool = False
    is_streamed: bool = False
    connections: int = 32


@attrs.frozen
class Preparation:
    """Where the calls of one table are kept while it is measured."""

    load: Load
    place: Path

    def of(self, server: Running, job: Job) -> CallFor:
        """Calls that were seen to be answered as they should. Raises `WrongAnswer`."""
        folder = Path(tempfile.mkdtemp(dir=self.place)) / "calls"
        write_calls(folder, _calls(server, job))
        warm_up, connections = max(1, job.connections // WARM_UP), job.connections
        self.load.run(server, folder, connections=connections, seconds=warm_up, expected=job.expected)
        return lambda seconds: self.load.run(server, folder, connections=connections, seconds=seconds)


@contextmanager
def preparing(load: Load) -> Iterator[Preparation]:
    with tempfile.TemporaryDirectory() as place:
        yield Preparation(load, Path(place))


def _calls(server: Running, job: Job) -> list[bytes]:
    """As they are on the wire; in the legacy era a session for each connection."""
    caller = Caller(server.port)
    sessions = [caller.open_session() for _ in range(job.connections)] if job.is_legacy else [None]
    calls = [tool_call(job.tool, session=session, is_streamed=job.is_streamed, text=job.text) for session in sessions]
    caller.check(calls[0], job.expected, is_streamed=job.is_streamed)
    caller.close()
    return [call.raw(server.port) for call in calls]
