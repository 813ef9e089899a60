"""From the figures of each benchmark to its section of the page. What a figure means is said here, and nowhere else."""

import statistics
from collections.abc import Mapping
from typing import Any, Final

from benchmarks import client, generator
from benchmarks.actors import LIFE
from benchmarks.broker import ADDED, FACTOR, FLAT, RATES
from benchmarks.broker_contenders import DIRECT, FASTMCP, MCP_PROXY
from benchmarks.broker_contenders import OURS as BROKER
from benchmarks.codec import TARGET as TENFOLD
from benchmarks.growth import BY_TURNS, IN_USE
from benchmarks.growth import SESSIONS as IN_TURN
from benchmarks.guarding import TARGETS as GUARDING
from benchmarks.listeners import CPU, KIB, SOCKETS
from benchmarks.listeners import MANY as IDLE
from benchmarks.listeners_many import GOAL_COUNT, GOAL_CPU, GOAL_GIB, GOAL_TOLD
from benchmarks.observing import TARGETS as OBSERVING
from benchmarks.plots import Bar, Line, bars, lines
from benchmarks.report_hosting import hosting, memory, payload, rates, shapes, websocket
from benchmarks.report_section import Maker, Section, Target, middle, number, ratios, spread, table
from benchmarks.workers import NODE_TARGETS as NODES
from benchmarks.workers import TARGETS as WORKERS

MANY: Final = 50
"""Backends with which a broker must still be as fast as with one."""
TWICE: Final = 2.0
"""What an actor may cost, times a bare task."""
OFF: Final = 0.10
"""How far `callboard bench` may be from wrk."""


def client_section(found: Any) -> Section:
    rows, drawn, targets = [], [], []
    for cell in found:
        samples = cell["samples"]
        times = ratios(samples[client.OFFICIAL], samples[client.OURS], "seconds")
        by_cpu = ratios(samples[client.OFFICIAL], samples[client.OURS], "cpu")
        for name, runs in samples.items():
            figures = [1 / middle(runs, "seconds"), middle(runs, "p50") * 1e3, middle(runs, "p99") * 1e3]
            mine = [spread(times), spread(by_cpu)] if name == client.OURS else ["1", "1"]
            cpu = number(middle(runs, "cpu") * 1e6)
            rows.append([f"{cell['title']}: {name}", *map(number, figures), cpu, *mine])
        drawn.append(Bar(cell["title"], statistics.median(times), f"{statistics.median(times):.1f} x", is_ours=True))
        what = f"client: calls/s, times {client.OFFICIAL} ({cell['title']}; by CPU {statistics.median(by_cpu):.1f})"
        targets.append(Target(what=what, wanted=client.TARGET, found=times))
    head = ["", "calls/s", "p50 ms", "p99 ms", "CPU us", f"x {client.OFFICIAL}", "by CPU"]
    title = f"Calls/s of callboard's client, times those of {client.OFFICIAL}"
    return Section([table(head, rows)], {"client": bars(title, drawn, mark=client.TARGET)}, targets)


