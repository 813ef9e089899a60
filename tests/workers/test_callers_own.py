"""What of a caller goes to a backend that workers share: the keeper is told who calls, with claims and token."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trio

from callboard.codecs.caller import Caller
from callboard.codecs.caller_template import CallerField
from callboard.config.model import PersonalCommand
from tests.broker.callers import Dump, calling, dumping, exchanged, spec
from tests.broker.front import texts
from tests.broker.test_callers_own import Exchanger
from tests.oauth.house import open_house
from tests.workers.kept_stage import sharing


async def test_the_keeper_exchanges_the_token_of_the_caller() -> None:
    giver, dump = Exchanger(), Dump()
    async with open_house(giver.house), open_house(dump.house):
        async with sharing(exchanged(dump.url, giver.house.url), within=20) as shared:
            for host in shared.hosts:
                for name in ("alice", "bob"):
                    async with calling(host, Caller(principal=name, token=f"token-of-{name}")) as client:
                        await client.request("tools/call", name="look", arguments={"who": name})
        shown = [(call.json["params"]["arguments"]["who"], call.header("authorization") or "") for call in dump.calls()]
    assert len(shown) == 4
    assert [giver.given[header.removeprefix("Bearer ")] for _, header in shown] == [
        f"token-of-{who}" for who, _ in shown
    ]
    assert len(giver.exchanges()) == 2  # once for all workers


async def test_the_keeper_names_the_caller_to_a_program(tmp_path: Path) -> None:
    plain, who = dumping(tmp_path / "dump"), {"WHO": (CallerField("claim:email"),)}
    templates: Mapping[str, Any] = who
    command = PersonalCommand(args=plain.args, env=plain.env, templates=templates)
    with trio.fail_after(20):
        async with sharing(spec(command), within=20) as shared:
            for host in shared.hosts:
                for name in ("alice", "bob"):
                    async with calling(host, Caller(principal=name, claims={"email": name})) as client:
                        assert texts([await client.request("tools/call", name="look", arguments={})]) == [name]
