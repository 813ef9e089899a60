"""Rules that change while clients are connected, hosted and brokered, in both eras."""

from typing import Any

import attrs
import pytest
from trio.testing import MockClock

from callboard.actors.rules import AccessRules, Rule
from callboard.actors.server.new_rules import apply
from callboard.actors.server.session import Session
from callboard.actors.server.session_tree import open_session
from callboard.codecs.caller import Caller
from callboard.codecs.revisions import LATEST, Revision
from callboard.codecs.revisions.revision import R4
from callboard.errors import INSUFFICIENT_SCOPE
from callboard.server.context import Context
from callboard.testing import Peer, Refusal
from callboard.transports.memory import memory_pair
from tests.broker.front import brokered, peer
from tests.broker.rules_stage import (
    ACME,
    ALICE,
    BOB,
    ERAS,
    OLDER,
    SIDES,
    USES,
    Side,
    made,
    names,
    outcome,
    raw_answer,
    stood,
)
from tests.broker.task_stage import back_with_tasks, create, stand

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
async def test_a_parked_call_of_what_became_hidden_is_refused(side: Side, autojump_clock: MockClock) -> None:
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


# Tasks.


async def test_a_task_of_a_tool_that_became_hidden_is_unknown(autojump_clock: MockClock) -> None:
    back = back_with_tasks()
    ada = Caller(principal="ada", tenant="acme")
    async with brokered(back.ways) as host, peer(host, R4, principal=ada) as client:
        _, task = await create(client, back)
        host.rules = AccessRules([Rule(tools=["book"], deny=True)])
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            with pytest.raises(Refusal, match="Unknown task"):
                await client.request(method, taskId=task["taskId"])
        host.rules = AccessRules([Rule(tools=["book"], needs=["x"])])
        with pytest.raises(Refusal, match="the token needs these scopes: x"):
            await client.request("tasks/get", taskId=task["taskId"])
        host.rules = None
        assert (await stand(client, back, task))["status"] == "working"