def broker(found: Any) -> Section:
    blocks, plots, targets = [], {}, []
    for cell in found:
        samples, behind, connections = cell["samples"], cell["backends"], cell["connections"]
        many = f"{behind['count']} {behind['transport']} backend{'s' if behind['count'] > 1 else ''}"
        title = f"{many}, {cell['era']}, {connections} connection{'s' if connections > 1 else ''}"
        rows = []
        for name, runs in samples.items():
            figures = [middle(runs, "rate"), middle(runs, "p50") / 1e3, middle(runs, "p99") / 1e3, middle(runs, "cpu")]
            rows.append([name, *map(number, figures), spread(ratios(samples[BROKER], runs, "rate"))])
        blocks.append(table([title, "calls/s", "p50 ms", "p99 ms", "CPU us", "ours / theirs"], rows))
        if connections == 1:
            pairs = zip(samples[BROKER], samples[DIRECT], strict=True)
            added = [(ours["p50"] - direct["p50"]) / 1e3 for ours, direct in pairs]
            targets.append(
                Target(what=f"broker: added p50 ({title})", wanted=ADDED, found=added, at_most=True, unit=" ms")
            )
            continue
        name = f"broker-{behind['transport']}-{behind['count']}-{cell['era']}"
        plots[name] = rates(f"Calls/s through a proxy: {title}", samples, (BROKER,))
        if (cell["era"], connections, behind["count"]) == ("modern", 32, 1):
            found_rates = [run["rate"] for run in samples[BROKER]]
            what = f"broker: calls/s ({title})"
            targets.append(Target(what=what, wanted=RATES[behind["transport"]], found=found_rates))
        for other in (FASTMCP, MCP_PROXY):
            if other in samples:
                times = ratios(samples[BROKER], samples[other], "rate")
                targets.append(Target(what=f"broker: calls/s, times {other} ({title})", wanted=FACTOR, found=times))
    return Section(blocks, plots, targets)


def listeners(found: Any) -> Section:
    rows = [
        [
            f"{one['count']:,} {one['what']}",
            number(one["kib_each"]),
            f"{one['cpu_at_rest']:.2f} %",
            f"{one['heard_p50']:.3f}, {one['heard_p99']:.3f}, {one['heard_by_all']:.3f} s",
            f"{one['opening']:.2f} s",
        ]
        for one in found
    ]
    weights = [one["kib_each"] for one in found]
    target = Target(
        what="memory of an idle listener, the heaviest kind",
        wanted=KIB,
        found=[max(weights)],
        at_most=True,
        unit=" KiB",
    )
    idle = [one["cpu_at_rest"] for one in found if one["what"] == SOCKETS and one["count"] >= IDLE]
    what = f"CPU of {IDLE:,} idle WebSocket sessions, of a core"
    rest = Target(what=what, wanted=CPU, found=idle, at_most=True, unit=" %")
    head = ["who listens", "KiB each", "CPU at rest, of a core", "told at p50, p99, last", "opened in"]
    return Section([table(head, rows)], targets=[target, rest])


def crowd(found: Any) -> Section:
    count, is_judged = found["count"], found["count"] >= GOAL_COUNT
    told = [found[f"heard_{when}"] for when in ("first", "p50", "p99", "by_all")]
    fewest, most = found["least_descriptors"], found["most_descriptors"]
    rows = [
        ["memory of all processes", f"{found['pss_mib']:,.0f} MiB (sum of RSS: {found['resident_mib']:,.0f} MiB)"],
        ["of that for each peer, as the processes grew", f"{number(found['kib_each'])} KiB"],
        ["CPU at rest, of a core", f"{found['cpu_at_rest']:.2f} %"],
        ["told at first, p50, p99, last", ", ".join(f"{at:.3f}" for at in told) + " s"],
        ["the last in the worst of all publications", f"{found['heard_late']:.3f} s"],
        ["opened in", f"{found['opening']:.1f} s"],
        ["descriptors of a worker", f"{fewest:,} to {most:,}"],
    ]
    figures = {
        "memory of all processes": (GOAL_GIB, found["pss_mib"] / 1024, " GiB"),
        "CPU at rest, of a core": (GOAL_CPU, found["cpu_at_rest"], " %"),
        "one change told to all": (GOAL_TOLD, found["heard_by_all"], " s"),
    }
    targets = [
        Target(
            what=f"{GOAL_COUNT:,} idle peers: {what}",
            wanted=wanted,
            found=[figure] if is_judged else [],
            at_most=True,
            unit=unit,
        )
        for what, (wanted, figure, unit) in figures.items()
    ]
    return Section([table([f"{count:,} idle peers, {found['workers']} workers", ""], rows)], targets=targets)


