"""A call that waits for the login of its user: how long, and how often it asks."""

from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from callboard.actors.broker.logins import LOGIN_ROUNDS, LOGIN_WAIT
from callboard.actors.broker.offer import BrokerOffer
from callboard.actors.broker.personal import CallerReach
from callboard.codecs.caller import Caller
from callboard.codecs.revisions import LATEST, Revision
from callboard.codecs.revisions.revision import R4
from callboard.testing import Refusal
from tests.broker.back import Back
from tests.broker.front import backend, brokered, peer

ERAS = pytest.mark.parametrize("revision", [LATEST, R4], ids=["modern client", "legacy client"])


class Never:
    """Users who say yes, and do not log in."""

    def __init__(self) -> None:
        self.began: list[float] = []
        self.login = self

    async def has(self, _: Caller) -> bool:
        return False

    async def begin(self, _: Caller) -> str:
        self.began.append(trio.current_time())
        return "http://127.0.0.1/callboard/login/x"

    async def wait(self, _: Caller, seconds: float) -> bool:
        await trio.sleep(seconds)
        return False


@ERAS
async def test_a_call_waits_a_while_for_the_login_and_asks_again(revision: Revision, autojump_clock: MockClock) -> None:
    never, accept = Never(), cast("Any", lambda _: {"action": "accept"})
    async with brokered(backend(Back(R4).ways, cap=3600.0)) as host:
        [found] = cast("BrokerOffer", host.offer).backends.values()
        found.personal = cast("CallerReach", never)
        capabilities: dict[str, Any] = {"elicitation": {"url": {}}}
        asking = peer(
            host, revision, principal="alice", capabilities=capabilities, answers={"elicitation/create": accept}
        )
        async with asking as client:
            with pytest.raises(Refusal, match="needs a login, which did not come"):
                await client.call("book")
    assert len(never.began) == LOGIN_ROUNDS
    waits = [after - before for before, after in zip(never.began, never.began[1:], strict=False)]
    assert waits == pytest.approx([LOGIN_WAIT] * (LOGIN_ROUNDS - 1), abs=1)
