"""`/readyz` as an orchestrator asks for it, of a broker whose servers are not all up; and its verbose form, for its
operator."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.observe.admin import BEARER, Operator, token_file
from tests.process import CALLBOARD, started
from tests.shared import APPS

UP = {"command": sys.executable, "args": ["-m", "callboard", "run", str(APPS / "frank.py")]}
DOWN = {"command": "sh", "args": ["-c", "exit 7"], "callboard": {"restart": {"times": 1}}}
REQUIRED = {**DOWN, "callboard": {"restart": {"times": 1}, "required": True}}


@asynccontextmanager
async def broker(folder: Path, servers: Any, *flags: str) -> AsyncIterator[Operator]:
    config = folder / "servers.json"
    config.write_text(json.dumps({"mcpServers": servers}))
    async with started(*CALLBOARD, "serve", str(config), "--http", "0", "--admin", "0", "--json", *flags) as process:
        told = await process.hear()
        url = next(one["url"] for one in told["listening"] if one["transport"] == "admin")
        yield Operator(urlsplit(url).port or 0)
        process.signal()


@pytest.mark.parametrize(
    ("servers", "flags", "status"),
    [
        ({"a": UP, "b": DOWN, "c": DOWN}, (), 200),  # one is enough, unless the operator says otherwise
        ({"a": UP, "b": DOWN, "c": DOWN}, ("--ready-when", "all"), 503),
        ({"a": UP, "b": REQUIRED, "c": DOWN}, (), 503),
        ({"a": UP, "b": DOWN, "c": DOWN}, ("--workers", "2"), 200),
        ({"a": UP, "b": REQUIRED, "c": DOWN}, ("--workers", "2"), 503),
    ],
    ids=["any", "all", "required", "any-workers", "required-workers"],
)
async def test_it_says_from_the_first_moment_what_the_operator_asked_for(
    tmp_path: Path, servers: Any, flags: tuple[str, ...], status: int
) -> None:
    async with broker(tmp_path, servers, *flags) as operator:
        answer = await operator.ask("/readyz")
        assert (answer.status, answer.body) == (status, b"ok\n" if status == 200 else b"not ready\n")
        answer = await operator.ask("/readyz?verbose")
        first, count, *missing = answer.body.decode().splitlines()
        assert (answer.status, first) == (status, "ok" if status == 200 else "not ready")
        assert count == "1 of 3 servers are up"
        assert [line.split(":")[0] for line in missing] == ["- b", "- c"]
        assert all("exit" in line for line in missing), missing
        assert ("required" in missing[0]) == (servers["b"] is REQUIRED)


async def test_strangers_hear_nothing_but_that(tmp_path: Path) -> None:
    flags = ("--admin-token-file", token_file(tmp_path))
    async with broker(tmp_path, {"a": UP, "b": DOWN}, *flags) as operator:
        for headers in ((), ("authorization: Bearer 0123456789abcdef-other",)):
            answer = await operator.ask("/readyz?verbose", *headers)
            assert (answer.status, answer.body) == (200, b"ok\n")
        assert b"1 of 2 servers are up\n- b: " in (await operator.ask("/readyz?verbose", BEARER)).body