def codec(found: Any) -> Section:
    rows = [
        [f"{frame}: {one['name']}", number(one["seconds"] * 1e6), _range(one)]
        for frame, figures in found.items()
        for one in figures
    ]
    targets = [
        Target(
            what=f"messages: time of {figures[-1]['name']}, times ours ({frame})",
            wanted=TENFOLD,
            found=_three(figures[-1]),
        )
        for frame, figures in found.items()
        if frame.startswith("40 kB")
    ]
    return Section([table(["decode, route, encode", "us", "times callboard"], rows)], targets=targets)


def _three(figure: Any) -> list[float]:
    """Lowest, median and highest: all that is kept of its rounds."""
    return [figure["ratio_low"], figure["ratio"], figure["ratio_high"]]


def _range(figure: Any) -> str:
    return f"{number(figure['ratio'])} ({number(figure['ratio_low'])} to {number(figure['ratio_high'])})"


def actors(found: Any) -> Section:
    rows = [
        [f"{what}: {one['name']}", number(one["seconds"] * 1e6), _range(one)]
        for what, figures in found["times"].items()
        for one in figures
    ]
    weights = [[name, number(kib)] for name, kib in found["idle_kib"].items()]
    life, what = found["times"].get(LIFE), "actors: spawn, ask and stop, times bare Trio"
    target = Target(what=what, wanted=TWICE, found=_three(life[-1]) if life else [], at_most=True)
    return Section([table(["", "us", "times bare Trio"], rows), table(["idle", "KiB each"], weights)], targets=[target])


def sessions(found: Any) -> Section:
    count, opened = found["sessions"], number(found["open_us"])
    rows = [["as the process grew", number(found["resident_kib"])], ["by Python", number(found["traced_kib"])]]
    head = [f"{count:,} idle sessions in memory, {opened} us to open each", "KiB each"]
    return Section([table(head, rows)])


def load(found: Any) -> Section:
    """`callboard bench` itself."""
    rows = []
    for way, runs in found.items():
        cost = middle(runs, "cpu")
        rows.append(
            [way, spread([run["rate"] for run in runs]), number(cost), number(1e6 / cost), number(middle(runs, "p99"))]
        )
    best = max(found.values(), key=lambda runs: middle(runs, "rate"))
    rates = [run["rate"] for run in best]
    head = ["to a trivial echo, from one core", "calls/s", "CPU us each", "a core could", "p99 ms"]
    what = "`callboard bench`: calls/s from one core"
    return Section([table(head, rows)], targets=[Target(what=what, wanted=generator.TARGET, found=rates)])


def agreement(found: Any) -> Section:
    rows, targets = [], []
    for field, name in (("rate", "calls/s"), ("p50", "p50"), ("p99", "p99")):
        pairs = [(one["wrk"][field], one["bench"][field]) for one in found["rounds"]]
        times = [bench / wrk for wrk, bench in pairs]
        rows.append([name, spread([wrk for wrk, _ in pairs]), spread([bench for _, bench in pairs]), spread(times)])
        off = [abs(share - 1) for share in times]
        targets.append(Target(what=f"`callboard bench`, off from wrk: {name}", wanted=OFF, found=off, at_most=True))
    head = [f"{found['server']}, {found['connections']} connections (us)", "wrk", "`callboard bench`", "bench / wrk"]
    return Section([table(head, rows)], targets=targets)


def workers(found: Any) -> Section:
    return _judged("workers", WORKERS, found, at_most=True)


def nodes(found: Any) -> Section:
    return _judged("nodes", NODES, found, at_most=True)


def observing(found: Any) -> Section:
    return _judged("metrics", OBSERVING, found, at_most=False)


def guarding(found: Any) -> Section:
    return _judged("guarded", GUARDING, found, at_most=True)


