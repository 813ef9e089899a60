"""What a listener refuses is logged once for each name or client, with the flag that would allow it; never a token."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog
import trio

from callboard import Server
from callboard.serve.refused_names import MOST_NAMES, RefusedNames
from callboard.serve.run import serve
from callboard.serve.tokens import TokenFile
from tests.broker.test_admin import ask
from tests.observe.admin import token_file

WRONG = "0123456789-not-a-known-token"


async def refused(folder: Path, **options: Any) -> list[Any]:
    """What is logged when each door is asked three times: by another page, without a token, with a wrong one."""
    given: Any = {"http": 0, "admin": 0, **options}
    given |= {"authenticate": TokenFile(Path(token_file(folder, "tokens", "ada 0123456789abcdef-client")))}
    given |= {"admin_token_file": token_file(folder)}
    with structlog.testing.capture_logs() as logged:
        async with trio.open_nursery() as nursery:
            ready = await nursery.start(_serve, given)
            urls = {one.transport: one.url or "" for one in ready.listening}
            for _ in range(3):
                for url, path in ((urls["http"], "/mcp"), (urls["admin"], "/api/snapshot")):
                    assert (await ask(url, path, origin="https://Page.example"))[0] == 403
                    assert (await ask(url, path))[0] == 401
                    assert (await ask(url, path, authorization=f"Bearer {WRONG}"))[0] == 401
                assert (await _upgrade(urls["ws"] if "ws" in urls else urls["http"])) in (401, 501)
            nursery.cancel_scope.cancel()
    assert WRONG not in str(logged)
    lines = [line for line in logged if line["event"].endswith("_refused")]
    admin = str(urlsplit(urls["admin"]).port)
    return [{**line, "is_admin": line["listener"].endswith(admin)} for line in lines]


async def _serve(given: Any, *, task_status: trio.TaskStatus[Any]) -> None:
    await serve(Server("app"), task_status=task_status, **given)


async def _upgrade(url: str) -> int:
    """A WebSocket without a token."""
    said = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-version": "13"}
    return (await ask(url, "/mcp", **said, **{"sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA=="}))[0]


async def test_each_door_says_once_whom_it_refused_and_which_flag_would_help(tmp_path: Path) -> None:
    lines = await refused(tmp_path)
    told = [(line["is_admin"], line.get("origin") or line["reason"], line["fix"], line["log_level"]) for line in lines]
    only_own = "none: only its own page may use this listener"
    assert sorted(told) == [
        (False, "https://page.example", "--allow-origin https://page.example", "warning"),
        (False, "no token", "a token of --token-file", "info"),
        (False, "unknown token", "a token of --token-file", "warning"),
        (True, "https://page.example", only_own, "warning"),
        (True, "no token", "a token of --admin-token-file", "info"),
        (True, "unknown token", "a token of --admin-token-file", "warning"),
    ]
    assert {line["client"] for line in lines if "client" in line} == {"127.0.0.1"}


async def test_a_websocket_without_a_token_is_logged_too(tmp_path: Path) -> None:
    lines = await refused(tmp_path, ws="localhost:0")
    ports = {line["listener"] for line in lines if line.get("reason") == "no token"}
    assert len(ports) == 3


def test_clients_without_a_token_cannot_fill_the_log() -> None:
    names = RefusedNames("0.0.0.0:1")
    with structlog.testing.capture_logs() as logged:
        for number in range(1000):
            names.token(f"anonymous@10.0.{number // 250}.{number % 250}", "unknown token")
            names.origin(b"https://%d.example" % number)
        names.host(b"still.example")
    assert len(logged) == 2 * MOST_NAMES + 1
