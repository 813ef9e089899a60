"""What a run may show beside latencies, rates and errors: each figure has a name for scripts and one for people."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import attrs

Unit: TypeAlias = Literal["", "s", "bytes", "cores", "/s"]


@attrs.frozen
class Figure:
    """How a figure is called on a screen, and what it is counted in."""

    title: str
    unit: Unit = ""


FIGURES: Final[Mapping[str, Figure]] = {
    "sessions_lost": Figure("sessions lost"),
    "sessions_reopened": Figure("sessions reopened"),
    "sessions_renewed": Figure("sessions renewed"),
    # Scripts.
    "scripts": Figure("scripts played"),
    "cancelled": Figure("cancelled"),
    # Storms.
    "storms": Figure("storms"),
    "cancelled_per_second": Figure("cancelled/s", "/s"),
    "answered_before": Figure("answered before the cancel"),
    "late_answers": Figure("answers after the cancel"),
    "calm_p50": Figure("calm again, p50", "s"),
    "calm_max": Figure("calm again, max", "s"),
    # One who publishes, and many who listen.
    "published": Figure("published"),
    "listeners": Figure("listeners"),
    "lost_deliveries": Figure("deliveries lost"),
    "extra_updates": Figure("updates that nobody waited for"),
    # Sessions that are left alone.
    "memory_before": Figure("server memory before", "bytes"),
    "memory_after": Figure("server memory with all sessions", "bytes"),
    "memory_each": Figure("server memory for each session", "bytes"),
    "cpu_at_rest": Figure("server CPU at rest", "cores"),
    "opened_in": Figure("all sessions opened in", "s"),
    # Processes that are killed.
    "kills": Figure("kills"),
    "recovered": Figure("recovered"),
    "recovery_p50": Figure("recovery, p50", "s"),
    "recovery_max": Figure("recovery, max", "s"),
    "requests_lost": Figure("requests lost"),
}
"""In the order in which they are shown. All are numbers: times in seconds, memory in bytes."""
