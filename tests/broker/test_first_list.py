"""What a backend changes while it is looked at for the first time is not overlooked."""

from typing import Any

import trio
import trio.testing

from callboard import Server
from callboard.server.registry import Section
from tests.broker.front import brokered, peer


class Late(Section[Any]):
    """The last list that is read: just then there is one more tool."""

    server: Server

    def page(self, *said: Any, **more: Any) -> Any:
        if "late" not in self.server.registry.tools.entries:
            self.server.tool(name="late")(late)
        return super().page(*said, **more)


async def late() -> str:
    return "better than never"


async def named(name: str) -> str:
    return name


async def test_a_tool_that_comes_between_the_first_list_and_the_first_ear_is_listed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Server("slow")
    server.tool(name="early")(late)
    server.resource("slow://{name}")(named)
    shelf = Late("template")
    shelf.server, shelf.entries = server, server.registry.templates.entries
    server.registry.templates = shelf
    async with brokered(server) as host, peer(host) as client:
        await trio.sleep(5)
        assert [tool["name"] for tool in (await client.request("tools/list"))["tools"]] == ["early", "late"]
