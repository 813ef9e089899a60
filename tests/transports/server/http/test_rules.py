"""Rules and quotas on the wire: what is hidden looks unknown to the last byte, and what is refused has its status."""

from typing import Any

import pytest
import trio.testing

from callboard.actors.quotas import Quotas, QuotaSettings
from callboard.actors.rate import Rate
from callboard.actors.rules import AccessRules, Condition, Rule
from callboard.codecs.caller import Caller
from callboard.codecs.revisions import LEGACY
from tests.transports.server.http.house import open_house
from tests.transports.server.http.sessions import OpenSession, initialize
from tests.transports.server.http.stage import Answer, Place, serving

BEARER = "Authorization: Bearer x"


async def authenticate(_: str) -> Caller:
    return Caller(principal="ada", tenant="acme", scopes=["a"])


async def ask(place: Place, method: str, *lines: str, **params: Any) -> Answer:
    client = await place.connect()
    await client.send(client.modern(method, BEARER, *lines, **params))
    return await client.answer()


def apart(answer: Answer, *names: str) -> tuple[int, dict[str, str], bytes]:
    """All of it, but for the time and what the client said itself."""
    body = answer.body
    for name in names:
        body = body.replace(name.encode(), b"NAME")
    return answer.status, {name: value for name, value in answer.headers.items() if name != "date"}, body


@pytest.mark.parametrize("lines", [(), ("Mcp-Param-City: Oslo",), ("Mcp-Param-City: Bonn",)])
async def test_a_hidden_tool_is_as_an_unknown_one_with_any_headers(lines: tuple[str, ...]) -> None:
    async with serving(open_house().server, authenticate=authenticate) as place:
        place.host.rules = AccessRules([Rule(tools=["route"], only=(Condition(tenant=("other",)),))])
        said = {"arguments": {"city": "Oslo"}}
        hidden = await ask(place, "tools/call", *lines, name="route", **said)
        unknown = await ask(place, "tools/call", *lines, name="rxute", **said)
        assert apart(hidden, "route") == apart(unknown, "rxute")
        assert b"Unknown tool: route" in hidden.body
        place.host.rules = AccessRules()
        seen = await ask(place, "tools/call", *lines, name="route", **said)
        assert seen.status == (200 if lines == ("Mcp-Param-City: Oslo",) else 400)


async def test_a_hidden_method_is_as_one_that_the_server_has_not() -> None:
    async with serving(open_house().server, authenticate=authenticate) as place:
        place.host.rules = AccessRules([Rule(methods=["tools/list"], deny=True)])
        answer = await ask(place, "tools/list")
        assert (answer.status, answer.code) == (404, -32601)


async def test_missing_scopes_are_a_403_that_names_them_all() -> None:
    async with serving(open_house().server, authenticate=authenticate) as place:
        place.host.rules = AccessRules(
            [
                Rule(methods=["tools/call"], needs=["a"]),
                Rule(tools=["r*"], needs=["b"]),
                Rule(methods=["*/list"], needs=["c"]),
            ]
        )
        for method, params, scopes in (
            ("tools/call", {"name": "route", "arguments": {"city": "Oslo"}}, "a b"),
            ("tools/list", {}, "c"),
        ):
            lines = ("Mcp-Param-City: Oslo",) if params else ()
            answer = await ask(place, method, *lines, **params)
            assert answer.status == 403
            assert f'error="insufficient_scope", scope="{scopes}"' in answer.headers["www-authenticate"]
            assert answer.json["error"]["data"] == {"requiredScopes": scopes.split()}


async def test_a_quota_is_a_429_that_says_when_to_come_again() -> None:
    async with serving(open_house().server, authenticate=authenticate) as place:
        place.host.quotas = Quotas(QuotaSettings(principal=Rate(1, 40)))
        assert (await ask(place, "tools/list")).status == 200
        answer = await ask(place, "tools/list")
        assert answer.status == 429
        assert answer.json["error"]["data"] == {"retryAfter": 20}
        assert "retry-after" in answer.headers


async def test_a_quota_counts_each_session_that_is_opened() -> None:
    async with serving(open_house().server, authenticate=authenticate) as place:
        place.host.quotas = Quotas(QuotaSettings(principal=Rate(2, 40)))
        await OpenSession.open(place, max(LEGACY), BEARER, is_ready=False)
        assert (await ask(place, "tools/list")).status == 200
        sessions = place.host.sessions.total
        client = await place.connect()
        await client.send(client.post(initialize(max(LEGACY)), BEARER))
        answer = await client.answer()
        assert (answer.status, answer.code) == (429, -31003)
        assert answer.headers["retry-after"] == str(answer.json["error"]["data"]["retryAfter"])
        assert "mcp-session-id" not in answer.headers
        await trio.testing.wait_all_tasks_blocked()
        assert place.host.sessions.total == sessions


async def test_a_session_goes_by_rules_too() -> None:
    async with serving(open_house().server, authenticate=authenticate) as place:
        place.host.rules = AccessRules([Rule(tools=["route"], deny=True), Rule(tools=["who"], needs=["b"])])
        session = await OpenSession.open(place, max(LEGACY), BEARER)
        listed = (await session.ask("tools/list")).result["tools"]
        assert "route" not in [tool["name"] for tool in listed]
        assert "Unknown tool: route" in (await session.call("route")).json["error"]["message"]
        answer = await session.call("who")
        assert answer.status == 403
        assert answer.json["error"]["data"] == {"requiredScopes": ["b"]}
