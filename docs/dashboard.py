"""Writes the Grafana dashboard of callboard's metrics: `python docs/dashboard.py > deploy/grafana-dashboard.json`."""

import json
from typing import Any, Final

SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
FRONT: Final = "mcp_server_operation_duration_seconds"
BACK: Final = "mcp_client_operation_duration_seconds"
RATE: Final = "[$__rate_interval]"

PANELS: Final[tuple[tuple[str, str, str, tuple[tuple[str, str], ...]], ...]] = (
    (
        "Requests",
        "reqps",
        "timeseries",
        ((f"sum by (mcp_method_name) (rate({FRONT}_count{RATE}))", "{{mcp_method_name}}"),),
    ),
    (
        "Errors, by type",
        "reqps",
        "timeseries",
        ((f'sum by (error_type) (rate({FRONT}_count{{error_type!=""}}{RATE}))', "{{error_type}}"),),
    ),
    (
        "Latency of requests",
        "s",
        "timeseries",
        (
            (f"histogram_quantile(0.5, sum by (le) (rate({FRONT}_bucket{RATE})))", "p50"),
            (f"histogram_quantile(0.99, sum by (le) (rate({FRONT}_bucket{RATE})))", "p99"),
        ),
    ),
    (
        "p99 by server",
        "s",
        "timeseries",
        ((f"histogram_quantile(0.99, sum by (le, server) (rate({BACK}_bucket{RATE})))", "{{server}}"),),
    ),
    (
        "What callboard adds, p99",
        "s",
        "timeseries",
        ((f"histogram_quantile(0.99, sum by (le) (rate(callboard_overhead_seconds_bucket{RATE})))", "p99"),),
    ),
    ("Servers", "none", "state-timeline", (("callboard_backend_up", "{{server}}"),)),
    (
        "Restarts of servers",
        "none",
        "timeseries",
        (("sum by (server) (increase(callboard_backend_restarts_total[5m]))", "{{server}}"),),
    ),
    (
        "In flight, parked, subscriptions",
        "none",
        "timeseries",
        (
            ("sum(callboard_in_flight)", "in flight"),
            ("sum(callboard_parked)", "parked"),
            ("sum(callboard_subscriptions)", "subscriptions"),
        ),
    ),
    (
        "Clients",
        "none",
        "timeseries",
        (("sum by (transport) (callboard_sessions)", "{{transport}}"), ("sum(callboard_connections)", "connections")),
    ),
    (
        "Refused, by reason",
        "reqps",
        "timeseries",
        ((f"sum by (reason) (rate(callboard_refused_total{RATE}))", "{{reason}}"),),
    ),
    (
        "Delay of the event loop, p99",
        "s",
        "timeseries",
        ((f"histogram_quantile(0.99, sum by (le) (rate(callboard_loop_lag_seconds_bucket{RATE})))", "p99"),),
    ),
    (
        "Fullest mailbox, by kind of actor",
        "none",
        "timeseries",
        (("max by (kind) (callboard_mailbox_depth_max)", "{{kind}}"),),
    ),
    (
        "Restarts of actors, dead letters",
        "none",
        "timeseries",
        (
            ("sum by (kind) (increase(callboard_actor_restarts_total[5m]))", "restarts of {{kind}}"),
            ("sum by (reason) (increase(callboard_dead_letters_total[5m]))", "dead letters: {{reason}}"),
        ),
    ),
    ("Actors, by kind", "none", "timeseries", (("sum by (kind) (callboard_actors)", "{{kind}}"),)),
    (
        "Changes of the configuration",
        "none",
        "timeseries",
        (("sum by (outcome) (increase(callboard_config_reloads_total[5m]))", "{{outcome}}"),),
    ),
    ("Memory", "bytes", "timeseries", (("sum(process_resident_memory_bytes)", "callboard"),)),
    ("CPU", "percentunit", "timeseries", ((f"sum(rate(process_cpu_seconds_total{RATE}))", "callboard"),)),
)
"""Title, unit, kind of panel, and its queries with their legends."""


def panel(number: int, title: str, unit: str, kind: str, queries: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    return {
        "id": number + 1,
        "title": title,
        "type": kind,
        "datasource": SOURCE,
        "gridPos": {"h": 8, "w": 8, "x": 8 * (number % 3), "y": 8 * (number // 3)},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(65 + index), "datasource": SOURCE, "expr": query, "legendFormat": legend}
            for index, (query, legend) in enumerate(queries)
        ],
    }


def dashboard() -> dict[str, Any]:
    return {
        "title": "callboard",
        "uid": "callboard",
        "tags": ["mcp"],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [{"name": "source", "type": "datasource", "query": "prometheus", "label": "Source"}]},
        "panels": [panel(number, *one) for number, one in enumerate(PANELS)],
    }


if __name__ == "__main__":
    print(json.dumps(dashboard(), indent=2))  # noqa: T201 -- it is meant to be redirected
