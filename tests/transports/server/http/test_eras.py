"""Both eras on one address at the same time: each request is served as what it says it is."""

import pytest
import trio

from callboard import Revision
from callboard.codecs.revisions import LEGACY
from tests.transports.server.http.house import open_house
from tests.transports.server.http.sessions import HTTP_REVISIONS, OpenSession, initialize, said
from tests.transports.server.http.stage import META, VERSION, Json, serving, settle

EACH = pytest.mark.parametrize("revision", HTTP_REVISIONS, ids=str)
LOG = {f"{META}logLevel": "info"}


@EACH
async def test_one_connection_may_speak_both(revision: Revision) -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, revision)
        client = session.client
        for _ in range(3):
            legacy = await session.call("echo", text="x")
            assert "resultType" not in legacy.result
            modern = await client.call("echo", text="x")
            assert modern.result["resultType"] == "complete"


async def test_every_revision_is_served_at_once() -> None:
    house = open_house()
    async with serving(house.server) as place:
        sessions = [await OpenSession.open(place, revision) for revision in HTTP_REVISIONS]
        listening = [await session.listen() for session in sessions]
        modern = await place.connect()
        await modern.send(modern.modern("subscriptions/listen", notifications={"toolsListChanged": True}))
        subscribed = await modern.stream_of()
        await subscribed.message()
        streams = [
            await session.streamed("chat", words=[str(number)], name=f"gate{number}")
            for number, session in enumerate(sessions)
        ]
        caller = await place.connect()
        arguments = {"words": ["modern"], "name": "gate"}
        await caller.send(caller.modern("tools/call", name="chat", arguments=arguments, meta=LOG))
        await house.wait_started("gate", *(f"gate{number}" for number in range(len(streams))))
        house.server.notify_changed("tools")
        for stream in (*listening, subscribed):
            assert (await stream.message())["method"] == "notifications/tools/list_changed"
        for name in list(house.started):
            house.gates[name].set()
        for number, stream in enumerate(streams):
            assert said(await stream.rest()) == [str(number), "done"]
        assert said(await (await caller.stream_of()).rest()) == ["modern", "done"]


async def test_who_leaves_is_cancelled_in_one_era_and_not_in_the_other() -> None:
    house = open_house()
    async with serving(house.server) as place:
        session = await OpenSession.open(place, Revision.V2025_11_25)
        legacy = await session.begin("work", name="legacy")
        modern = await place.connect()
        await modern.send(modern.modern("tools/call", name="work", arguments={"name": "modern"}))
        await house.wait_started("legacy", "modern")
        await legacy.aclose()
        await modern.aclose()
        await house.wait_cut("modern")
        await settle()
        assert list(house.cut) == ["modern"]
        house.gates["legacy"].set()
        await settle()
        assert house.done == ["legacy"]


ERAS: list[tuple[str, Json, dict[str, str | None], bool, str]] = [
    # What it is, its _meta, its headers, whether it names a session; and how it is served.
    ("says nothing", {}, {}, False, "400"),
    ("names a session", {}, {}, True, "legacy"),
    ("names a session and its version", {}, {"mcp_protocol_version": "2025-11-25"}, True, "legacy"),
    ("says a legacy version only", {}, {"mcp_protocol_version": "2025-11-25"}, False, "400"),
    ("says a modern version only", {}, {"mcp_protocol_version": VERSION}, False, "400 -32602"),
    ("says a modern version in a session", {}, {"mcp_protocol_version": VERSION}, True, "400 -32602"),
    (
        "is modern",
        {"protocolVersion": VERSION, "clientCapabilities": {}},
        {"mcp_protocol_version": VERSION},
        False,
        "modern",
    ),
    (
        "is modern and names a session",
        {"protocolVersion": VERSION, "clientCapabilities": {}},
        {"mcp_protocol_version": VERSION},
        True,
        "modern",
    ),
    ("is modern without a header", {"protocolVersion": VERSION, "clientCapabilities": {}}, {}, False, "400 -32020"),
    (
        "is modern without a header, in a session",
        {"protocolVersion": VERSION, "clientCapabilities": {}},
        {},
        True,
        "400 -32020",
    ),
    (
        "is modern with a legacy header",
        {"protocolVersion": VERSION, "clientCapabilities": {}},
        {"mcp_protocol_version": "2025-11-25"},
        True,
        "400 -32020",
    ),
    ("is almost modern", {"clientCapabilities": {}}, {}, False, "400 -32020"),
    ("is almost modern, in a session", {"clientCapabilities": {}}, {}, True, "legacy"),
    ("says an unknown version", {}, {"mcp_protocol_version": "2099-01-01"}, False, "400"),
    ("says an unknown version in a session", {}, {"mcp_protocol_version": "2099-01-01"}, True, "400"),
]


@pytest.mark.parametrize(("what", "meta", "headers", "in_session", "expected"), ERAS, ids=[row[0] for row in ERAS])
async def test_a_request_is_served_as_what_it_says_it_is(
    what: str, meta: Json, headers: dict[str, str | None], in_session: bool, expected: str
) -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, Revision.V2025_11_25)
        client = await place.connect()
        params: Json = {"name": "echo", "arguments": {"text": "x"}}
        if meta:
            params["_meta"] = {META + key: value for key, value in meta.items()}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        named: dict[str, str | None] = {"mcp_session_id": session.id} if in_session else {}
        await client.send(client.post(message, mcp_method="tools/call", mcp_name="echo", **headers, **named))
        answer = await client.answer()
        if answer.status == 200:
            served = "modern" if "resultType" in answer.result else "legacy"
        else:
            served = f"{answer.status} {answer.code}"
        assert served.startswith(expected), what


async def test_a_server_without_modern_revisions_says_what_it_speaks() -> None:
    async with serving(open_house(revisions=LEGACY).server) as place:
        client = await place.connect()
        answer = await client.call("echo", text="x")
        assert (answer.status, answer.code) == (400, -32022)
        assert answer.json["error"]["data"]["supported"] == sorted(LEGACY)
        await client.send(client.post(initialize("2025-11-25")))
        assert (await client.answer()).result


async def test_a_busy_era_does_not_keep_the_other_waiting() -> None:
    house = open_house()
    async with serving(house.server) as place:
        session = await OpenSession.open(place, Revision.V2025_11_25)
        for number in range(30):
            await session.begin("work", name=f"legacy{number}")
        await house.wait_started(*(f"legacy{number}" for number in range(30)))
        client = await place.connect()
        started = trio.current_time()
        assert (await client.call("chat", words=[])).result
        assert trio.current_time() - started < 1
        await session.delete()
