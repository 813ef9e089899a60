"""The same echo, written in six ways, in callboard and its peers: what each way costs."""

from contextlib import ExitStack
from statistics import median
from typing import Final

import attrs

from benchmarks.hosting_load import Sample
from benchmarks.hosting_rounds import Job, Plan, preparing
from benchmarks.hosting_servers import (
    OURS,
    REFERENCE,
    callboard,
    fastmcp_json,
    fastmcp_sse,
    mcp_json,
    mcp_sse,
    running,
)
from benchmarks.measure import verdict

NAME: Final = "tool shapes"
TEXT: Final = "sixteen letters!"
"""What is echoed. A long one would hide what the shape costs."""


@attrs.frozen
class Shape:
    """One way to write it, the call, and how many times the reference's calls for the same CPU time are wanted."""

    name: str
    job: Job
    wanted: float


SHAPES: Final = (
    Shape("async def echo(text)", Job(tool="echo", text=TEXT, expected=TEXT), 9),
    Shape("async def echo(text, *, ctx)", Job(tool="echo_ctx", text=TEXT, expected=TEXT), 8),
    Shape(
        "the same, and await ctx.report(...): a stream",
        Job(tool="echo_streamed", text=TEXT, expected=TEXT, is_streamed=True),
        4,
    ),
    Shape("async def echo(text) -> AttrsClass", Job(tool="echo_model", text=TEXT, expected='"structuredContent"'), 8),
    Shape("def echo(text), in a thread", Job(tool="echo_def", text=TEXT, expected=TEXT), 4),
    Shape(
        "async def echo(text, *, ctx), legacy session",
        Job(tool="echo_ctx", text=TEXT, expected=TEXT, is_legacy=True),
        7,
    ),
)
BY_JSON: Final = (callboard, mcp_json, fastmcp_json)
BY_STREAMS: Final = (callboard, mcp_sse, fastmcp_sse)


@attrs.frozen
class ShapeCell:
    """One shape: the rounds of every contender."""

    name: str
    wanted: float
    samples: dict[str, list[Sample]]

    def by_cpu(self, other: str) -> list[float]:
        """How many times as many calls as *other* for the same CPU time, round by round."""
        pairs = zip(self.samples[OURS], self.samples[other], strict=True)
        return sorted(theirs.cpu / mine.cpu for mine, theirs in pairs)

    def lines(self) -> list[str]:
        lines = [f"{self.name:50} {'calls/s':>9} {'CPU us':>8}   {OURS} / theirs, by CPU (the spread)"]
        for name, samples in self.samples.items():
            rate, cpu = median(one.rate for one in samples), median(one.cpu for one in samples)
            times = self.by_cpu(name)
            lines.append(f"  {name:48} {rate:9.0f} {cpu:8.1f} {median(times):8.2f} ({times[0]:.2f} to {times[-1]:.2f})")
        return lines

    def verdict(self) -> str:
        return verdict(f"{self.name}: by CPU, times {REFERENCE}", median(self.by_cpu(REFERENCE)), self.wanted)


def measure_shapes(plan: Plan) -> list[ShapeCell]:
    """All shapes, printed as they come."""
    cells = []
    with ExitStack() as stack, preparing(plan.load) as preparation:
        servers = {one: stack.enter_context(running(one)) for one in {*BY_JSON, *BY_STREAMS}}
        for shape in SHAPES:
            contenders = BY_STREAMS if shape.job.is_streamed else BY_JSON
            calls = {one.name: preparation.of(servers[one], shape.job) for one in contenders}
            cells.append(ShapeCell(shape.name, shape.wanted, plan.in_turn(calls)))
            print("\n".join(cells[-1].lines()), flush=True)
    return cells
