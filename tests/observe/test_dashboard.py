"""The Grafana dashboard: every metric that it asks for is one that a broker tells."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import trio

from callboard import Broker, Server, connect
from callboard.broker.reload import Reloader
from callboard.config import read_configuration
from callboard.observe.metrics import merged, render
from callboard.observe.view import ServerView
from tests.broker.front import backend, ways_in
from tests.shared import ROOT

DASHBOARD: Any = runpy.run_path(str(ROOT / "docs" / "dashboard.py"))["dashboard"]()
NAME = re.compile(r"\b(?:callboard|mcp|process)_\w+")
LABEL = re.compile(r"by \(([^)]*)\)|(\w+)!?=\"")


async def test_every_metric_and_label_of_the_dashboard_is_told(tmp_path: Path) -> None:
    (tmp_path / "servers.json").write_text('{"mcpServers": {}}')
    server = Server("back")

    @server.tool
    async def echo(text: str) -> str:
        return text

    broker = Broker([backend(server)])
    with trio.fail_after(20):
        async with broker.host() as host:
            view = ServerView(host, broker)
            view.begin()
            reloader = Reloader(broker, read_configuration(tmp_path / "servers.json"))
            host.root.spawn(reloader, name="configuration", shutdown=0)
            async with connect(ways_in(host)) as client:
                await client.call("echo", text="x")
                await client.call("echo")
                view.journal.refuse("host")
                families = await merged([await view.families(), await view.families()])
                told = b"".join(await render(families)).decode()
    queries = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    samples = {line.split("{")[0].split(" ")[0] for line in told.splitlines() if not line.startswith("#")}
    declared = {family.name for family in families}
    labels = {label for family in families for sample in family.samples for label in sample.labels} | {"le"}
    for query in queries:
        for name in set(NAME.findall(query)) - labels:
            base = re.sub(r"_(bucket|count|sum)$", "", name)
            assert name in samples or base in declared, query
        for some, one in LABEL.findall(query):
            assert {word.strip() for word in (some or one).split(",")} <= labels | {"reason", "kind"}, query


def test_the_file_is_what_the_script_writes() -> None:
    assert json.loads((ROOT / "deploy" / "grafana-dashboard.json").read_text()) == DASHBOARD
