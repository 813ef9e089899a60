"""URIs that a client names are short: each may be kept for as long as its session lives."""

from typing import Any, Final

import pytest
from trio.testing import MockClock

from callboard import Server
from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R4, R5
from callboard.codecs.uri_template.match import MAX_URI
from callboard.testing import Refusal
from tests.broker.back import Back
from tests.broker.front import brokered, peer

pytestmark = pytest.mark.finding("security-22", "security-16")

LONG: Final = "notes://" + "x" * (MAX_URI - 7)
ARGUMENT: Final = {"name": "a", "value": "b"}

ASKED: Final[list[tuple[Revision, str, dict[str, Any]]]] = [
    (R4, "resources/read", {"uri": LONG}),
    (R4, "resources/subscribe", {"uri": LONG}),
    (R4, "resources/unsubscribe", {"uri": LONG}),
    (R4, "completion/complete", {"ref": {"type": "ref/resource", "uri": LONG}, "argument": ARGUMENT}),
    (R5, "resources/read", {"uri": LONG}),
    (R5, "completion/complete", {"ref": {"type": "ref/resource", "uri": LONG}, "argument": ARGUMENT}),
    (R5, "subscriptions/listen", {"notifications": {"resourceSubscriptions": ["notes://one", LONG]}}),
]


@pytest.mark.parametrize("is_brokered", [False, True])
@pytest.mark.parametrize(("revision", "method", "params"), ASKED, ids=[f"{one[0]} {one[1]}" for one in ASKED])
async def test_a_long_uri_is_refused(
    revision: Revision, method: str, params: dict[str, Any], is_brokered: bool, autojump_clock: MockClock
) -> None:
    back, server = Back(), Server("notes", offers=["completions"])

    @server.resource("notes://{+name}")
    async def note(name: str) -> str:
        return name

    async with brokered(back.ways) if is_brokered else server.host() as host, peer(host, revision) as client:
        with pytest.raises(Refusal) as refused:
            await client.request(method, **params)
        assert refused.value.code == -32602
        assert len(refused.value.message) < 300
        assert LONG not in str(back.told(method))


async def test_one_that_is_just_short_enough_is_served(autojump_clock: MockClock) -> None:
    server = Server("notes")

    @server.resource("notes://{+name}")
    async def note(name: str) -> str:
        return name

    async with server.host() as host, peer(host, R4) as client:
        read = await client.request("resources/read", uri=LONG[:-1])
        assert read["contents"][0]["text"] == LONG[8:-1]
        await client.request("resources/subscribe", uri=LONG[:-1])
