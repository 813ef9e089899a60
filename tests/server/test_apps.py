"""MCP Apps of a hosted server: a page, and tools that name it."""

from pathlib import Path

import pytest

from callboard import Server
from callboard.codecs.bridge.transparent import UI
from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R3, R4, R5
from callboard.server.apps import PAGE_TYPE
from callboard.testing import Peer
from tests.broker.front import peer

HTML = '<!doctype html>\r\n<p>"é" \u2028</p>\n'


def weather(folder: Path) -> Server:
    server = Server("weather")
    page = folder / "view.html"
    page.write_bytes(HTML.encode())
    server.app("ui://weather/view", page, csp={"connectDomains": ["https://example.com"]}, prefers_border=True)

    @server.tool(ui="ui://weather/view")
    async def forecast(city: str) -> str:
        return f"Rain in {city}"

    @server.tool(ui="ui://weather/view", visibility=["app"], meta={"example.com/x": 1})
    async def refresh() -> str:
        return "Rain"

    return server


async def known(client: Peer) -> object:
    about = client.agreed or await client.request("server/discover")
    return about["capabilities"]["extensions"]


@pytest.mark.parametrize("revision", [R3, R4, R5])
async def test_a_host_finds_the_page_and_the_tools_of_an_app(tmp_path: Path, revision: Revision) -> None:
    async with weather(tmp_path).host() as host, peer(host, revision) as client:
        assert await known(client) == {UI: {"mimeTypes": [PAGE_TYPE]}}
        tools = {one["name"]: one["_meta"] for one in (await client.request("tools/list"))["tools"]}
        assert tools["forecast"] == {"ui": {"resourceUri": "ui://weather/view"}}
        assert tools["refresh"] == {
            "ui": {"resourceUri": "ui://weather/view", "visibility": ["app"]},
            "example.com/x": 1,
        }
        [listed] = (await client.request("resources/list"))["resources"]
        about = {"csp": {"connectDomains": ["https://example.com"]}, "prefersBorder": True}
        assert (listed["uri"], listed["mimeType"], listed["_meta"]["ui"]) == ("ui://weather/view", PAGE_TYPE, about)
        [contents] = (await client.request("resources/read", uri="ui://weather/view"))["contents"]
        assert (contents["mimeType"], contents["text"], contents["_meta"]["ui"]) == (PAGE_TYPE, HTML, about)


async def test_a_page_that_was_edited_is_read_anew(tmp_path: Path) -> None:
    async with weather(tmp_path).host() as host, peer(host, R5) as client:
        (tmp_path / "view.html").write_text("<p>new</p>")
        [contents] = (await client.request("resources/read", uri="ui://weather/view"))["contents"]
        assert contents["text"] == "<p>new</p>"


def test_a_page_needs_a_file_and_a_uri_of_its_scheme(tmp_path: Path) -> None:
    server = Server("demo")
    (tmp_path / "a.html").write_text("")
    with pytest.raises(ValueError, match="expected ui://NAME"):
        server.app("https://example.com", tmp_path / "a.html")
    with pytest.raises(FileNotFoundError):
        server.app("ui://a", tmp_path / "none.html")
    with pytest.raises(ValueError, match="expected ui://NAME"):
        server.tool(ui="page.html")


async def test_a_server_without_a_page_says_nothing_of_apps() -> None:
    async with Server("demo").host() as host, peer(host, R4) as client:
        assert "extensions" not in client.agreed["capabilities"]
