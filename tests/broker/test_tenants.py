"""Tenants and quotas before a hosted server and a broker: nobody gets what is another's, or more than a share."""

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.actors.quotas import Quotas, QuotaSettings
from callboard.actors.rate import Rate
from callboard.actors.rules import AccessRules, Condition, Rule
from callboard.actors.server.host import Host
from callboard.codecs.caller import Caller
from callboard.codecs.revisions import LATEST, Revision
from callboard.errors import OVERLOADED
from callboard.server import Server
from callboard.testing import Peer, Refusal
from tests.broker.front import peer
from tests.broker.rules_stage import ALICE, BOB, ERAS, OLDER, SIDES, USES, Side, made, outcome, raw_answer, stood

# Tenants.


@settings(max_examples=10, deadline=None)
@given(
    st.sampled_from(["hosted", "brokered"]),
    st.sampled_from([LATEST, OLDER]),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.sampled_from(list(USES))), min_size=20, max_size=60),
)
def test_no_tenant_gets_a_byte_of_another(side: Side, revision: Revision, asked: list[tuple[int, int, str]]) -> None:
    tenants = [f"canary{number}canary" for number in range(5)]
    server = Server("back", cache_scope="public", ttl=60)

    def add(tenant: str) -> None:
        @server.tool(name=f"tool-{tenant}")
        async def tool() -> str:
            return f"of {tenant}"

        @server.prompt(name=f"tool-{tenant}")
        async def prompt(word: str = "") -> str:
            return f"of {tenant}"

        @server.completion(f"tool-{tenant}", "word")
        async def words(value: str) -> list[str]:
            return [f"of {tenant}"]

        @server.resource(f"back://tool-{tenant}", cache_scope="public", ttl=60)
        async def resource() -> str:
            return f"of {tenant}"

        @server.resource(f"back://tool-{tenant}/{{part}}")
        async def template(part: str) -> str:
            return f"of {tenant}"

    for tenant in tenants:
        add(tenant)
    rules = AccessRules(
        [
            Rule(
                tools=[f"*{tenant}*"],
                prompts=[f"*{tenant}*"],
                resources=[f"back://*{tenant}*"],
                only=(Condition(tenant=(tenant,)),),
            )
            for tenant in tenants
        ]
    )

    async def main() -> None:
        async with stood(side, server, rules) as host:
            clients = []
            async with trio.open_nursery() as nursery:
                for number, tenant in enumerate(tenants):
                    caller = Caller(principal=f"p{number % 2}", tenant=tenant)
                    clients.append(await nursery.start(hold, host, caller))
                for who, whose, use in asked:
                    await ask(clients[who], tenants[who], tenants[whose], use)
                nursery.cancel_scope.cancel()

    async def hold(host: Host, caller: Caller, task_status: trio.TaskStatus[Peer]) -> None:
        async with peer(host, revision, principal=caller) as client:
            task_status.started(client)
            await trio.sleep_forever()

    async def ask(client: Peer, own: str, whose: str, use: str) -> None:
        method, params = USES[use](f"tool-{whose}")
        frames = [await raw_answer(client, method, params)]
        frames += [
            await raw_answer(client, one, {})
            for one in ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
        ]
        if own == whose:
            assert own.encode() in frames[0] or use == "template completion"
        else:  # what the client said itself comes back in an error
            frames[0] = frames[0].replace(f"tool-{whose}".encode(), b"")
        for other in tenants:
            assert other == own or not any(other.encode() in frame for frame in frames)
        for frame in frames[1:]:
            assert own.encode() in frame
            assert b'"public"' not in frame

    trio.run(main)


# Quotas.


@SIDES
@ERAS
async def test_a_quota_refuses_with_the_seconds_to_wait(
    side: Side, revision: Revision, autojump_clock: trio.testing.MockClock
) -> None:
    async with (
        stood(side, made()) as host,
        peer(host, revision, principal=BOB) as client,
        peer(host, revision, principal=ALICE) as other,
    ):
        host.quotas = Quotas(QuotaSettings(principal=Rate(2, 10), tools={"wr*": Rate(1, 100)}))
        assert [await outcome(client, *USES["tool"]("read")) for _ in range(2)] == ["fine", "fine"]
        with pytest.raises(Refusal, match="quota of this principal: more than 2 in 10 s") as caught:
            await client.request("tools/list")
        assert caught.value.code == OVERLOADED
        assert caught.value.data == {"retryAfter": 3}
        assert await outcome(other, *USES["tool"]("write")) == "fine"
        await trio.sleep(3)
        with pytest.raises(Refusal, match="quota of this tool"):
            await client.request("tools/call", name="wrote", arguments={})
        assert await outcome(client, *USES["tool"]("read")) == "fine"
