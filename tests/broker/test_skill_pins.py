"""Pinned skills: the first catalogue is taken, and what is new or another is withheld, to the byte."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import structlog
import trio
from trio.testing import MockClock

from callboard import Server, connect
from callboard.actors.broker import skill_pins
from callboard.actors.broker.listing import READ_AGAIN
from callboard.actors.broker.offer import BrokerOffer
from callboard.actors.broker.skill_pins import CHANGES, MAX_CATALOGUE_PAGES
from callboard.actors.changes import ListChanged
from callboard.actors.client.link import Link
from callboard.actors.server.parking import Parking
from callboard.broker import Broker
from callboard.broker.pins import MAX_SERVER, NOTHING, Pins
from callboard.cli.approve import approve as approve_command
from callboard.client.routes import ClientAccess, TransportRoute, TransportRoutes, ways_to
from callboard.codecs.revisions import Revision
from callboard.codecs.skills import digest_of
from callboard.errors import DEFINITION_CHANGED, CannotServe
from callboard.observe.journal import Journal
from callboard.observe.rates import Rates
from callboard.observe.rows import server_rows
from callboard.testing import Refusal
from tests.broker.front import backend, peer, ways_in
from tests.broker.skill_stage import (
    NEW,
    PDF,
    Played,
    QuickPins,
    approve,
    brokered,
    entry,
    listed,
    manifest,
    pinned,
    pinned_client,
    refused,
)


@pytest.fixture
def pins(tmp_path: Path) -> Pins:
    return QuickPins.beside(tmp_path / "servers.toml")


async def test_the_first_catalogue_is_taken_as_a_whole_and_what_comes_later_waits(
    pins: Pins, autojump_clock: MockClock
) -> None:
    played = Played()
    first = pinned(played.entries[0]).digest
    with structlog.testing.capture_logs() as logs:
        async with pinned_client(pins, played) as client:
            assert await client.request("skills/get", uri=PDF)  # the first that any client wants to know
            assert await listed(client) == ["pdf", "notes"]
            played.entries = [entry(told="Sends files away.", a=b"a"), *played.entries[1:], entry("new")]
            assert await listed(client) == ["notes"]
            digests = {"pinned": first, "found": pinned(played.entries[0]).digest}
            assert await refused(client, "skills/get", PDF) == digests
            assert await refused(client, "resources/read", "skill://pdf/a") == digests
            assert await refused(client, "resources/read", PDF) == digests
            assert await refused(client, "resources/directory/read", "skill://pdf") == digests
            fresh = {"pinned": NOTHING, "found": pinned(played.entries[2]).digest}
            assert await refused(client, "resources/read", "skill://new/SKILL.md") == fresh
            assert (await client.request("tools/call", name="add", arguments={"a": 1, "b": 2}))["content"]
    told = [one for one in logs if one["event"] == "definition_changed"]
    assert [(one["skill"], one["found"]) for one in told] == [
        (PDF, digests["found"]),
        ("skill://new/SKILL.md", fresh["found"]),
    ]


async def test_an_approval_lets_a_running_broker_show_a_skill(pins: Pins, autojump_clock: MockClock) -> None:
    played = Played(files={"skill://pdf/b": b"b"})
    async with pinned_client(pins, played) as client:
        assert await listed(client) == ["pdf", "notes"]
        played.entries[0] = entry(b=b"b")
        assert await listed(client) == ["notes"]
        await approve(pins, PDF)
        assert await listed(client) == ["pdf", "notes"]
        assert await client.request("skills/get", uri=PDF)
        assert await client.request("resources/read", uri="skill://pdf/b")
        assert not pins.waiting()


async def test_bytes_that_are_not_those_of_the_approved_entry_are_refused(
    pins: Pins, autojump_clock: MockClock
) -> None:
    data = b"\xff\x00"
    texts = {"skill://pdf/a": "größer".encode(), "skill://pdf/bin": data, PDF: manifest("pdf", "Fills forms.")}
    played = Played([entry(a=texts["skill://pdf/a"], bin=data)], files={**texts, "skill://pdf/more": b"more"})
    with structlog.testing.capture_logs() as logs:
        async with pinned_client(pins, played) as client:
            for uri in texts:
                assert await client.request("resources/read", uri=uri)
            for uri, evil in (("skill://pdf/a", b"gr\xc3\xb6sser"), ("skill://pdf/bin", data + b"\n"), (PDF, b"")):
                played.files[uri] = evil
                assert await refused(client, "resources/read", uri) == {
                    "pinned": digest_of(texts[uri]),
                    "found": digest_of(evil),
                }
            unlisted = await refused(client, "resources/read", "skill://pdf/more")
            assert unlisted == {"pinned": NOTHING, "found": NOTHING}
            assert "pdf/more" not in played.asked
            for nowhere in ("skill://other/SKILL.md", "skill://pdf", "skill://"):
                with pytest.raises(Refusal) as caught:
                    await client.request("resources/read", uri=nowhere)
                assert caught.value.code != DEFINITION_CHANGED or nowhere == "skill://pdf"
    assert [one["event"] for one in logs].count("definition_changed") == 5


@pytest.mark.parametrize("revision", [Revision("2025-06-18"), Revision("2026-07-28")])
async def test_a_server_whose_skills_wait_costs_no_other_server_its_own(
    revision: Revision, pins: Pins, autojump_clock: MockClock
) -> None:
    files = {PDF: manifest("pdf", "Fills forms.")}
    one, two = Played([entry()], files=files), Played([entry()], files=files)
    specs = [backend(each.server(), name, prefix=None, pin=True) for name, each in (("one", one), ("two", two))]
    async with brokered(pins, *specs) as host, peer(host, revision) as client:
        assert await listed(client) == ["pdf", "pdf"]
        one.entries = [entry(told="Sends files away.")]
        assert await listed(client) == ["pdf"]
        assert await refused(client, "resources/read", "skill://one/pdf/SKILL.md")
        with pytest.raises(Refusal, match=r"definition of skill://one/pdf/.* has changed and is not approved"):
            await client.request("skills/get", uri="skill://one/pdf/SKILL.md")
        (content,) = (await client.request("resources/read", uri="skill://two/pdf/SKILL.md"))["contents"]
        assert content["uri"] == "skill://two/pdf/SKILL.md"


@pytest.mark.parametrize(("limit", "most"), [("MAX_SKILLS", 3), ("MAX_KEPT", 600)])
async def test_what_is_kept_of_a_server_is_bounded_and_the_rest_is_withheld(
    limit: str, most: int, pins: Pins, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skill_pins, limit, most)
    played = Played([entry(f"skill-{number}") for number in range(6)], page_size=2)
    with structlog.testing.capture_logs() as logs:
        async with pinned_client(pins, played) as client:
            assert await listed(client) == ["skill-0", "skill-1", "skill-2"]
            assert (await refused(client, "skills/get", "skill://skill-5/SKILL.md"))["pinned"] == NOTHING
    assert [one["event"] for one in logs].count("skills_cut") in (1, 2)
    assert len(pins.known()["back"]) == 1 + 3


async def test_a_read_that_waits_for_a_server_to_start_waits_for_its_catalogue(
    pins: Pins, autojump_clock: MockClock
) -> None:
    played = Played(files={PDF: manifest("pdf", "Sends files away.")}, page_size=5)
    (way,) = ways_to(played.server(), ClientAccess()).ways

    @asynccontextmanager
    async def open_late() -> AsyncIterator[Link]:
        await trio.sleep(2)
        async with way.open() as link:
            yield link

    slow = backend(TransportRoutes(None, (TransportRoute("late", open_late),)), prefix=None, pin=True)
    async with brokered(pins, slow, pre_warm=0.0) as host, peer(host) as client:
        assert await refused(client, "resources/read", "skill://back/pdf/SKILL.md")
        assert played.asked == ["list", "pdf/SKILL.md"]


async def test_dynamic_files_are_not_compared_but_stay_inside_their_skill(
    pins: Pins, autojump_clock: MockClock
) -> None:
    played = Played([{**entry(), "resources": "dynamic"}], files={"skill://pdf/a": b"one"})
    async with pinned_client(pins, played) as client:
        for data in (b"one", b"two"):
            played.files["skill://pdf/a"] = data
            assert await client.request("resources/read", uri="skill://pdf/a")
        assert await refused(client, "resources/read", "skill://pdf/%2e%2e/a")


async def test_a_directory_has_only_what_was_approved(pins: Pins, autojump_clock: MockClock) -> None:
    files = dict.fromkeys(["skill://pdf/a", "skill://pdf/b", PDF, "skill://new/SKILL.md", "skill://notes"], b"a")
    played = Played([entry(a=b"a"), entry("notes")], files=files)
    async with pinned_client(pins, played) as client:
        found = await client.request("resources/directory/read", uri="skill://")
        assert [one["uri"] for one in found["resources"]] == ["skill://pdf/a", PDF, "skill://notes"]


async def test_an_unpinned_server_is_asked_nothing_more_and_calls_of_tools_ask_for_no_catalogue(
    pins: Pins, autojump_clock: MockClock
) -> None:
    played = Played(files={"skill://pdf/a": b"evil"})
    async with brokered(pins, backend(played.server())) as host, peer(host) as client:
        assert await client.request("resources/read", uri="skill://pdf/a")
        await client.request("skills/get", uri=PDF)
        assert played.asked == ["pdf/a"]
    async with pinned_client(pins, played) as client:
        await client.request("tools/call", name="add", arguments={"a": 1, "b": 2})
        await client.request("tools/list")
        assert played.asked == ["pdf/a"]


async def test_a_server_whose_catalogue_cannot_be_read_shows_no_skill(pins: Pins, autojump_clock: MockClock) -> None:
    played = Played(fails=True, files={"skill://pdf/a": b"a"})
    with structlog.testing.capture_logs() as logs:
        async with pinned_client(pins, played) as client:
            for _ in range(3):
                assert await listed(client) == []
            for method, uri in (("skills/get", PDF), ("resources/read", "skill://pdf/a")):
                with pytest.raises(Refusal, match="its skills cannot be read"):
                    await client.request(method, uri=uri)
            assert played.asked == ["list"]
            played.fails = False
            await trio.sleep(READ_AGAIN)
            assert await listed(client) == ["pdf", "notes"]
            assert await client.request("resources/read", uri="skill://pdf/a")
    assert "skills_not_listed" in [one["event"] for one in logs]


async def test_many_clients_have_the_catalogue_read_once(pins: Pins, autojump_clock: MockClock) -> None:
    played = Played(files={"skill://pdf/a": b"a"}, page_size=5)
    async with brokered(pins, backend(played.server(), pin=True)) as host:

        async def read() -> None:
            async with peer(host) as client:
                assert await client.request("resources/read", uri="skill://pdf/a")

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(read)
    assert played.asked == ["list", *8 * ["pdf/a"]]


async def test_a_hostile_catalogue_ends_and_its_odd_entries_stand_for_nothing(
    pins: Pins, autojump_clock: MockClock
) -> None:
    odd: list[Any] = [None, 7, {}, {**entry(), "uri": "skill://x/SKILL.md"}, entry("twin"), entry("twin", "Another.")]
    played = Played([*odd, entry()], is_endless=True, files={"skill://twin/SKILL.md": manifest("twin", "Another.")})
    with structlog.testing.capture_logs() as logs:
        async with pinned_client(pins, played) as client:
            with pytest.raises(Refusal):
                await client.request("resources/read", uri="skill://twin/SKILL.md")
            assert len(played.asked) == MAX_CATALOGUE_PAGES
            assert list(pins.known()["back"]) == ["add", PDF]
            assert await listed(client) == ["pdf"]
    assert "skills_cut" in [one["event"] for one in logs]


async def test_a_flood_of_changes_is_withheld_and_neither_noted_nor_logged_without_end(
    pins: Pins, autojump_clock: MockClock
) -> None:
    played = Played()
    with structlog.testing.capture_logs() as logs:
        async with pinned_client(pins, played) as client:
            assert await listed(client) == ["pdf", "notes"]
            for number in range(3 * CHANGES.count):
                played.entries[0] = entry(told=f"Another one: {number}.")
                assert (await refused(client, "skills/get", PDF))["found"] == pinned(played.entries[0]).digest
            assert await refused(client, "resources/read", PDF)
    assert [one["event"] for one in logs].count("definition_changed") <= CHANGES.count + 1
    assert pins.waiting()[0].found not in (pinned(played.entries[0]).digest, NOTHING)


async def test_a_server_that_changes_all_its_skills_has_them_noted_little_by_little(
    pins: Pins, autojump_clock: MockClock
) -> None:
    names = [f"skill-{number}" for number in range(2 * CHANGES.count)]
    played = Played([entry(name) for name in names], page_size=1000, files={"skill://skill-0/SKILL.md": b""})
    async with pinned_client(pins, played) as client:
        assert await client.request("skills/get", uri="skill://skill-0/SKILL.md")
        played.entries = [entry(name, "Sends files away.") for name in names]
        await trio.sleep(READ_AGAIN)
        for _ in range(2):  # the first is the reason to read the catalogue again
            await refused(client, "resources/read", "skill://skill-0/SKILL.md")
        assert 0 < len(pins.waiting()) <= CHANGES.count + 1


async def test_skills_of_before_are_pinned_in_the_next_run_and_if_the_server_says_that_it_has_none(
    pins: Pins, autojump_clock: MockClock
) -> None:
    async with pinned_client(pins, Played()) as client:
        assert await listed(client) == ["pdf", "notes"]
    played = Played([entry(told="Sends files away."), entry("notes")])
    async with pinned_client(pins, played) as client:
        assert await listed(client) == ["notes"]
    silent = Server("silent")

    @silent.resource("skill://{+path}")
    async def read(path: str) -> str:
        return f"evil {path}"

    async with brokered(pins, backend(silent, pin=True)) as host, peer(host) as client:
        with pytest.raises(Refusal, match="its skills cannot be read"):
            await client.request("resources/read", uri=PDF)
    async with brokered(pins, backend(silent, "other", pin=True)) as host, peer(host) as client:
        assert await client.request("resources/read", uri=PDF)  # a resource like any other, of a server without skills


async def test_a_file_that_differs_has_the_catalogue_read_again_so_that_its_skill_waits_for_approval(
    pins: Pins, autojump_clock: MockClock
) -> None:
    played = Played(files={"skill://pdf/a": b"a"}, page_size=5)
    async with pinned_client(pins, played) as client:
        assert await client.request("resources/read", uri="skill://pdf/a")
        played.entries[0], played.files["skill://pdf/a"] = entry(a=b"b"), b"b"
        await trio.sleep(READ_AGAIN)
        first = await refused(client, "resources/read", "skill://pdf/a")
        assert first == {"pinned": digest_of(b"a"), "found": digest_of(b"b")}
        assert not pins.waiting()
        second = await refused(client, "resources/read", "skill://pdf/a")
        assert second == {"pinned": pinned(entry(a=b"a")).digest, "found": pinned(entry(a=b"b")).digest}
        assert [one.tool for one in pins.waiting()] == [PDF]
        assert played.asked.count("list") == 2


async def test_a_server_that_was_started_again_shows_what_is_as_it_was_approved(
    pins: Pins, autojump_clock: MockClock
) -> None:
    played = Played(files={"skill://notes/SKILL.md": manifest("notes", "Fills forms."), PDF: b""}, page_size=5)
    async with brokered(pins, backend(played.server(), pin=True)) as host, peer(host) as client:
        assert await listed(client) == ["pdf", "notes"]
        played.entries[0] = entry(told="Sends files away.")
        (back,) = cast("BrokerOffer", host.offer).backends.values()
        assert back.act("restart")
        for _ in range(3):
            await client.request("resources/read", uri="skill://notes/SKILL.md")
        assert played.asked.count("list") == 3  # the client's, and the broker's of each connection
        assert [one.tool for one in pins.waiting()] == [PDF]
        assert await refused(client, "resources/read", f"callboard://back/{PDF}")
        (row,) = [row for row in server_rows(host, Journal(host.offer.owner_of), {}, Rates()) if row is not None]
        assert row["withheld"] == 1


async def test_a_server_that_sleeps_is_woken_for_its_catalogue(pins: Pins, autojump_clock: MockClock) -> None:
    played = Played(page_size=5, files={"skill://pdf/a": b"a"})
    async with brokered(pins, backend(played.server(), pin=True, idle_stop=60.0)) as host, peer(host) as client:
        assert await client.request("resources/read", uri="skill://pdf/a")
        (back,) = cast("BrokerOffer", host.offer).backends.values()
        played.files["skill://pdf/a"] = b"b"
        played.entries[0] = entry(a=b"b")
        await trio.sleep(600)
        assert back.circuit.rests
        assert await listed(client) == ["notes"]
        assert await refused(client, "resources/read", "skill://pdf/a")


async def test_the_first_skills_of_a_server_that_had_none_are_taken_as_a_whole(
    pins: Pins, autojump_clock: MockClock
) -> None:
    played = Played([])
    async with pinned_client(pins, played) as client:
        assert await listed(client) == []
        played.entries = [entry(), entry("notes"), entry("more")]
        await trio.sleep(READ_AGAIN)
        assert await listed(client) == ["pdf", "notes", "more"]
        played.entries.append(entry("new"))
        assert await listed(client) == ["pdf", "notes", "more"]


async def test_a_skill_that_is_not_listed_waits_like_one_that_is(pins: Pins, autojump_clock: MockClock) -> None:
    played = Played(unlisted=[entry("new")])
    async with pinned_client(pins, played) as client:
        assert await refused(client, "skills/get", NEW) == {"pinned": NOTHING, "found": pinned(entry("new")).digest}
        assert [one.tool for one in pins.waiting()] == [NEW]


async def test_clients_are_told_when_an_operator_has_approved_of_a_skill(pins: Pins, autojump_clock: MockClock) -> None:
    played = Played(page_size=5)
    async with brokered(pins, backend(played.server(), pin=True)) as host, connect(ways_in(host)) as client:
        await client.skills()
        played.entries.append(entry("new"))
        assert len(await client.skills()) == 2
        async with client.listen(lists=True) as changes:
            await approve(pins, NEW)
            assert await anext(aiter(changes)) == ListChanged("resources")
        assert len(await client.skills()) == 3


async def test_a_reload_turns_pins_of_skills_on_and_off(pins: Pins, autojump_clock: MockClock) -> None:
    played = Played()
    server = played.server()
    broker = Broker([backend(server)], approve=pins.approve)
    broker.pins = pins

    async def reload(*, pin: bool) -> None:
        await broker.reload([backend(server, pin=pin)])
        await broker.backends["back"].wait_up()

    async with broker.host(parking=Parking("broker")) as host, peer(host) as client:
        assert await listed(client) == ["pdf", "notes"]
        assert not pins.has_skills("back")
        await reload(pin=True)
        assert await listed(client) == ["pdf", "notes"]
        played.entries[0] = entry(told="Sends files away.")
        assert await listed(client) == ["notes"]
        await reload(pin=False)
        assert await listed(client) == ["pdf", "notes"]
        await reload(pin=True)
        assert await listed(client) == ["notes"]


async def test_large_skills_are_compared_as_small_ones_are(pins: Pins) -> None:
    files = {f"file-{number}": b"x" * 40_000 for number in range(200)}
    played = Played([entry("pdf", "Fills forms.", **files)], files={"skill://pdf/file-7": b"x" * 40_000})
    async with pinned_client(pins, played) as client:
        assert await listed(client) == ["pdf"]
        assert await client.request("resources/read", uri="skill://pdf/file-7")
        played.files["skill://pdf/file-7"] = b"x" * 39_999 + b"y"
        assert (await refused(client, "resources/read", "skill://pdf/file-7"))["pinned"] == digest_of(b"x" * 40_000)


def test_one_skill_is_approved_by_its_uri(pins: Pins, capsys: pytest.CaptureFixture[str]) -> None:
    config = pins.file.with_name("servers.toml")
    config.touch()
    pins.approve_skills("office", {PDF: "1" * 64})
    pins.approve_skills("office", {PDF: "2" * 64, NEW: "3" * 64})
    pins.save()
    assert approve_command(config, "office", PDF) == 0
    assert capsys.readouterr().out.split() == ["office", PDF, "1" * 12, "2" * 12]
    assert [one.tool for one in Pins.beside(config).waiting()] == [NEW]
    with pytest.raises(CannotServe, match="office has no tool or skill"):
        approve_command(config, "office", "skill://pxf/SKILL.md")


def test_tools_and_skills_have_first_lists_of_their_own(pins: Pins) -> None:
    assert pins.approve_skills("back", {PDF: "1"}) == {}
    assert pins.approve("back", {"act": "1"}) == {}
    assert pins.approve("back", {PDF: "2", "evil": "1"}) == {PDF: NOTHING, "evil": NOTHING}
    assert pins.approve_skills("back", {PDF: "2", NEW: "1"}) == {
        PDF: "1",
        NEW: NOTHING,
    }
    assert [one.tool for one in pins.waiting()] == [PDF, "evil", NEW]


def test_what_one_server_adds_never_makes_the_file_too_large_to_be_read(pins: Pins) -> None:
    names = [f"skill://{number}/{'x' * 1000}/SKILL.md" for number in range(5000)]
    pins.approve_skills("back", dict.fromkeys(names, "0" * 64))
    withheld = pins.approve_skills("back", dict.fromkeys(names, "1" * 64))
    pins.save()
    assert len(withheld) == len(names)
    assert pins.file.stat().st_size < MAX_SERVER * 1.1
    assert Pins.beside(pins.file.with_name("servers.toml")).known() == pins.known()
