"""The tree as values and as text."""

from collections.abc import Mapping

import attrs
import trio
from trio.testing import MockClock

from callboard.supervisor import Fact, Snapshot, SupervisorSpec, open_tree, render
from tests.supervisor.players import STEADY, Add, Crash, Hang, History, Player, player


@attrs.define(eq=False)
class Parked(Player):
    def facts(self) -> Mapping[str, Fact]:
        return {"state": "parked", "method": "tools/call", "round": 2}


async def test_a_tree_says_everything_about_everybody(autojump_clock: MockClock) -> None:
    spec = SupervisorSpec("broker", children=(player("p", History()), SupervisorSpec("requests")), backoff=STEADY)
    async with open_tree(spec) as root:
        await root.child("p").send(Crash())
        await trio.sleep(2)
        request = root.supervisor_of("requests").spawn(Parked(), name="r-1")
        for message in (Hang(), Add(1), Add(2)):
            await request.send(message)
        await trio.sleep(3)
        assert root.tree() == Snapshot(
            name="broker",
            path="broker",
            kind="Supervisor",
            state="running",
            age=5.0,
            facts={"strategy": "one_for_one"},
            children=(
                Snapshot(
                    name="p",
                    path="broker/p",
                    kind="Player",
                    state="running",
                    age=4.9,
                    mailbox_size=64,
                    handled=1,
                    restarts=1,
                    last_failure="Boom: p",
                ),
                Snapshot(
                    name="requests",
                    path="broker/requests",
                    kind="Supervisor",
                    state="running",
                    age=5.0,
                    facts={"strategy": "one_for_one"},
                    children=(
                        Snapshot(
                            name="r-1",
                            path="broker/requests/r-1",
                            kind="Parked",
                            state="parked",
                            age=3.0,
                            mailbox_depth=2,
                            mailbox_size=64,
                            handled=1,
                            facts={"method": "tools/call", "round": 2},
                        ),
                    ),
                ),
            ),
        )
        assert [node.name for node in root.tree().walk()] == ["broker", "p", "requests", "r-1"]
        assert root.tree().find("broker/nobody") is None
        assert render(root.tree()).splitlines() == [
            "broker Supervisor running 5.0s strategy=one_for_one",
            "├─ p Player running 4.9s 0/64 handled=1 restarts=1 last_failure='Boom: p'",
            "└─ requests Supervisor running 5.0s strategy=one_for_one",
            "   └─ r-1 Parked parked 3.0s 2/64 handled=1 method=tools/call round=2",
        ]
        request.kill()


async def test_one_that_is_stopping_says_so_whatever_its_facts_say(autojump_clock: MockClock) -> None:
    async with open_tree(SupervisorSpec("top")) as root:
        address = root.spawn(Parked(linger=1), name="p")
        await trio.sleep(1)
        address.begin_stop()
        assert root.tree().children[0].state == "stopping"
        assert root.tree().children[0].facts == {"method": "tools/call", "round": 2}
