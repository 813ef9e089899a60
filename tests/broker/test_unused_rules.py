"""Rules that name a tool which there is not: they guard nothing, and the log says so."""

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

import pytest
import structlog.testing
import trio
from trio.testing import MockClock

from callboard.actors.rules import AccessRules, Rule
from callboard.actors.server.new_rules import apply
from callboard.actors.server.parking import Parking
from callboard.actors.server.rule_check import SETTLED
from callboard.actors.unused_rules import KnownTools, rule_text, unused_patterns
from callboard.broker import Broker
from callboard.codecs.revisions import LATEST
from tests.broker.back import Back, tool
from tests.broker.front import backend, brokered
from tests.broker.rules_stage import ACME, SIDES, Side, made, stood

Logs = Sequence[MutableMapping[str, Any]]

WEATHER = KnownTools([("weather", "weather__slow"), ("weather", "weather__fast"), ("files", "files__read")])


@pytest.fixture
def logs() -> Iterator[Logs]:
    with structlog.testing.capture_logs() as found:
        yield found


def told(logs: Logs) -> list[tuple[str, str | None]]:
    return [(log["tool"], log["nearest"]) for log in logs if log["event"] == "rule_unused"]


@pytest.mark.parametrize(
    ("rule", "unused"),
    [
        (Rule(tools=["weather_slow"]), ["weather_slow"]),
        (Rule(tools=["weather__slow", "weather__fsat"]), ["weather__fsat"]),
        (Rule(tools=["wether__*", "files__*"]), ["wether__*"]),
        (Rule(tools=["*"]), []),
        (Rule(servers=["files"], tools=["weather__*"]), ["weather__*"]),
        (Rule(servers=["weath*"], tools=["weather__*"]), []),
        (Rule(servers=["weather"]), []),
        (Rule(prompts=["nothing"], resources=["no://thing"]), []),
    ],
    ids=lambda one: rule_text(one) if isinstance(one, Rule) else "",
)
def test_a_pattern_that_matches_no_tool_of_its_servers_is_unused(rule: Rule, unused: list[str]) -> None:
    assert [text for _, text in unused_patterns(AccessRules([rule]), WEATHER)] == unused


def test_nothing_is_said_of_a_rule_for_a_server_that_is_down() -> None:
    known = KnownTools(WEATHER.tools, ["web"])
    rules = AccessRules(
        [Rule(tools=["web__get"]), Rule(servers=["we*"], tools=["x"]), Rule(servers=["files"], tools=["y"])]
    )
    assert [text for _, text in unused_patterns(rules, known)] == ["y"]


@SIDES
async def test_a_mistyped_tool_is_a_warning_once(side: Side, logs: Logs, autojump_clock: MockClock) -> None:
    async with stood(side, made()) as host:
        for least in ("a", "b"):
            rules = [Rule(tools=["raed", "write"], only=ACME), Rule(methods=["*"], needs=[least])]
            await apply(host, AccessRules(rules))
            await trio.sleep(2 * SETTLED)
        [one] = [log for log in logs if log["event"] == "rule_unused"]
        assert (one["rule"], one["tool"], one["nearest"]) == ("tools=raed write", "raed", "read")
        assert one["log_level"] == "warning"


async def test_a_tool_that_its_server_takes_away_is_told(logs: Logs, autojump_clock: MockClock) -> None:
    server = Back(LATEST, tools=[tool("slow"), tool("other")])
    async with brokered(backend(server.ways, "weather", prefix=None)) as host:
        await apply(host, AccessRules([Rule(tools=["weather__slow"], deny=True)]))
        await trio.sleep(2 * SETTLED)
        assert not told(logs)
        server.tools = [tool("slower"), tool("other")]
        line = server.lines[0]
        for request_id in list(line.listens):
            await line.tell(
                "notifications/tools/list_changed", _meta={"io.modelcontextprotocol/subscriptionId": request_id}
            )
        await trio.sleep(1)
        assert told(logs) == [("weather__slow", "weather__slower")]


async def test_a_rule_is_told_as_soon_as_all_servers_are_up(logs: Logs, autojump_clock: MockClock) -> None:
    one, late = Back(LATEST, tools=[tool("slow")]), Back(LATEST, tools=[tool("fast")])
    late.is_down = True
    async with brokered(backend(one.ways, "one", prefix=None), backend(late.ways, "late", prefix=None)) as host:
        await apply(host, AccessRules([Rule(tools=["late__fast"], deny=True), Rule(tools=["late__slow"], deny=True)]))
        await trio.sleep(2 * SETTLED)
        assert not told(logs)
        late.is_down = False
        await trio.sleep(120)
        assert [name for name, _ in told(logs)] == ["late__slow"]


async def test_a_rule_for_a_server_that_is_added_with_it_is_no_warning(logs: Logs, autojump_clock: MockClock) -> None:
    one, more = Back(LATEST, tools=[tool("slow")]), Back(LATEST, tools=[tool("fast")])
    broker = Broker([backend(one.ways, "one", prefix=None)])
    async with broker.host(parking=Parking("broker")) as host:
        await apply(host, AccessRules([Rule(tools=["more__fast"], deny=True), Rule(tools=["more__fsat"], deny=True)]))
        await broker.reload([backend(one.ways, "one", prefix=None), backend(more.ways, "more", prefix=None)])
        await trio.sleep(2 * SETTLED)
        assert told(logs) == [("more__fsat", "more__fast")]
