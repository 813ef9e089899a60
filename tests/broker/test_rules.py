"""Rules before a hosted server and a broker, in both eras: what is hidden looks unknown, and all else is the same."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

import attrs
import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.actors.broker.policy import BackendSettings
from callboard.actors.quotas import Quotas, QuotaSettings
from callboard.actors.rate import Rate
from callboard.actors.rules import AccessRules, Condition, Rule
from callboard.actors.server.host import Host
from callboard.actors.server.new_rules import apply
from callboard.actors.server.parking import Parking
from callboard.actors.server.session import Session
from callboard.actors.server.session_tree import open_session
from callboard.client.routes import TransportRoute, TransportRoutes
from callboard.codecs.caller import TRUSTED, Caller
from callboard.codecs.revisions import LATEST, LEGACY, Revision
from callboard.errors import BACKEND_GONE, DEFINITION_CHANGED, INSUFFICIENT_SCOPE, OVERLOADED, CannotConnect
from callboard.server import Server
from callboard.server.context import Context
from callboard.testing import Peer, Refusal
from callboard.transports.memory import memory_pair
from tests.broker.front import backend, brokered, peer

OLDER = max(LEGACY)
ERAS = pytest.mark.parametrize("revision", [LATEST, OLDER])
SIDES = pytest.mark.parametrize("side", ["hosted", "brokered"])
Side = Literal["hosted", "brokered"]

ALICE = Caller(principal="alice", tenant="acme", scopes=["a"])
BOB = Caller(principal="bob", tenant="other", scopes=["b"])
ACME = (Condition(tenant=("acme",)),)

TOOLS = ("read", "write", "wrote")


def made() -> Server:
    server = Server("back", instructions="Be kind.", cache_scope="public", ttl=60)

    def add(name: str) -> None:
        @server.tool(name=name)
        async def tool(ctx: Context) -> str:
            return f"{name} ran"

        @server.prompt(name=name)
        async def prompt(word: str = "") -> str:
            return f"{name} said"

        @server.completion(name, "word")
        async def words(value: str) -> list[str]:
            return [f"{name}-word"]

        @server.resource(f"back://{name}", cache_scope="public", ttl=60)
        async def resource() -> str:
            return f"{name} was read"

        @server.resource(f"back://{name}/{{part}}")
        async def template(part: str) -> str:
            return f"{part} of {name}"

        @server.completion(f"back://{name}/{{part}}", "part")
        async def parts(value: str) -> list[str]:
            return [f"{name}-part"]

    for name in TOOLS:
        add(name)
    return server


@asynccontextmanager
async def stood(side: Side, server: Server, rules: AccessRules | None = None) -> AsyncIterator[Host]:
    if side == "brokered":
        async with brokered(backend(server, "back", trusted=True)) as host:
            await trio.testing.wait_all_tasks_blocked()
            host.rules = rules
            yield host
    else:
        async with server.host(parking=Parking("back")) as host:
            host.rules = rules
            yield host


async def names(client: Peer, kind: str) -> list[str]:
    """All pages of a list."""
    method, member, key = {
        "tools": ("tools/list", "tools", "name"),
        "prompts": ("prompts/list", "prompts", "name"),
        "resources": ("resources/list", "resources", "uri"),
        "templates": ("resources/templates/list", "resourceTemplates", "uriTemplate"),
    }[kind]
    found: list[str] = []
    more: dict[str, Any] = {}
    while True:
        page = await client.request(method, **more)
        found += [one[key] for one in page[member]]
        if "nextCursor" not in page:
            return found
        more = {"cursor": page["nextCursor"]}


USES: Mapping[str, Any] = {
    "tool": lambda name: ("tools/call", {"name": name, "arguments": {}}),
    "prompt": lambda name: ("prompts/get", {"name": name}),
    "resource": lambda name: ("resources/read", {"uri": f"back://{name}"}),
    "template": lambda name: ("resources/read", {"uri": f"back://{name}/x"}),
    "completion": lambda name: (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": "word", "value": ""}},
    ),
    "template completion": lambda name: (
        "completion/complete",
        {
            "ref": {"type": "ref/resource", "uri": f"back://{name}/{{part}}"},
            "argument": {"name": "part", "value": ""},
        },
    ),
}


async def raw_answer(client: Peer, method: str, params: dict[str, Any]) -> bytes:
    """The frame that answers a request, without its id."""
    number = await client.begin(method, **params)
    while True:
        frame = bytes(await client.connection.receive())
        if msgspec.json.decode(frame).get("id") == number:
            return frame.replace(b'"id":%d' % number, b'"id":0')


async def outcome(client: Peer, method: str, params: dict[str, Any]) -> str:
    try:
        await client.request(method, **params)
    except Refusal as refusal:
        return "needs" if refusal.code == INSUFFICIENT_SCOPE else f"unknown {refusal.code}"
    return "fine"


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


# Rules that change.


@SIDES
@ERAS
async def test_clients_whose_list_changed_are_told(side: Side, revision: Revision) -> None:
    async with (
        stood(side, made(), AccessRules()) as host,
        peer(host, revision, principal=ALICE) as alice,
        peer(host, revision, principal=BOB) as bob,
    ):
        for client in (alice, bob):
            await names(client, "tools")
            if revision is LATEST:
                await client.begin(
                    "subscriptions/listen", notifications={"toolsListChanged": True, "promptsListChanged": True}
                )
                assert (await client.hear())["method"] == "notifications/subscriptions/acknowledged"
        told = await apply(host, AccessRules([Rule(tools=["write"], only=ACME)]))
        assert told == 1
        assert (await bob.hear())["method"] == "notifications/tools/list_changed"
        assert await outcome(bob, *USES["tool"]("write")) == "unknown -32602"
        assert "write" not in await names(bob, "tools")
        assert await outcome(alice, *USES["tool"]("write")) == "fine"
        assert not alice.heard
        assert await apply(host, None) == 1
        assert "write" in await names(bob, "tools")


@SIDES
async def test_a_client_with_a_new_token_is_told_if_it_sees_another_list(side: Side) -> None:
    async with stood(side, made(), AccessRules([Rule(tools=["write"], needs=["w"], hide=True)])) as host:
        there, here = memory_pair()
        place = await open_session(host, here, "renewed", ALICE)
        client = Peer(there, OLDER)
        await client.initialize()
        assert await names(client, "tools") == ["read", "wrote"]
        (session,) = [actor for _, actor in place.actors() if isinstance(actor, Session)]
        session.renew(attrs.evolve(ALICE, scopes=["a", "b"]))
        session.renew(attrs.evolve(ALICE, scopes=["a", "w"]))
        assert (await client.hear())["method"] == "notifications/tools/list_changed"
        assert await names(client, "tools") == ["read", "write", "wrote"]
        assert not client.heard
        there.close()


@SIDES
@ERAS
async def test_hidden_resources_are_not_heard_of(side: Side, revision: Revision) -> None:
    server = made()
    async with stood(side, server, AccessRules()) as host, peer(host, revision, principal=BOB) as client:
        if revision is LATEST:
            wanted = {"resourceSubscriptions": ["back://write", "back://read"]}
            await client.begin("subscriptions/listen", notifications=wanted)
            await client.hear()
        else:
            for name in ("write", "read"):
                await client.request("resources/subscribe", uri=f"back://{name}")
        server.notify_updated("back://write")
        assert (await client.hear())["params"]["uri"] == "back://write"
        await apply(host, AccessRules([Rule(resources=["back://write"], only=ACME)]))
        server.notify_updated("back://write")
        server.notify_updated("back://read")
        heard = await client.hear()
        while heard.get("method") == "notifications/resources/list_changed":
            heard = await client.hear()
        if side == "brokered" and revision is LATEST:
            assert "result" in heard  # it followed what is no more: its end says so
        else:
            assert heard["params"]["uri"] == "back://read"


async def test_a_folder_says_nothing_of_what_is_hidden_in_it() -> None:
    server = made()
    rules = AccessRules([Rule(resources=["back://write/secret*"], only=ACME)])
    async with stood("hosted", server, rules) as host, peer(host, OLDER, principal=BOB) as client:
        await client.request("resources/subscribe", uri="back://write")
        server.notify_updated("back://write/secret/x")
        server.notify_updated("back://write/other")
        assert (await client.hear())["params"]["uri"] == "back://write/other"


@SIDES
@ERAS
async def test_following_what_is_hidden_is_as_following_what_is_not_there(side: Side, revision: Revision) -> None:
    rules = AccessRules([Rule(resources=["back://wr?te"], only=ACME), Rule(resources=["back://read"], needs=["x"])])
    async with stood(side, made(), rules) as host, peer(host, revision, principal=BOB) as client:

        async def followed(uri: str) -> bytes:
            if revision is LATEST:
                number = await client.begin("subscriptions/listen", notifications={"resourceSubscriptions": [uri]})
                frame = bytes(await client.connection.receive())
                return frame.replace(b'Id":%d' % number, b'Id":0').replace(b'"id":%d' % number, b'"id":0')
            return await raw_answer(client, "resources/subscribe", {"uri": uri})

        nowhere = "back://nothing" if side == "hosted" else "callboard://nowhere/x"
        hidden, unknown = await followed("back://write"), await followed(nowhere)
        assert hidden.replace(b"back://write", nowhere.encode()) == unknown
        assert str(INSUFFICIENT_SCOPE).encode() in await followed("back://read")


@SIDES
async def test_a_parked_call_of_what_became_hidden_is_refused(side: Side) -> None:
    server = made()

    @server.tool
    async def ask(ctx: Context) -> str:
        await ctx.elicit("go on?", {"type": "object", "properties": {"x": {"type": "string"}}})
        return "done"

    answers = {"elicitation/create": lambda _: {"action": "accept", "content": {"x": "y"}}}
    async with stood(side, server, AccessRules()) as host, peer(host, answers=answers, principal=BOB) as client:
        params: dict[str, Any] = {"name": "ask", "arguments": {}}
        parked = await client.request("tools/call", **params)
        await apply(host, AccessRules([Rule(tools=["ask"], only=ACME)]))
        with pytest.raises(Refusal, match="Unknown tool: ask"):
            await client.request("tools/call", **params, **client.answered(parked))
        await apply(host, AccessRules())
        parked = await client.request("tools/call", **params)
        assert (await client.request("tools/call", **params, **client.answered(parked)))["resultType"] == "complete"


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
