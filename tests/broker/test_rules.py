"""Rules before a hosted server and a broker, in both eras: what is hidden looks unknown, and all else is the same."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.actors.broker.policy import BackendSettings
from callboard.actors.rules import AccessRules, Condition, Rule
from callboard.client.routes import TransportRoute, TransportRoutes
from callboard.codecs.caller import TRUSTED, Caller
from callboard.codecs.revisions import LATEST, Revision
from callboard.errors import BACKEND_GONE, DEFINITION_CHANGED, INSUFFICIENT_SCOPE, CannotConnect
from callboard.server import Server
from callboard.server.context import Context
from callboard.testing import Peer, Refusal
from tests.broker.front import backend, brokered, peer
from tests.broker.rules_stage import (
    ACME,
    ALICE,
    BOB,
    ERAS,
    OLDER,
    SIDES,
    TOOLS,
    USES,
    Side,
    made,
    names,
    outcome,
    raw_answer,
    stood,
)

# What is hidden.


@SIDES
@ERAS
@pytest.mark.parametrize("use", USES)
async def test_hidden_and_unknown_are_answered_with_the_same_bytes(side: Side, revision: Revision, use: str) -> None:
    hides = Rule(tools=["wr?te"], prompts=["wr?te"], resources=["back://wr?te*"], only=ACME)
    async with stood(side, made(), AccessRules([hides])) as host:
        async with peer(host, revision, principal=BOB) as client:
            method, params = USES[use]("write")
            hidden = await raw_answer(client, method, params)
            method, params = USES[use]("wrxte")
            unknown = await raw_answer(client, method, params)
            assert b'"error"' in hidden
            assert hidden.replace(b"write", b"wrxte") == unknown
            assert await outcome(client, *USES[use]("read")) == "fine"
        async with peer(host, revision, principal=ALICE) as client:
            assert await outcome(client, *USES[use]("write")) == "fine"


@SIDES
@ERAS
async def test_lists_leave_out_what_is_hidden(side: Side, revision: Revision) -> None:
    hides = Rule(tools=["wr?te"], prompts=["wr?te"], resources=["back://wr?te*"], only=ACME)
    async with stood(side, made(), AccessRules([hides])) as host:
        async with peer(host, revision, principal=BOB) as client:
            assert await names(client, "tools") == ["read"]
            assert await names(client, "prompts") == ["read"]
            assert await names(client, "resources") == ["back://read"]
            assert await names(client, "templates") == ["back://read/{part}"]
        async with peer(host, revision, principal=ALICE) as client:
            assert await names(client, "tools") == list(TOOLS)


RULES = st.builds(
    lambda tools, prompts, resources, conditions: Rule(
        tools=tools, prompts=prompts, resources=[f"back://{one}" for one in resources] or ["none:"], **conditions
    ),
    st.lists(st.sampled_from([*TOOLS, "wr*", "*"]), max_size=2),
    st.lists(st.sampled_from([*TOOLS, "wr*", "*"]), max_size=2),
    st.lists(st.sampled_from([*TOOLS, "wr*", "*"]), max_size=2),
    st.sampled_from(
        [
            {"needs": ["a"]},
            {"needs": ["a", "b"]},
            {"needs": ["c"]},
            {"only": ACME},
            {"deny": ACME},
            {"deny": True},
            {"only": (Condition(scope=("a",)),), "needs": ["b"]},
            {},
        ]
    ),
)
METHODS = st.builds(
    lambda method, conditions: Rule(methods=[method], **conditions),
    st.sampled_from(["tools/call", "prompts/get", "resources/read"]),
    st.sampled_from([{"needs": ["a"]}, {"deny": ACME}]),
)


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(["hosted", "brokered"]),
    st.sampled_from([LATEST, OLDER]),
    st.lists(
        st.tuples(st.lists(RULES | METHODS, max_size=4), st.sampled_from(["open", "deny"])), min_size=1, max_size=5
    ),
)
def test_lists_and_calls_agree_for_every_name(
    side: Side, revision: Revision, sets: list[tuple[list[Rule], Any]]
) -> None:
    async def main() -> None:
        async with stood(side, made()) as host:
            for rules, default in sets:
                host.rules = AccessRules(rules, {"c": ["a"]}, default)
                for caller in (ALICE, BOB, Caller(principal="carol", scopes=["c", "b"])):
                    async with peer(host, revision, principal=caller) as client:
                        await agree(client)

    async def agree(client: Peer) -> None:
        for kind, list_name in (("tool", "tools"), ("prompt", "prompts"), ("resource", "resources")):
            listed = await names(client, list_name)
            for name in TOOLS:
                found = await outcome(client, *USES[kind](name))
                shown = f"back://{name}" if kind == "resource" else name
                assert (shown in listed) == (not found.startswith("unknown")), (kind, name, found)

    trio.run(main)


@SIDES
async def test_a_hidden_method_is_not_supported(side: Side) -> None:
    rules = AccessRules([Rule(methods=["prompts/*"], only=ACME)])
    async with stood(side, made(), rules) as host, peer(host, LATEST, principal=BOB) as client:
        for method in ("prompts/list", "prompts/get"):
            with pytest.raises(Refusal, match=f"{method} is not supported by this server") as caught:
                await client.request(method, name="read")
            assert caught.value.code == -32601
        assert await names(client, "tools") == list(TOOLS)


# Scopes.


@SIDES
@ERAS
@pytest.mark.parametrize("use", USES)
async def test_missing_scopes_are_named_together_before_anything_runs(side: Side, revision: Revision, use: str) -> None:
    method, params = USES[use]("write")
    rules = AccessRules(
        [
            Rule(methods=[method], needs=["method"]),
            Rule(tools=["write"], prompts=["write"], resources=["back://write*"], needs=["entry", "a"]),
        ]
    )
    async with stood(side, made(), rules) as host:
        async with peer(host, revision, principal=ALICE) as client:
            with pytest.raises(Refusal) as caught:
                await client.request(method, **params)
            assert caught.value.code == INSUFFICIENT_SCOPE
            assert caught.value.data == {"requiredScopes": ["a", "entry", "method"]}
            if side == "hosted" or use not in ("resource", "template"):  # which resources there are, backends know
                assert (await outcome(client, *USES[use]("nowhere"))).startswith("unknown")
            assert "write" in await names(client, "tools")
        async with peer(host, revision, principal=Caller(scopes=["a", "entry", "method"])) as client:
            assert await outcome(client, method, params) == "fine"


@SIDES
async def test_hide_leaves_out_of_lists_what_scopes_would_open(side: Side) -> None:
    rules = AccessRules([Rule(tools=["write"], needs=["x"], hide=True)])
    async with stood(side, made(), rules) as host, peer(host, principal=ALICE) as client:
        assert await names(client, "tools") == ["read", "wrote"]
        assert await outcome(client, *USES["tool"]("write")) == "needs"


async def test_no_rule_is_for_a_peer_without_a_transport_that_knows_callers() -> None:
    server = made()

    @server.tool(scopes=["x"])
    async def guarded(ctx: Context) -> str:
        ctx.require_scopes("y")
        return ctx.caller.principal

    rules = AccessRules([Rule(servers=["*"], deny=True)], default="deny")
    async with stood("hosted", server, rules) as host, peer(host, principal=TRUSTED) as client:
        assert await names(client, "tools") == [*TOOLS, "guarded"]
        assert (await client.call("guarded"))["content"][0]["text"] == "anonymous"


# Pages.


@SIDES
async def test_pages_are_whole_and_hold_what_is_visible_alone(side: Side) -> None:
    server = Server("back")
    for number in range(900):

        @server.tool(name=f"{'secret' if number % 3 else 'open'}-{number:03}")
        async def tool() -> str:
            return ""

    async with stood(side, server, AccessRules([Rule(tools=["secret*"], only=ACME)])) as host:
        async with peer(host, principal=BOB) as client:
            found = await names(client, "tools")
            assert found == [f"open-{number:03}" for number in range(0, 900, 3)]
            first = await client.request("tools/list")
            assert len(first["tools"]) in (100, 250)
        async with peer(host, principal=ALICE) as client:
            assert len(await names(client, "tools")) == 900
            page = await client.request("tools/list")
        # A cursor at an entry that is hidden from another caller, or since: the list goes on behind it.
        last = int(page["tools"][-1]["name"][-3:])
        async with peer(host, principal=BOB) as client:
            rest = await client.request("tools/list", cursor=page["nextCursor"])
            assert rest["tools"][0]["name"] == f"open-{(last // 3 + 1) * 3:03}"


@SIDES
async def test_what_depends_on_the_caller_is_private_to_caches(side: Side) -> None:
    async with stood(side, made()) as host:
        async with peer(host, principal=BOB) as client:
            listed, read = await client.request("tools/list"), await client.request("resources/read", uri="back://read")
            assert read["cacheScope"] == "public"
            assert listed["cacheScope"] == ("public" if side == "hosted" else "private")
        host.rules = AccessRules([Rule(resources=["back://read"], needs=["b"])])
        async with peer(host, principal=BOB) as client:
            listed, read = await client.request("tools/list"), await client.request("resources/read", uri="back://read")
            assert listed["cacheScope"] == read["cacheScope"] == "private"
            assert (await client.request("resources/read", uri="back://write"))["cacheScope"] == "public"


# A broker's own.


async def test_a_hidden_server_leaves_no_trace() -> None:
    hidden, seen = made(), made()
    hidden.instructions = "A secret."
    rules = AccessRules([Rule(servers=["hidden"], only=ACME)])
    specs = [
        backend(hidden, "hidden", BackendSettings()),
        backend(seen, "seen", BackendSettings()),
        backend(Server("gone"), "gone", BackendSettings()),
    ]
    async with brokered(*specs) as host:
        host.rules = rules
        async with peer(host, OLDER, principal=BOB) as client:
            assert "secret" not in str(client.agreed)
            assert "hidden" not in str(client.agreed)
            assert "hidden" not in str([await names(client, kind) for kind in ("tools", "prompts", "resources")])
            # Both have this resource: without the one that is hidden there is nothing to choose from.
            read = await client.request("resources/read", uri="back://read")
            assert read["contents"][0]["text"] == "read was read"
            address = "callboard://hidden/back%3A%2F%2Fread"
            with pytest.raises(Refusal, match="Resource not found"):
                await client.request("resources/read", uri=address)
        async with peer(host, principal=BOB) as client:
            assert "secret" not in str(await client.request("server/discover"))
        async with peer(host, OLDER, principal=ALICE) as client:
            assert "secret" in str(client.agreed)
            with pytest.raises(Refusal, match="several servers"):
                await client.request("resources/read", uri="back://read")


async def test_a_hidden_tool_that_is_withheld_looks_unknown() -> None:
    async with brokered(backend(made(), "back", pin=True)) as host:
        await trio.testing.wait_all_tasks_blocked()
        offer: Any = host.offer
        offer.catalogue.approve = lambda _, digests: dict.fromkeys(digests, "another")
        offer.catalogue.review()
        host.rules = AccessRules([Rule(tools=["wr?te"], only=ACME)])
        async with peer(host, principal=BOB) as client:
            hidden, unknown = (
                await outcome(client, *USES["tool"]("write")),
                await outcome(client, *USES["tool"]("wrxte")),
            )
            assert hidden == unknown == "unknown -32602"
            assert await outcome(client, *USES["tool"]("read")) == f"unknown {DEFINITION_CHANGED}"
        async with peer(host, principal=ALICE) as client:
            assert await outcome(client, *USES["tool"]("write")) == f"unknown {DEFINITION_CHANGED}"


async def test_a_hidden_server_that_is_down_is_not_told_of() -> None:
    why = ["it is down"]

    @asynccontextmanager
    async def fails() -> AsyncIterator[Any]:
        if why:
            raise CannotConnect(why[0])
        yield

    down = TransportRoutes(None, (TransportRoute("memory", fails),))
    async with brokered(backend(down, "pay", BackendSettings()), backend(made(), "back", BackendSettings())) as host:
        host.rules = AccessRules([Rule(servers=["pay"], only=ACME)])
        for kind in ("tool", "prompt"):
            async with peer(host, principal=BOB) as client:
                hidden, unknown = [await outcome(client, *USES[kind](f"{name}__x")) for name in ("pay", "pax")]
                assert hidden == unknown == "unknown -32602"
            async with peer(host, principal=ALICE) as client:
                assert await outcome(client, *USES[kind]("pay__x")) == f"unknown {BACKEND_GONE}"


async def test_lists_are_written_once_for_callers_that_see_the_same() -> None:
    rules = AccessRules([Rule(tools=["write"], only=ACME)])
    async with stood("brokered", made(), rules) as host:
        catalogue: Any = host.offer
        for at in range(50):
            async with peer(host, principal=Caller(principal=f"p{at}", tenant="x" if at % 2 else "acme")) as client:
                assert len(await names(client, "tools")) == (2 if at % 2 else 3)
        assert len(catalogue.catalogue._pages) == 2