def _judged(name: str, wanted: Mapping[str, float], found: Any, *, at_most: bool) -> Section:
    """A row for each figure, and a target for those that have one."""
    rows = [[what, number(wanted[what]) if what in wanted else "", spread(figures)] for what, figures in found.items()]
    targets = [
        Target(what=f"{name}: {what}", wanted=wanted[what], found=figures, at_most=at_most)
        for what, figures in found.items()
        if what in wanted
    ]
    return Section([table(["", f"wanted, at {'most' if at_most else 'least'}", "found"], rows)], targets=targets)


def growth(found: Any) -> Section:
    blocks, idle, payload, flat, turns = [], list[Line](), list[Line](), list[float](), list[float]()
    for one in found:
        what, rows = one["what"], one["rows"]
        head = [what, "calls/s", "p99 ms", "CPU us", "of the first row's calls/s"]
        cells = []
        for row in rows:
            runs, shares = row["samples"], ratios(row["samples"], rows[0]["samples"], "rate")
            figures = [middle(runs, "rate"), middle(runs, "p99") / 1e3, middle(runs, "cpu")]
            cells.append([f"{row['size']:,} {one['unit']}", *map(number, figures), spread(shares)])
            if one["unit"] == "backends" and row["size"] == MANY:
                flat = shares
            if what == IN_USE and row["size"] == IN_TURN[-1]:
                turns = ratios(runs, rows[0]["samples"], "cpu")
        blocks += [table(head, cells)] if cells else []
        blocks += [f"{what}, {note.partition(': ')[0]}: `{note.partition(': ')[2]}`" for note in one["notes"]]
        if cells:
            points = [(float(row["size"]), middle(row["samples"], "rate")) for row in rows]
            (payload if one["unit"] == "B" else idle).append(Line(what.partition(":")[0], points))
    what = f"broker: calls/s with {MANY} backends, of those with 1"
    plots = {"growth": lines("Calls/s among many", idle, unit="calls/s, by how many there are")} if idle else {}
    if payload:
        plots["payload"] = lines("Calls/s by payload", payload, unit="calls/s, by bytes")
    by_turns = f"CPU of a call with {IN_TURN[-1]:,} sessions in use by turns, times one"
    targets = [
        Target(what=what, wanted=FLAT, found=flat),
        Target(what=by_turns, wanted=BY_TURNS, found=turns, at_most=True),
    ]
    return Section(blocks, plots, targets)


def stages(found: Any) -> Section:
    blocks = []
    for one in found:
        whole = sum(one["counted"].values()) or 1
        rows = [
            [name, f"{count / whole:.0%}", f"{count / whole * one['cpu']:.0f}"]
            for name, count in sorted(one["counted"].items(), key=lambda pair: -pair[1])
        ]
        rows.append(["all of a call", "100%", f"{one['cpu']:.0f}"])
        if (kernel := one["by_kernel"]) is not None:
            rows.append(["of that in the kernel", f"{kernel:.0%}", f"{kernel * one['cpu']:.0f}"])
        blocks.append(table([f"{one['name']} ({whole:,} samples)", "share", "us of CPU"], rows))
    return Section(blocks)


MAKERS: Final[dict[str, tuple[str, Maker]]] = {
    "hosting": ("hosting", hosting),
    "shapes": ("hosting", shapes),
    "websocket": ("hosting", websocket),
    "payload": ("payload", payload),
    "memory": ("hosting", memory),
    "client": ("client", client_section),
    "broker": ("broker", broker),
    "workers": ("workers", workers),
    "nodes": ("nodes", nodes),
    "observing": ("observing", observing),
    "guarding": ("guarding", guarding),
    "stages": ("stages", stages),
    "growth": ("growth", growth),
    "listeners": ("listeners", listeners),
    "crowd": ("crowd", crowd),
    "generator": ("generator", load),
    "agreement": ("agreement", agreement),
    "codec": ("codec", codec),
    "actors": ("actors", actors),
    "sessions": ("sessions", sessions),
}
"""Sections in their order: which benchmark each is made from, and by what."""
