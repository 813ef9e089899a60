"""Which revision a request is served in, and what a server is that speaks the modern one alone."""

import pytest
from trio.testing import MockClock

from callboard.codecs.revisions import MODERN
from callboard.codecs.revisions.revision import R4, R5
from callboard.server import Server
from callboard.testing import Refusal
from tests.protocol.house import open_house

server = Server("versions")
modern_only = Server("modern", revisions=MODERN)


@pytest.mark.requirement("M065")
async def test_a_server_without_legacy_revisions_tells_initialize_what_it_speaks(autojump_clock: MockClock) -> None:
    async with open_house(modern_only) as house:
        peer = await house.stranger(R5)
        await peer.say(
            {
                "id": 1,
                "method": "initialize",
                "params": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "clientInfo": {"name": "c", "version": "1"},
                },
            }
        )
        refused = await peer.hear()
        assert refused["error"]["code"] == -32022
        assert refused["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2025-11-25"}


@pytest.mark.requirement("M033")
@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities"])
async def test_a_request_without_a_key_it_must_have_is_invalid(missing: str, autojump_clock: MockClock) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": R5.value,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    del meta[f"io.modelcontextprotocol/{missing}"]
    async with open_house(server) as house:
        peer = await house.stranger(R5)
        await peer.say({"id": 1, "method": "tools/list", "params": {"_meta": meta}})
        refused = await peer.hear()
        assert (refused["id"], refused["error"]["code"]) == (1, -32602)
        assert missing in refused["error"]["message"]


@pytest.mark.requirement("M033")
async def test_a_server_without_legacy_revisions_misses_the_version_of_any_request(autojump_clock: MockClock) -> None:
    async with open_house(modern_only) as house:
        peer = await house.stranger(R5)
        await peer.say({"id": 1, "method": "tools/list"})
        assert (await peer.hear())["error"]["code"] == -32602


@pytest.mark.requirement("M060", "M207")
async def test_discovery_lists_what_is_spoken(autojump_clock: MockClock) -> None:
    async with open_house(modern_only) as house:
        peer = await house.peer(R5)
        assert (await peer.request("server/discover"))["supportedVersions"] == ["2026-07-28"]


@pytest.mark.requirement("M411", "M434", "M435", "M436", "L087", "L092")
async def test_tasks_are_neither_declared_nor_made(autojump_clock: MockClock) -> None:
    plain = Server("plain")

    @plain.tool
    async def greet() -> str:
        return "hello"

    async with open_house(plain) as house:
        old = await house.stranger(R4)
        assert "tasks" not in (await old.initialize())["capabilities"]
        new = await house.peer(R5)
        assert "tasks" not in (await new.request("server/discover"))["capabilities"]
        for peer in (old, new):
            result = await peer.request("tools/call", name="greet", task={"ttl": 1000})
            assert result["content"][0]["text"] == "hello"
            assert "task" not in result
            for method in ("tasks/result", "tasks/get", "tasks/list"):
                with pytest.raises(Refusal, match="-32601"):
                    await peer.request(method, taskId="1")
