"""What hosting costs, on the page of benchmarks: tools over HTTP and WebSocket, their shapes, payloads, and memory."""

from statistics import median
from typing import Any

from benchmarks.hosting_servers import OURS, REFERENCE
from benchmarks.hosting_shapes import SHAPES
from benchmarks.hosting_tables import JUDGED, TOOLS, WEIGHT
from benchmarks.hosting_websocket import BY_HAND, ERAS, WAYS
from benchmarks.payload import FACTORS, MOST
from benchmarks.plots import Bar, bars
from benchmarks.report_section import Section, Target, middle, number, ratios, spread, table

HOSTING, GOAL = 6.0, 10.0
"""How many times mcp's calls/s are wanted, and what the goal is."""


def hosting(found: Any) -> Section:
    blocks, plots, targets = [], {}, list[Target]()
    for cell in found["cells"]:
        samples, title = cell["samples"], f"{cell['mode']}, {TOOLS[cell['tool']]}, {cell['connections']} connections"
        rows = [
            [
                name,
                number(middle(runs, "rate")),
                number(middle(runs, "p50") / 1e3),
                number(middle(runs, "p99") / 1e3),
                number(middle(runs, "cpu")),
                spread(ratios(runs, samples[REFERENCE], "rate")),
            ]
            for name, runs in samples.items()
        ]
        head = [title, "calls/s", "p50 ms", "p99 ms", "CPU us", f"x {REFERENCE}"]
        blocks.append(table(head, rows))
        if (cell["tool"], cell["connections"]) == JUDGED:
            name = "hosting-" + cell["mode"].lower().replace(" ", "-")
            plots[name] = rates(f"Calls/s: {title}", samples, (OURS,))
            if cell["mode"] == "modern JSON":
                times = ratios(samples[OURS], samples[REFERENCE], "rate")
                what = f"hosting: calls/s, times {REFERENCE} ({title})"
                targets.append(Target(what=what, wanted=HOSTING, found=times))
                targets.append(Target(what="hosting: the same, the goal", wanted=GOAL, found=times))
    return Section(blocks, plots, targets)


def rates(title: str, samples: dict[str, Any], ours: tuple[str, ...]) -> str:
    rates = {name: middle(runs, "rate") for name, runs in samples.items()}
    return bars(title, [Bar(name, rate, number(rate), name in ours) for name, rate in rates.items()])


def memory(found: Any) -> Section:
    """Of the same run as hosting."""
    grown = found["idle_session_kib"]
    if not grown:
        return Section(["No sessions were weighed."], targets=[_weight([])])
    rows = [[name, spread(kib), number(median(kib) / median(grown[OURS]))] for name, kib in grown.items()]
    drawn = [Bar(name, median(kib), f"{median(kib):.1f} KiB", name == OURS) for name, kib in grown.items()]
    shares = [mine / theirs for mine, theirs in zip(grown[OURS], grown[REFERENCE], strict=True)]
    return Section(
        [table(["an idle legacy session", "KiB each, as the process grew", f"times {OURS}"], rows)],
        {"memory": bars("KiB for each idle session", drawn)},
        [_weight(shares)],
    )


def _weight(shares: list[float]) -> Target:
    what = f"memory of an idle session, of that of {REFERENCE}"
    return Target(what=what, wanted=WEIGHT, found=shares, at_most=True)


def shapes(found: Any) -> Section:
    """Of the same run as hosting."""
    rows, targets, names = [], [], list[str]()
    measured = {shape["name"]: shape["samples"] for shape in found.get("shapes", ())}
    for shape in SHAPES:
        samples, times, title = measured.get(shape.name, {}), list[float](), f"`{shape.name}`"
        if samples:
            names, times = list(samples), ratios(samples[REFERENCE], samples[OURS], "cpu")
            costs = [number(middle(runs, "cpu")) for runs in samples.values()]
            rows.append([title, *costs, spread(times), number(shape.wanted)])
        targets.append(Target(what=f"hosting: by CPU, times {REFERENCE} ({title})", wanted=shape.wanted, found=times))
    head = ["the same echo, written as", *(f"{name}, CPU us" for name in names), f"by CPU, times {REFERENCE}", "wanted"]
    return Section([table(head, rows)], targets=targets)


def websocket(found: Any) -> Section:
    """Of the same run as hosting."""
    rows, targets = [], []
    measured = {(one["way"], one["era"]): one["samples"] for one in found.get("websocket", ())}
    for era in ERAS:
        for way in WAYS:
            samples, title = measured.get((way.name, era), {}), f"{way.name}, {era}"
            costs = {name: [run["cpu"] for run in runs] for name, runs in samples.items()}
            if samples:
                floor = spread(costs[BY_HAND]) if BY_HAND in costs else ""
                rate = number(middle(samples[OURS], "rate"))
                rows.append([title, rate, spread(costs[OURS]), number(way.wanted), floor])
            what, cpu = f"hosting: CPU of a call ({title})", costs.get(OURS, [])
            targets.append(Target(what=what, wanted=way.wanted, found=cpu, at_most=True, unit=" us"))
    head = ["the same echo on one server", "calls/s", "CPU us", "wanted", f"{BY_HAND}, CPU us"]
    return Section([table(head, rows)], targets=targets)


def payload(found: Any) -> Section:
    blocks, targets = [], []
    for cell in found:
        samples, size = cell["samples"], cell["size"]
        title, rows = f"{cell['how']}, echo of {size:,} B", []
        for name, runs in samples.items():
            figures = [number(middle(runs, "rate")), number(middle(runs, "p99") / 1e3)]
            times = spread(ratios(samples[REFERENCE], runs, "cpu")) if REFERENCE in samples else ""
            rows.append([name, *figures, spread([run["cpu"] for run in runs]), times])
        blocks.append(table([title, "calls/s", "p99 ms", "CPU us", f"by CPU, times {REFERENCE}"], rows))
        if REFERENCE in samples:
            times_of_ours = ratios(samples[REFERENCE], samples[OURS], "cpu")
            what = f"payload: by CPU, times {REFERENCE} ({title})"
            targets.append(Target(what=what, wanted=FACTORS[size], found=times_of_ours))
        for name, most in MOST.items():
            if name in samples and size in most:
                cpu, what = [run["cpu"] for run in samples[name]], f"payload: CPU of a call ({title}: {name})"
                targets.append(Target(what=what, wanted=most[size], found=cpu, at_most=True, unit=" us"))
    return Section(blocks, targets=targets)
