"""Paths and extensions of a broker in several processes: any worker serves any path, and sessions stay at theirs."""

import sys
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import pytest
import trio

import callboard
from callboard.codecs.bridge.transparent import UI
from callboard.errors import CannotConnect
from tests.served import Addresses, served
from tests.shared import APPS

HOST: Final[dict[str, Any]] = {UI: {"mimeTypes": ["text/html;profile=mcp-app"]}}
PATIENCE: Final = 60.0


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    file = tmp_path_factory.mktemp("paths") / "servers.toml"
    entry = f"command = {sys.executable!r}\nargs = ['-m', 'callboard', 'run', '{APPS / 'page_server.py'}']\n"
    legacy = 'revision = "2025-11-25"\n'
    texts = [f"[mcpServers.{name}]\n{entry}[mcpServers.{name}.callboard]\n{legacy}" for name in ("one", "two")]
    file.write_text("\n".join([*texts, '[profiles.few]\nservers = ["two"]\nallow = ["*show"]\n']))
    with served(str(file), "--workers", "2", ws=True, command="serve") as addresses:
        yield addresses


def post(url: str, session: str | None, method: str, **params: Any) -> tuple[int, str]:
    """One POST on a connection of its own, which any worker may accept: the status and the session of the answer."""
    said = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    said |= {} if session is None else {"mcp-session-id": session}
    is_request = not method.startswith("notifications/")
    body = {"jsonrpc": "2.0", "method": method, "params": params, **({"id": 1} if is_request else {})}
    where = urlsplit(url)
    with closing(HTTPConnection(where.netloc, timeout=PATIENCE)) as connection:
        connection.request("POST", where.path, msgspec.json.encode(body), said)
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.getheader("mcp-session-id", "")


def test_a_session_is_found_at_its_path_by_any_worker_and_at_no_other_path(two_workers: Addresses) -> None:
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    for _ in range(3):
        status, session = post(f"{two_workers.http}/one", None, "initialize", **about)
        assert (status, bool(session)) == (200, True)
        assert post(f"{two_workers.http}/one", session, "notifications/initialized")[0] == 202
        for _ in range(4):
            assert post(f"{two_workers.http}/one", session, "tools/list")[0] == 200
            assert post(f"{two_workers.http}/two", session, "tools/list")[0] == 404
            assert post(two_workers.http, session, "tools/list")[0] == 404
    assert post(f"{two_workers.http}/none", None, "initialize", **about)[0] == 404


@pytest.mark.parametrize("transport", ["http", "ws"])
async def test_each_path_has_its_own_names_and_extensions_cross_the_keeper(
    two_workers: Addresses, transport: str
) -> None:
    url = getattr(two_workers, transport)
    with trio.fail_after(PATIENCE):
        for _ in range(2):
            async with callboard.connect(f"{url}/one", extensions=HOST) as client:
                assert [one.name for one in await client.tools()] == ["show", "seen"]
                assert [one.uri for one in await client.resources()] == ["ui://view"]
                [said] = (await client.call("seen")).content
                assert getattr(said, "text", "") == UI
            async with callboard.connect(f"{url}/few") as client:
                assert [one.name for one in await client.tools()] == ["two__show"]
            async with callboard.connect(url, extensions=HOST) as client:
                assert [one.uri for one in await client.resources()] == ["ui://one/view", "ui://two/view"]
                [page] = (await client.read("ui://two/view")).contents
                assert (page.uri, getattr(page, "text", "")) == ("ui://two/view", "<!doctype html><p>a page</p>")
        with pytest.raises(CannotConnect):
            async with callboard.connect(f"{url}/none"):
                raise AssertionError("there is no such path")
