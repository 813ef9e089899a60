"""Promise 20: what reached no one is counted, by kind and reason, and never kept with what it said."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.server.host import Host
from callboard.actors.server.subscription import SUBSCRIPTION_SIZE
from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R4, R5
from callboard.supervisor import Lost
from callboard.testing import Refusal
from tests.broker.back import SUBSCRIPTION, Back, text
from tests.broker.front import backend, brokered, peer
from tests.figures import figure

CANARY = "s3cret-canary"


def ignored(host: Host) -> int:
    """What the connections to backends were told for nothing."""
    facts = [node.facts for node in host.root.tree().walk() if node.kind == "BackendConnection"]
    return sum(int(one["ignored"] or 0) for one in facts)


@pytest.mark.parametrize("revision", [R4, R5], ids=str)
async def test_20_answers_that_nobody_waits_for_are_counted(revision: Revision, autojump_clock: MockClock) -> None:
    back = Back(revision)
    async with brokered(backend(back.ways, timeout=1)) as host, peer(host, capabilities={}) as client:
        for number in range(20):
            begun = await client.begin("tools/call", name="book", arguments={})
            line, request = await back.hear()
            await line.answer(request, **text("once"))
            await line.answer(request, **text(CANARY))  # twice
            await line.say(id=10_000 + number, result={})  # to nobody's question
            await line.tell("notifications/progress", progressToken=999, progress=number)
            await client.finish(begun)
        begun = await client.begin("tools/call", name="book", arguments={})
        line, request = await back.hear()
        with pytest.raises(Refusal, match="-31002"):
            await client.finish(begun)
        await line.answer(request, **text("too late"))
        await wait_all_tasks_blocked()
        assert ignored(host) == 20 * 3 + 1
        assert not client.heard
    figure("promise 20", f"61 messages of a backend for nobody, 61 counted ({revision})")


async def test_20_what_a_subscriber_was_not_told_is_counted_and_it_hears_that_it_was_cut_off(
    autojump_clock: MockClock,
) -> None:
    back, told = Back(), 3000
    async with brokered(back.ways) as host, peer(host) as client:
        begun = await client.begin("subscriptions/listen", notifications={"resourceSubscriptions": ["notes://one"]})
        assert (await client.hear())["method"] == "notifications/subscriptions/acknowledged"
        [line] = back.lines
        [listens] = [one for one, chosen in line.listens.items() if "resourceSubscriptions" in chosen]
        for number in range(told):  # the client reads nothing all the while
            about = {SUBSCRIPTION: listens}
            await line.tell("notifications/resources/updated", uri=f"notes://one/{CANARY}/{number}", _meta=about)
        await wait_all_tasks_blocked()
        letters = host.root.dead_letters
        lost = {reason: letters.counts["ResourceUpdated", reason] for reason in Lost}
        assert lost[Lost.ENDED] == SUBSCRIPTION_SIZE
        assert lost[Lost.OVERFLOWED] >= 1
        assert CANARY not in repr(letters.recent)
        assert len(letters.recent) <= 1000
        heard = 0
        with trio.fail_after(60):
            while (message := await client.hear())["method"] == "notifications/resources/updated":
                heard += 1
        assert message["method"] == "notifications/cancelled"
        assert message["params"]["requestId"] == begun
        assert heard + letters.total <= told
        assert (await client.request("tools/list"))["tools"]  # the connection itself goes on
    figure(
        "promise 20",
        f"{told} changes: {heard} heard before the cut, {letters.total} counted, the rest wanted by nobody",
    )


@pytest.mark.finding("faults-H3")
async def test_20_what_a_legacy_session_was_not_told_is_counted_and_it_hears_that_more_has_changed(
    autojump_clock: MockClock,
) -> None:
    back, told = Back(), 5000
    async with brokered(back.ways) as host, peer(host, R4) as client:
        await client.request("resources/subscribe", uri="notes://one")
        [line] = back.lines
        [listens] = [one for one, chosen in line.listens.items() if "resourceSubscriptions" in chosen]
        for number in range(told):  # the client reads nothing all the while
            about = {SUBSCRIPTION: listens}
            await line.tell("notifications/resources/updated", uri=f"notes://one/{number}", _meta=about)
        await wait_all_tasks_blocked()
        heard, more = 0, 0
        with trio.move_on_after(60):
            while True:
                method = (await client.hear())["method"]
                heard += method == "notifications/resources/updated"
                more += method == "notifications/resources/list_changed"
        letters = host.root.dead_letters
        lost = sum(count for (kind, _), count in letters.counts.items() if kind == "ResourceUpdated")
    figure("promise 20", f"{told} changes, a legacy session that does not read: {heard} heard, {lost} counted as lost")
    assert heard + lost == told
    assert heard < told
    assert more == 1
