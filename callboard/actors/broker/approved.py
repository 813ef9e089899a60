"""Approval of a call that goes to a backend."""

from collections.abc import Callable

from callboard.actors.rules import Approval
from callboard.actors.server.approvals import approved
from callboard.actors.server.exchange import Exchange
from callboard.errors import NotApproved


async def approved_at(exchange: Exchange, find_tool: Callable[[], tuple[str, str]]) -> None:
    """Go on when the call is approved, for the backend that *find_tool* finds, and the name there that rules go by: if
    that is another one in the end, the yes does not count.

    Raises as `approved` does, and as *find_tool* does where the caller may not use the tool.
    """
    server, name = find_tool()

    def decide() -> Approval | None:
        if find_tool() != (server, name):
            raise NotApproved("not approved: the tool belongs to another server now")
        rules = exchange.engine.rules
        return None if rules is None else rules.decide(exchange.terms.caller, "tool", server, name).approve

    await approved(exchange, server, name, exchange.request.members.get("arguments"), decide)
