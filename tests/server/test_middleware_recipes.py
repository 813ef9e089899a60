"""The recipes of docs/howto/middleware.md, which are files of examples/middleware."""

import io
import json
import sys
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from callboard import Context, Server, ToolError
from callboard.codecs.caller import Caller
from callboard.server.load import load_server
from callboard.testing import Refusal, connect
from tests.shared import ROOT


def recipe(name: str) -> tuple[Server, Any]:
    """The server of a recipe, loaded anew, and its module."""
    server = load_server(str(ROOT / "examples" / "middleware" / f"{name}.py"))
    return server, sys.modules[f"_served_{name}"]


async def test_timing_says_how_long_each_request_took(
    capsys: pytest.CaptureFixture[str], autojump_clock: MockClock
) -> None:
    server, _ = recipe("timing")

    @server.tool
    async def slow() -> str:
        await trio.sleep(2)
        raise ToolError("no")

    async with connect(server) as client:
        await client.call("add", a=1, b=2)
        await client.call("slow")
        await client.request("tools/list")
    assert capsys.readouterr().err.splitlines() == [
        "tools/call add ok 0 ms",
        "tools/call slow tool error 2000 ms",
        "tools/list  ok 0 ms",
    ]


async def test_caching_keeps_a_result_for_its_caller_and_its_time(autojump_clock: MockClock) -> None:
    server, module = recipe("caching")

    async def took(principal: str, currency: str) -> float:
        began = trio.current_time()
        async with connect(server, principal=principal) as client:
            assert (await client.call("rate", currency=currency))["structuredContent"] in (
                {"result": 11.5},
                {"result": 1.1},
            )
        return round(trio.current_time() - began, 3)

    assert await took("ann", "NOK") == 2
    assert await took("ann", "NOK") == 0
    assert await took("ann", "USD") == 2
    assert await took("bob", "NOK") == 2
    await trio.sleep(60)
    assert await took("ann", "NOK") == 2
    assert len(module.kept) == 3


async def test_caching_keeps_no_failure_and_no_more_than_its_bound(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, module = recipe("caching")
    monkeypatch.setattr(module, "MOST", 2)
    monkeypatch.setattr(module, "LONGEST", 40)
    async with connect(server) as client:
        assert (await client.call("rate", currency=3))["isError"]
        assert len(module.kept) == 0
        for currency in ("A", "B", "C", "D" * 50):
            await client.call("rate", currency=currency)
    assert [json.loads(key[2])["currency"] for key in module.kept] == ["B", "C"]


async def test_audit_writes_a_line_for_each_call_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    server, _ = recipe("audit")
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    async with connect(server, principal="ann") as client:
        await client.call("transfer", to="x" * 1000, amount=5, pin="1234")
        await client.call("transfer", to="bob")
        await client.request("tools/list")
    first, second = [json.loads(line) for line in said.getvalue().splitlines()]
    assert first["arguments"] == {"to": '"' + "x" * 199 + "…", "amount": 5, "pin": "***"}
    assert (first["caller"], first["tool"], first["outcome"]) == ("ann", "transfer", "ok")
    assert (second["arguments"], second["outcome"]) == ({"to": "bob"}, "error")
    assert "1234" not in said.getvalue()


async def test_redaction_takes_cards_out_of_text_and_data() -> None:
    server, _ = recipe("redaction")

    @server.tool
    async def letter(ctx: Context) -> str:
        return "your card 4111-1111-1111-1111, of 2026"

    async with connect(server) as client:
        result = await client.call("customer", name="ann")
        assert result["structuredContent"] == {"name": "ann", "card": "[card]"}
        assert "4111" not in json.dumps(result)
        assert (await client.call("letter"))["content"][0]["text"] == "your card [card], of 2026"


@pytest.mark.parametrize(("scopes", "tools"), [([], ["account"]), (["accounts:write"], ["account", "delete_account"])])
async def test_permission_hides_a_tool_and_refuses_its_calls(scopes: list[str], tools: list[str]) -> None:
    server, _ = recipe("permission")
    async with connect(server, principal=Caller(principal="ann", scopes=scopes)) as client:
        assert [tool["name"] for tool in (await client.request("tools/list"))["tools"]] == tools
        assert (await client.call("account", name="bo"))["content"][0]["text"] == "bo: open"
        if scopes:
            assert (await client.call("delete_account", name="bo"))["content"][0]["text"] == "bo: deleted"
        else:
            with pytest.raises(Refusal, match="-32602: Unknown tool: delete_account"):
                await client.call("delete_account", name="bo")
