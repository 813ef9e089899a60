"""Figures of a run beside latencies, rates and errors: each has a name for scripts and a title for reports."""

import math
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import attrs

Unit: TypeAlias = Literal["", "s", "bytes", "cores", "/s"]


@attrs.frozen
class Figure:
    """How a figure is called on a screen, and what it is counted in."""

    title: str
    unit: Unit = ""
    profile: str = ""
    """The only one that has it."""


FIGURES: Final[Mapping[str, Figure]] = {
    "sessions_lost": Figure("sessions lost"),
    "sessions_reopened": Figure("sessions reopened"),
    "sessions_renewed": Figure("sessions renewed"),
    # Scripts.
    "scripts": Figure("scripts completed"),
    "cancelled": Figure("cancelled"),
    # Storms.
    "storms": Figure("storms", profile="storm"),
    "cancelled_per_second": Figure("cancelled/s", "/s", profile="storm"),
    "answered_before": Figure("answered before the cancel", profile="storm"),
    "late_answers": Figure("answers after the cancel", profile="storm"),
    "calm_p50": Figure("time to settle, p50", "s", profile="storm"),
    "calm_max": Figure("time to settle, max", "s", profile="storm"),
    # One publisher, and many subscribers.
    "published": Figure("published", profile="fanout"),
    "listeners": Figure("listeners", profile="fanout"),
    "lost_deliveries": Figure("deliveries lost", profile="fanout"),
    "extra_updates": Figure("unexpected updates", profile="fanout"),
    # Sessions that are left alone.
    "memory_before": Figure("server memory before", "bytes", profile="idle"),
    "memory_after": Figure("server memory with all sessions", "bytes", profile="idle"),
    "memory_each": Figure("server memory per session", "bytes", profile="idle"),
    "cpu_at_rest": Figure("server CPU when idle", "cores", profile="idle"),
    "opened_in": Figure("all sessions opened in", "s", profile="idle"),
    # Sessions that are kept apart.
    "rounds": Figure("rounds", profile="isolation"),
    "answers_checked": Figure("answers checked", profile="isolation"),
    "leaks": Figure("answers with another session's canary", profile="isolation"),
    "mixed_up": Figure("answers to another request", profile="isolation"),
    "missing_canaries": Figure("answers without their canary", profile="isolation"),
    "different_answers": Figure("answers that differ", profile="isolation"),
    # Processes that are killed.
    "kills": Figure("kills", profile="chaos"),
    "recovered": Figure("recovered", profile="chaos"),
    "recovery_p50": Figure("recovery, p50", "s", profile="chaos"),
    "recovery_max": Figure("recovery, max", "s", profile="chaos"),
    "requests_lost": Figure("requests lost", profile="chaos"),
}
"""In the order in which they are shown. All are numbers: times in seconds, memory in bytes."""


def written(value: float, unit: Unit) -> str:
    """As people read it."""
    match unit:
        case "s":
            return time(value)
        case "bytes":
            return f"{value / 2**20:,.2f} MiB" if abs(value) >= 2**20 else f"{value / 2**10:,.1f} KiB"
        case "cores":
            return f"{value:.1%} of a core"
        case "/s":
            return f"{value:,.1f}"
    return f"{value:,.0f}"


def time(seconds: float) -> str:
    """A time, as people read it; of nothing there is none."""
    if math.isnan(seconds):
        return "-"
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"


def percent(share: float) -> str:
    """A share of a hundred, as people read it: only all of them are 100, and only none are 0."""
    if share in (0.0, 100.0):
        return f"{share:.0f} %"
    if share >= 10:
        return f"{min(share, 99.9):.1f} %"
    return f"{share:.2g} %" if share >= 0.001 else "less than 0.001 %"
