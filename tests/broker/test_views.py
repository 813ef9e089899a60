"""Servers that show more to a client that can do more: through the broker it is shown to just those clients."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs
import pytest
import trio
from trio.testing import MockClock

from callboard.actors.broker.broker import Approved
from callboard.actors.broker.listing import EVERY, PROMPT
from callboard.actors.broker.views import VIEW_WAIT
from callboard.broker import Broker
from callboard.broker.pins import Pins
from callboard.codecs.revisions import LATEST, Revision, meta
from callboard.codecs.revisions.revision import R4
from callboard.testing import Peer, Refusal
from tests.broker.back import Back, Line, text, tool
from tests.broker.front import backend, brokered, peer
from tests.client.stage import Json

ABLE: Final[Json] = {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {}}
SAMPLING: Final[Json] = {"sampling": {}}
UNABLE: Final[Json] = {}
ERAS: Final = pytest.mark.parametrize("back_revision", [R4, LATEST], ids=["legacy backend", "modern backend"])
CLIENTS: Final = pytest.mark.parametrize("revision", [R4, LATEST], ids=["legacy client", "modern client"])
FINDING = pytest.mark.finding("protocol-1.3")


@attrs.define(eq=False)
class Choosy(Back):
    """Shows a tool for each capability that its client has declared, and one to everybody."""

    extra: list[Json] = attrs.field(factory=list)
    """Shown to clients that can sample."""
    common: list[Json] = attrs.field(factory=list)

    async def _take(self, line: Line, message: Json) -> None:
        if message.get("method") == "tools/call" and "tools/call" not in self.holds:
            await line.answer(
                message, **text(f"{message['params']['name']} for {sorted(self._declared(line, message))}")
            )
        elif message.get("method") == "tools/list" and "tools/list" not in self.holds:
            await self.list_tools(line, message)
        else:
            await super()._take(line, message)

    async def list_tools(self, line: Line, message: Json) -> None:
        declared = self._declared(line, message)
        shown = [tool("plain"), *self.common, *(tool(f"use-{name}") for name in sorted(declared))]
        shown += self.extra if "sampling" in declared else []
        found = self._by_itself(line, "tools/list", {}) or {}
        await line.answer(message, **{**found, "tools": shown})

    def _declared(self, line: Line, message: Json) -> Json:
        said = message.get("params", {}).get("_meta", {})
        declared: Json = said.get(meta.CLIENT_CAPABILITIES, {}) if self.is_modern else line.declared
        return declared

    def lines_of(self, *declared: str) -> list[Line]:
        return [line for line in self.lines if sorted(line.declared) == sorted(declared) and not line.is_gone]


@attrs.define(eq=False)
class Hasty(Choosy):
    """Says that its tools have changed as soon as it has said hello, before the broker has read that."""

    async def _take(self, line: Line, message: Json) -> None:
        if message.get("method") in ("initialize", "server/discover"):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(super()._take, line, message)
                nursery.start_soon(line.tell, "notifications/tools/list_changed")
        else:
            await super()._take(line, message)


async def names(client: Peer) -> list[str]:
    return [one["name"] for one in (await client.request("tools/list"))["tools"]]


async def called(client: Peer, name: str) -> str:
    result = await client.request("tools/call", name=name, arguments={})
    words: str = result["content"][0]["text"]
    return words


async def all_names(client: Peer) -> list[str]:
    found: list[str] = []
    cursor: Json = {}
    while True:
        result = await client.request("tools/list", **cursor)
        found += [one["name"] for one in result["tools"]]
        if "nextCursor" not in result:
            return found
        cursor = {"cursor": result["nextCursor"]}


async def tell_changed(back: Back, lines: Sequence[Line]) -> None:
    """Say that the tools have changed, on these connections."""
    for line in lines:
        for listen in line.listens if back.is_modern else (None,):
            about = {} if listen is None else {"_meta": {meta.SUBSCRIPTION_ID: listen}}
            await line.tell("notifications/tools/list_changed", **about)


async def changes(client: Peer) -> int:
    """How many times a client has been told since the last time that the tools are others."""
    with pytest.raises(Refusal):
        await client.request("tools/call", name="no-such-tool")  # whatever was said before has come then
    told = len(client.notifications("notifications/tools/list_changed"))
    client.heard.clear()
    return told


ALL_TOOLS: Final = ["plain", "use-elicitation", "use-roots", "use-sampling"]


@FINDING
@ERAS
@CLIENTS
@pytest.mark.parametrize("order", ["able first", "unable first"])
async def test_each_client_sees_what_the_server_shows_to_clients_like_it(
    autojump_clock: MockClock, back_revision: Revision, revision: Revision, order: str
) -> None:
    back = Choosy(back_revision)
    async with (
        brokered(back.ways) as host,
        peer(host, revision, capabilities=ABLE) as able,
        peer(host, revision, capabilities=UNABLE) as unable,
        peer(host, revision, capabilities=SAMPLING) as sampling,
    ):
        clients = {
            "able": (able, ALL_TOOLS),
            "unable": (unable, ["plain"]),
            "sampling": (sampling, ["plain", "use-sampling"]),
        }
        for _ in range(2):  # once before and once after each has been seen
            for client, expected in list(clients.values())[:: 1 if order == "able first" else -1]:
                assert await names(client) == expected
        assert await called(able, "use-roots") == "use-roots for ['elicitation', 'roots', 'sampling']"
        assert await names(unable) == ["plain"]
        with pytest.raises(Refusal, match="Unknown tool"):
            await called(unable, "use-roots")
        with pytest.raises(Refusal, match="Unknown tool"):
            await called(sampling, "use-roots")


@FINDING
@ERAS
@CLIENTS
async def test_a_tool_can_be_called_that_was_never_listed(
    autojump_clock: MockClock, back_revision: Revision, revision: Revision
) -> None:
    async with (
        brokered(Choosy(back_revision).ways) as host,
        peer(host, revision, capabilities=ABLE) as able,
        peer(host, revision, capabilities=UNABLE) as unable,
    ):
        with pytest.raises(Refusal, match="Unknown tool"):
            await called(unable, "use-roots")
        assert (await called(able, "use-roots")).startswith("use-roots for")
        with pytest.raises(Refusal, match="Unknown tool"):
            await called(able, "use-nothing")
        with pytest.raises(Refusal, match="Unknown tool"):
            await called(unable, "use-roots")


@FINDING
@ERAS
async def test_a_server_that_makes_no_difference_is_asked_once_for_each_signature(
    autojump_clock: MockClock, back_revision: Revision
) -> None:
    back = Back(back_revision)
    broker = Broker([backend(back.ways)])
    async with broker.host() as host:
        for _ in range(3):
            async with peer(host, LATEST, capabilities=ABLE) as able:
                assert await names(able) == ["book", "other"]
                assert not await changes(able)
        assert not broker.catalogue.tells_apart
        assert len(back.told("tools/list")) == 2
        await trio.sleep(3600)  # its connection was ended long ago
        back.tools = [tool("new")]
        await tell_changed(back, back.lines[:1])
        await trio.sleep(10)
        async with peer(host, LATEST, capabilities=ABLE) as able:
            assert await names(able) == ["new"]
        assert not broker.catalogue.tells_apart


@FINDING
async def test_what_a_connection_of_one_signature_says_is_news_for_its_clients_only(
    autojump_clock: MockClock,
) -> None:
    back = Choosy(R4)
    async with (
        brokered(back.ways) as host,
        peer(host, R4, capabilities=ABLE) as able,
        peer(host, R4, capabilities=UNABLE) as unable,
        peer(host, R4, capabilities={"roots": {}}) as rooted,
    ):
        for client in (able, unable, rooted):
            await names(client)
        assert [await changes(client) for client in (able, unable, rooted)] == [0, 0, 0]
        back.extra = [tool("extra")]
        await tell_changed(back, back.lines_of(*ABLE))
        await trio.sleep(10)
        assert [await changes(client) for client in (able, unable, rooted)] == [1, 0, 0]
        assert await names(able) == [*ALL_TOOLS, "extra"]
        assert await names(unable) == ["plain"]
        assert await names(rooted) == ["plain", "use-roots"]


@FINDING
@pytest.mark.parametrize("is_swept", [False, True], ids=["soon", "when its connection has ended"])
@ERAS
async def test_a_change_for_everybody_reaches_every_signature(
    autojump_clock: MockClock, back_revision: Revision, is_swept: bool
) -> None:
    back = Choosy(back_revision)
    async with (
        brokered(back.ways) as host,
        peer(host, LATEST, capabilities=ABLE) as able,
        peer(host, LATEST, capabilities=UNABLE) as unable,
    ):
        for client in (able, unable):
            await client.begin("subscriptions/listen", notifications={"toolsListChanged": True})
            await names(client)
        if is_swept:
            await trio.sleep(3600)
        back.common = [tool("common")]
        await tell_changed(back, [line for line in back.lines if not line.is_gone])
        await trio.sleep(10)
        assert await changes(unable) == 1
        told = await changes(able)
        assert told == 1 or (told == 2 and is_swept)  # it is told before and after its lists are read again
        assert await names(unable) == ["plain", "common"]
        assert await names(able) == ["plain", "common", *ALL_TOOLS[1:]]


@FINDING
@CLIENTS
async def test_a_slow_server_keeps_a_client_waiting_once_and_is_told_of_later(
    autojump_clock: MockClock, revision: Revision
) -> None:
    back, good = Choosy(R4), Choosy(R4)
    specs = backend(back.ways, "slow"), backend(good.ways, "good", prefix=None)
    async with brokered(*specs) as host, peer(host, revision, capabilities=ABLE) as able:
        if revision is LATEST:
            await able.begin("subscriptions/listen", notifications={"toolsListChanged": True})
        back.holds.add("tools/list")
        for waits in (VIEW_WAIT, 0.0, 0.0):
            began = trio.current_time()
            assert await names(able) == ["plain", *(f"good__{name}" for name in ALL_TOOLS)]
            assert trio.current_time() - began == pytest.approx(waits)
        line, request = await back.hear("tools/list")
        back.holds.clear()
        await back.list_tools(line, request)
        await trio.sleep(1)
        assert await changes(able) == 1
        assert await names(able) == [*ALL_TOOLS, *(f"good__{name}" for name in ALL_TOOLS)]


@FINDING
async def test_a_server_of_which_there_can_be_only_one_is_shown_as_it_shows_itself_to_everybody(
    autojump_clock: MockClock,
) -> None:
    back = Choosy(R4)
    async with brokered(back.ways) as host, peer(host, R4, capabilities=ABLE) as able:
        back.is_down = True  # for every connection but the shared one, which is open
        for _ in range(5):
            assert await names(able) == ["plain"]
        await trio.sleep(100)
        back.is_down = False
        assert await names(able) == ALL_TOOLS


@FINDING
async def test_lists_take_neither_the_last_connection_nor_one_that_is_in_use(autojump_clock: MockClock) -> None:
    back = Choosy(R4)
    most = 4
    async with (
        brokered(backend(back.ways, max_connections=most, idle_time=1e6)) as host,
        trio.open_nursery() as nursery,
    ):
        for number in range(10):  # one after another: each could ask for a connection of its own
            asked = [path for bit, path in enumerate(("roots", "sampling", "elicitation")) if (number + 1) >> bit & 1]
            async with peer(host, LATEST, capabilities={path: {} for path in asked}) as client:
                assert "plain" in await names(client)
        assert len([line for line in back.lines if not line.is_gone]) < most
        async with peer(host, R4, capabilities=ABLE) as able:
            assert (await called(able, "plain")).startswith("plain for ['elicit")
        nursery.cancel_scope.cancel()


@FINDING
async def test_lists_of_all_signatures_share_the_bytes_of_one_backend() -> None:
    back = Choosy(R4, extra=[tool(f"x{number}", description="x" * 60_000) for number in range(130)])
    async with brokered(back.ways) as host:
        sizes = []
        for declared in (SAMPLING, ABLE):
            async with peer(host, LATEST, capabilities=declared) as client:
                sizes.append(len(await all_names(client)))
    assert sizes[0] == 132
    assert sizes[1] < 20


@FINDING
async def test_a_tool_of_one_signature_is_pinned_like_any_other(autojump_clock: MockClock, tmp_path: Path) -> None:
    pins = Pins.beside(tmp_path / "servers.json")
    back = Choosy(R4)
    broker = Broker([backend(back.ways, pin=True)], approve=pins.approve)
    async with (
        broker.host() as host,
        peer(host, R4, capabilities=SAMPLING) as sampling,
        peer(host, R4, capabilities=UNABLE) as unable,
    ):
        assert await names(sampling) == ["plain"]
        with pytest.raises(Refusal, match="use-sampling"):
            await called(sampling, "use-sampling")
        [waiting] = pins.waiting()
        assert waiting.tool == "use-sampling"
        pins.settle(waiting)
        broker._control().send_nowait(Approved())  # as when the file has changed
        await trio.sleep(1)
        assert await changes(sampling) == 1
        assert await names(sampling) == ["plain", "use-sampling"]
        assert await names(unable) == ["plain"]


@FINDING
async def test_a_server_that_comes_back_is_looked_at_again(autojump_clock: MockClock) -> None:
    back = Choosy(R4)
    async with brokered(back.ways) as host, peer(host, R4, capabilities=ABLE) as able:
        assert await names(able) == ALL_TOOLS
        back.is_down = True
        for line in back.lines:
            line.hang_up()
        await trio.sleep(1)
        began = trio.current_time()
        assert await names(able) == ALL_TOOLS  # as it was: a server that is down is not waited for
        assert trio.current_time() == began
        back.is_down, back.extra = False, [tool("extra")]
        await trio.sleep(120)
        assert await names(able) == [*ALL_TOOLS, "extra"]


@FINDING
async def test_a_client_that_found_no_connection_free_is_told_when_there_was_one(autojump_clock: MockClock) -> None:
    back = Choosy(R4, holds={"tools/call"})
    async with brokered(backend(back.ways, max_connections=3)) as host, peer(host, R4, capabilities=ABLE) as able:
        async with peer(host, R4, capabilities=SAMPLING) as busy:
            await busy.begin("tools/call", name="plain", arguments={})
            line, request = await back.hear()
            began = trio.current_time()
            assert await names(able) == ["plain"]
            assert trio.current_time() == began
            await trio.sleep(60)
            assert await changes(able) == 0
            await line.answer(request, **text("done"))
        await trio.sleep(20)
        assert await changes(able) == 1
        assert await names(able) == ALL_TOOLS


@FINDING
@ERAS
async def test_a_flood_of_changes_has_views_read_no_more_often_than_lists(
    autojump_clock: MockClock, back_revision: Revision
) -> None:
    back = Choosy(back_revision)
    async with brokered(back.ways) as host:
        several: list[Json] = [{one: {}} for one in ABLE] + [{one: {} for one in ABLE if one != left} for left in ABLE]
        for capabilities in several:
            async with peer(host, LATEST, capabilities=capabilities) as client:
                await names(client)
        before = len(back.told("tools/list"))
        for _ in range(600):
            await tell_changed(back, [line for line in back.lines if not line.is_gone])
            await trio.sleep(0.1)
        often = PROMPT + 60 / EVERY
        assert len(back.told("tools/list")) - before < 2 * often + len(several)


@FINDING
async def test_lists_that_only_one_connection_could_speak_of_are_read_anew_when_it_has_ended(
    autojump_clock: MockClock,
) -> None:
    back = Choosy(R4)
    async with brokered(back.ways) as host, peer(host, R4, capabilities=ABLE) as able:
        assert await names(able) == ALL_TOOLS
        await trio.sleep(3600)
        assert not back.lines_of(*ABLE)
        back.extra = [tool("extra")]
        assert await names(able) == [*ALL_TOOLS, "extra"]


@FINDING
async def test_the_first_list_of_a_signature_is_refused_for_what_is_wrong_with_it(autojump_clock: MockClock) -> None:
    async with brokered(Choosy(R4).ways) as host, peer(host, R4, capabilities=ABLE) as able:
        with pytest.raises(Refusal, match="Invalid cursor"):
            await able.request("tools/list", cursor="nonsense")
        first = await able.begin("tools/list")
        await able.say({"method": "notifications/cancelled", "params": {"requestId": first}})
        assert await names(able) == ALL_TOOLS


@FINDING
async def test_other_lists_than_tools_are_told_apart_as_well(autojump_clock: MockClock) -> None:
    async with (
        brokered(Telling(R4).ways) as host,
        peer(host, R4, capabilities=ABLE) as able,
        peer(host, R4, capabilities=UNABLE) as unable,
    ):
        for client, expected in ((able, ["brief", "wizard"]), (unable, ["brief"])):
            assert [one["name"] for one in (await client.request("prompts/list"))["prompts"]] == expected
        assert (await able.request("prompts/get", name="wizard"))["messages"] == []
        with pytest.raises(Refusal, match="Unknown prompt"):
            await unable.request("prompts/get", name="wizard")


@attrs.define(eq=False)
class Telling(Back):
    """Has a prompt for those who can be asked."""

    async def _take(self, line: Line, message: Json) -> None:
        if message.get("method") == "prompts/list":
            await line.answer(message, prompts=[{"name": "brief"}, *([{"name": "wizard"}] if line.declared else [])])
        elif message.get("method") == "prompts/get":
            await line.answer(message, messages=[])
        else:
            await super()._take(line, message)


@FINDING
async def test_lists_are_never_read_on_the_connection_of_one_principal(autojump_clock: MockClock) -> None:
    back = Choosy(R4)
    async with (
        brokered(backend(back.ways, share="principal")) as host,
        peer(host, R4, capabilities=ABLE, principal="ada") as ada,
        peer(host, R4, capabilities=ABLE, principal="bob") as bob,
    ):
        await called(ada, "plain")
        [line] = back.lines_of(*ABLE)
        for _ in range(2):
            await tell_changed(back, [line])
            await trio.sleep(10)
            assert await names(bob) == await names(ada) == ALL_TOOLS
        assert not line.told("tools/list")
        back.extra = [tool("extra")]
        await tell_changed(back, [line])
        await trio.sleep(10)
        assert [await changes(ada), await changes(bob)] == [1, 1]


@FINDING
@ERAS
@CLIENTS
async def test_a_change_during_the_handshake_does_not_end_the_connection(
    back_revision: Revision, revision: Revision, autojump_clock: MockClock
) -> None:
    back = Hasty(revision=back_revision)
    async with brokered(back.ways) as host:
        for declared in (UNABLE, ABLE):
            async with peer(host, revision, capabilities=declared) as client:
                assert "plain" in await names(client)
                assert await called(client, "plain")
        assert all(not line.is_gone for line in back.lines)
