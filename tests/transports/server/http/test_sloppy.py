"""What sloppy clients and proxies say at the door: served where that is harmless, and refused with a fitting word."""

import gzip
from typing import Any

import pytest

from callboard.codecs.revisions import Revision
from tests.transports.server.http.house import open_house
from tests.transports.server.http.sessions import OpenSession, initialize
from tests.transports.server.http.stage import Place, request, serving


def at(place: Place, target: str, message: Any = None, **more: str | None) -> bytes:
    """A modern call of `echo`, or *message*, that is sent to *target*."""
    host = f"127.0.0.1:{place.port}"
    posted = {"host": host, "content_type": "application/json", "accept": "application/json, text/event-stream"}
    whole: bytes = message
    return request("POST", target, content_length=str(len(whole)), **{**posted, **more}) + whole


async def called(place: Place, target: str, **more: str | None) -> int:
    client = await place.connect()
    data = client.modern("tools/call", name="echo", arguments={"text": "hi"}, headers=more)
    await client.send(data.replace(b"POST /mcp ", b"POST %b " % target.encode()))
    return (await client.answer()).status


@pytest.mark.finding("protocol-1.11")
async def test_a_slash_at_the_end_makes_no_difference() -> None:
    async with serving(open_house().server) as place:
        assert await called(place, "/mcp/") == 200
        assert await called(place, "/mcp/?a=b") == 200
        client = await place.connect()
        whole = client.post(initialize(Revision.V2025_06_18))
        await client.send(whole.replace(b"POST /mcp ", b"POST /mcp/ "))
        opened = await client.answer()
        assert opened.status == 200
        host, session = client.host.decode(), opened.headers["mcp-session-id"]
        await client.send(request("DELETE", "/mcp/", host=host, mcp_session_id=session))
        assert (await client.answer()).status == 204
        for target in ("/mcp//", "//mcp", "/", "/mcp/x", "/sse/", "/MCP/"):
            assert await called(place, target) == 404, target


@pytest.mark.finding("protocol-1.11")
async def test_the_same_holds_for_the_old_transport() -> None:
    async with serving(open_house().server) as place:
        place.endpoint.legacy_sse = True
        client = await place.connect()
        await client.send(request("GET", "/sse/", host=client.host.decode(), accept="text/event-stream"))
        assert (await client.stream_of()).head.status == 200


@pytest.mark.finding("protocol-1.12m")
async def test_a_target_in_absolute_form_is_served_if_it_names_this_server() -> None:
    async with serving(open_house().server) as place:
        here = f"http://127.0.0.1:{place.port}"
        for target in (f"{here}/mcp", f"{here}/mcp/", f"{here}/mcp?a=b", f"HTTP://localhost:{place.port}/mcp"):
            assert await called(place, target) == 200, target
        assert await called(place, f"{here}/other") == 404
        assert await called(place, here) == 404
        assert await called(place, "http://evil.example/mcp") == 421
        assert await called(place, f"{here}/mcp", host="evil.example") == 421
        assert await called(place, f"http://evil.example@127.0.0.1:{place.port}/mcp") == 404
        assert await called(place, "ftp://127.0.0.1/mcp") == 404


@pytest.mark.finding("protocol-1.12m")
async def test_a_compressed_body_is_refused_as_such() -> None:
    async with serving(open_house().server) as place:
        answer = await place.ask(at(place, "/mcp", gzip.compress(b"{}"), content_encoding="gzip"))
        assert (answer.status, answer.headers["accept-encoding"]) == (415, "identity")
        assert await called(place, "/mcp", content_encoding="identity") == 200


async def test_a_session_is_found_at_both_spellings() -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, Revision.V2025_06_18)
        whole = session.post(session.request("tools/list"))
        assert (await place.ask(whole.replace(b"POST /mcp ", b"POST /mcp/ "))).status == 200
