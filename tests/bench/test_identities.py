"""Many identities: each session is one of them, and no report names a token."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio

from callboard.bench.identities import MAX_TOKEN, MAX_TOKENS, BadTokens, by_turns, read_tokens
from callboard.bench.seats import Open
from callboard.cli.bench_worker import _from
from callboard.client.client import Common
from tests.at_terminal import piped
from tests.served import Addresses, served
from tests.shared import APPS

TOKENS = [f"s3cret-{name}-0123456789abcdef0123456789abcdef" for name in ("ada", "bob", "cyd")]


def test_a_file_has_a_token_on_each_line() -> None:
    assert read_tokens("# of Monday\n\n  abc.def-_~+/= \r\nx\n") == ("abc.def-_~+/=", "x")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no token"),
        ("# a\n\n", "has no token"),
        ("good\ns3cret two", "line 2 is not a token"),
        ("s3cr\x7fet", "line 1 is not a token"),
        ("s3crét", "line 1 is not a token"),
        ("s3cret" + "x" * MAX_TOKEN, "line 1 is not a token"),
        ("s3cret\n" * (MAX_TOKENS + 1), "more than 10,000"),
    ],
)
def test_what_is_no_token_is_told_without_it(text: str, why: str) -> None:
    with pytest.raises(BadTokens, match=why) as caught:
        read_tokens(text)
    assert "s3c" not in str(caught.value)


def opening(name: str, opened: list[str]) -> Open[str]:
    @asynccontextmanager
    async def open_lane() -> AsyncIterator[str]:
        await trio.lowlevel.checkpoint()
        opened.append(name)
        yield name

    return open_lane


async def test_sessions_take_them_in_turn_and_a_session_in_place_of_a_lost_one_is_the_same() -> None:
    opened: list[str] = []
    turns = by_turns([opening(name, opened) for name in "abc"])
    async with AsyncExitStack() as others:
        lost = turns()
        async with AsyncExitStack() as first:
            await first.enter_async_context(turns())
            assert await others.enter_async_context(lost) == "b"
            await others.enter_async_context(turns())
            await others.enter_async_context(turns())
        await others.enter_async_context(turns())
        await others.enter_async_context(turns())
    assert opened == ["a", "b", "c", "a", "a", "b"], "the fifth is opened in place of the first"


def test_processes_together_take_them_in_turn() -> None:
    commons = [Common(headers={"x": name}) for name in "abc"]
    taken = [(_from(commons, start)[0]["headers"] or {})["x"] for start in (0, 2, 4)]
    assert taken == ["a", "c", "b"]
    assert _from([], 2) == []


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    known = tmp_path_factory.mktemp("server") / "known"
    known.write_text("".join(f"{token.split('-')[1]} {token}\n" for token in TOKENS))
    known.chmod(0o600)
    with served(f"{APPS / 'guarded.py'}:server", "--token-file", str(known), ws=True) as addresses:
        yield addresses


@pytest.mark.parametrize(
    "more",
    [
        ("--sessions", "6"),
        ("--sessions", "3", "--processes", "2"),
        ("--profile", "churn"),
        ("--sessions", "3", "--timeout", "5"),
    ],
)
def test_every_identity_is_used_and_no_token_is_reported(
    house: Addresses, tmp_path: Path, more: tuple[str, ...]
) -> None:
    file, html = tmp_path / "tokens", tmp_path / "page.html"
    file.write_text("\n".join(TOKENS))
    before = seen(house)
    load = ("--tool", "who", "--requests", "60", "--token-file", str(file), "--html", str(html))
    done = piped("bench", house.http, *load, "--json", *more)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["errors"], told["settings"]["identities"]) == ({}, 3)
    after = seen(house)
    assert all(after[name] > before.get(name, 0) for name in ("ada", "bob", "cyd"))
    assert "s3cret" not in done.stdout + done.stderr + html.read_text()


def seen(house: Addresses) -> dict[str, int]:
    done = piped("call", house.http, "seen", "--header", f"Authorization: Bearer {TOKENS[0]}", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)["structuredContent"]
    return found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--header", "Authorization: Bearer x"), "--token-file excludes --auth and an Authorization header"),
        (("--auth", "browser"), "--token-file excludes --auth"),
    ],
)
def test_one_identity_beside_many_is_told(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    file = tmp_path / "tokens"
    file.write_text("x")
    done = piped("bench", "http://127.0.0.1:9/mcp", "--list", "--token-file", str(file), *arguments)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_a_file_that_is_not_there_and_a_command_are_told(tmp_path: Path) -> None:
    done = piped("bench", "http://127.0.0.1:9/mcp", "--list", "--token-file", str(tmp_path / "none"))
    assert (done.returncode, "No such file" in done.stderr) == (2, True)
    (tmp_path / "tokens").write_text("x")
    done = piped("bench", f"{APPS / 'steady.py'}:server", "--list", "--token-file", str(tmp_path / "tokens"))
    assert (done.returncode, "--token-file needs a URL" in done.stderr) == (2, True)
