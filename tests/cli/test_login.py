"""`--auth` as people and scripts use it: real commands, a server that wants a token, and one that gives it."""

import os
import re
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import attrs
import pytest
import trio
from trio.testing import MockClock

from callboard.cli.login import Unhurried
from callboard.oauth.consent import Prepare
from tests.at_terminal import at_terminal, piped
from tests.cli.test_commands import APP, needs_terminal
from tests.fork_server import forked
from tests.oauth.town import Town, basic, open_town, visit
from tests.process import CALLBOARD, PATIENCE, started
from tests.served import served

BROWSER: Final = """\
import sys, urllib.request
urllib.request.urlopen(sys.argv[1]).read()
"""
SENT: Final = r"callboard: opening a browser to log in; if it does not open, visit (\S+)\n"
MACHINE: Final = ("--auth", "machine", "--client-id", "me", "--client-secret-env", "SECRET")


@attrs.frozen
class Done:
    code: int
    out: str
    words: str


@pytest.fixture
async def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Town]:
    """With a browser whose user gives leave to everything, and a home where nothing is kept yet."""
    script = tmp_path / "browser.py"
    script.write_text(BROWSER)
    monkeypatch.setenv("BROWSER", f"{sys.executable} {script} %s &")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SECRET", "h4sh-h4sh")
    async with open_town(within=PATIENCE) as town:
        yield town


async def run(*arguments: str) -> Done:
    async with started(*forked(), *arguments) as process:
        lines = []
        while (line := await process.line()) is not None:
            lines.append(line.decode())
        code = await process.wait()
    return Done(code, "\n".join(lines), process.words)


def check_one_line(done: Done, code: int, words: str) -> None:
    assert done.code == code, done
    assert done.out == ""
    assert re.fullmatch(r"callboard: .*\n", done.words), done
    assert words in done.words


# Nobody has logged in.


async def test_a_server_that_wants_to_know_who_is_there_is_one_line_that_names_the_flag(town: Town) -> None:
    check_one_line(await run("list", town.url), 4, "--auth browser")
    assert town.giver.house.asked == []
    assert town.house.paths() == ["/mcp"]


async def test_a_header_of_ones_own_that_is_not_taken_is_said_so_and_not_repeated(town: Town) -> None:
    done = await run("list", town.url, "--header", "authorization: Bearer s3cret")
    check_one_line(done, 4, "rejected the Authorization header")
    assert "s3cret" not in done.words
    assert town.shown == ["Bearer s3cret"]


async def test_an_entry_of_a_file_with_a_header_of_its_own_shows_that_alone(town: Town, tmp_path: Path) -> None:
    await run("list", town.url, "--auth", "browser")
    file = tmp_path / "mcp.json"
    file.write_text(
        f'{{"mcpServers": {{"x": {{"url": "{town.url}", "headers": {{"Authorization": "Bearer mine"}}}}}}}}'
    )
    check_one_line(await run("list", f"{file}#x"), 4, "rejected the Authorization header")
    assert town.shown[-1] == "Bearer mine"


# By a person.


async def test_a_person_logs_in_by_browser_once_and_the_next_command_needs_nothing(town: Town, tmp_path: Path) -> None:
    first = await run("call", town.url, "look", "--auth", "browser", "--scope", "read write", "--scope", "more")
    assert (first.code, first.out) == (0, "seen")
    assert re.fullmatch(SENT, first.words)
    [asked] = town.giver.visits("/authorize")
    assert asked.query["scope"].split() == ["read", "write", "more"]
    second = await run("call", town.url, "look")
    assert (second.code, second.out, second.words) == (0, "seen", "")
    assert len(town.giver.visits("/authorize")) == 1
    kept = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert kept
    if os.name == "posix":
        assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}
    check_one_line(await run("call", town.url, "look", "--auth", "none"), 4, "--auth browser")
    assert town.shown[-1] is None


async def test_logging_in_is_a_command_of_its_own(town: Town) -> None:
    done = await run("login", town.url)
    assert (done.code, done.out) == (0, f"logged in at {town.url}")
    assert re.fullmatch(SENT, done.words)
    assert (await run("call", town.url, "look")).out == "seen"
    again = await run("login", town.url, "--json")
    assert (again.out, again.words) == (f'{{"url": "{town.url}", "is_kept": true}}', "")
    assert len(town.giver.visits("/authorize")) == 1


async def test_where_nobody_need_log_in_it_is_said_so(town: Town) -> None:
    with served(APP) as there:
        done = await run("login", there.http)
    assert (done.code, done.out, done.words) == (0, f"{there.http} requires no login", "")


async def test_logging_out_forgets_the_token(town: Town) -> None:
    await run("list", town.url, "--auth", "browser")
    done = await run("logout", town.url)
    assert (done.code, done.words) == (0, "")
    assert done.out == f"logged out: no tokens are stored for {town.url}"
    check_one_line(await run("list", town.url), 4, "--auth browser")
    assert (await run("logout", town.url, "--json")).out == f'{{"forgotten": "{town.url}"}}'  # there is nothing: fine


async def test_what_is_kept_is_refreshed_without_asking_anybody_and_at_last_the_flag_is_named(town: Town) -> None:
    town.giver.refreshes = True
    await run("list", town.url, "--auth", "browser")
    town.revoked |= town.giver.tokens.keys()
    assert (await run("list", town.url)).code == 0
    town.giver.refreshers.clear()
    town.revoked |= town.giver.tokens.keys()
    check_one_line(await run("list", town.url), 4, "log in again with --auth browser")
    assert len(town.giver.visits("/authorize")) == 1


async def test_a_client_that_was_registered_by_hand_is_named(town: Town) -> None:
    town.giver.changes = {"registration_endpoint": None}
    flags = ("--auth", "browser", "--client-id", "me", "--client-secret-env", "SECRET")
    assert (await run("list", town.url, *flags, "--issuer", town.giver.house.url)).code == 0
    assert town.giver.visits("/authorize")[0].query["client_id"] == "me"
    assert basic(town.giver.visits("/token")[0]) == ("me", "h4sh-h4sh")
    town.revoked |= town.giver.tokens.keys()
    done = await run("list", town.url, *flags, "--issuer", "https://login.example.com")
    check_one_line(done, 4, "login.example.com")


async def test_a_person_who_says_no_is_one_line(town: Town) -> None:
    town.giver.error = "access_denied"
    done = await run("list", town.url, "--auth", "browser")
    check_one_line(attrs.evolve(done, words=re.sub(SENT, "", done.words)), 4, "access_denied")


async def test_where_no_browser_opens_the_address_is_shown(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER", "false %s")
    async with started(*CALLBOARD, "call", town.url, "look", "--auth", "browser") as process:
        await process.wait_said(b"\n")
        [url] = re.findall(SENT, process.words)
        await visit(await visit(url))  # the redirect, too
        assert await process.line() == b"seen"
        assert await process.wait() == 0


@needs_terminal
async def test_a_person_without_a_browser_pastes_the_address_that_it_ends_at(town: Town) -> None:
    async with at_terminal("call", town.url, "look", "--auth", "headless", "--timeout", "20") as terminal:
        await terminal.wait_shown("paste the URL")
        [url] = re.findall(r"http://\S+/authorize\S+", terminal.screen)
        await terminal.type(await visit(url))
        assert await terminal.wait_ended() == 0
        assert "seen" in terminal.screen


async def test_without_a_terminal_there_is_nowhere_to_paste(town: Town) -> None:
    done = await run("list", town.url, "--auth", "headless")
    check_one_line(done, 4, "--auth headless needs a terminal")


@attrs.frozen
class Slow:
    async def ask(self, prepare: Prepare, registered: str | None) -> str:
        await trio.sleep(500)
        return "code=1"


async def test_the_time_that_a_person_takes_does_not_count(autojump_clock: MockClock) -> None:
    async def prepare(_: str) -> tuple[str, str]:
        raise NotImplementedError

    with trio.move_on_after(10) as connecting:
        await trio.sleep(4)
        assert await Unhurried(Slow(), connecting).ask(prepare, None) == "code=1"
        await trio.sleep_forever()
    assert trio.current_time() == 510


@pytest.mark.skipif(os.name != "posix", reason="modes as POSIX has them")
async def test_what_others_may_read_is_not_shown_and_matters_only_where_it_is_wanted(
    town: Town, tmp_path: Path
) -> None:
    await run("list", town.url, "--auth", "browser")
    for path in (tmp_path / "home").rglob("*.json"):
        path.chmod(0o644)
    check_one_line(await run("list", town.url), 4, "readable by other users")
    assert town.shown[-1] is None
    town.is_open = True
    assert (await run("list", town.url)).code == 0


# By a machine.


async def test_a_machine_acts_by_its_own_secret_and_what_it_got_is_its_own(town: Town) -> None:
    town.scope = "read"
    for _ in range(2):
        done = await run("call", town.url, "look", *MACHINE)
        assert (done.code, done.out, done.words) == (0, "seen", "")
    [asked] = town.giver.visits("/token")  # the second time it was kept
    assert basic(asked) == ("me", "h4sh-h4sh")
    assert asked.form["grant_type"] == "client_credentials"
    check_one_line(await run("list", town.url), 4, "--auth browser")  # a person is somebody else
    await run("logout", town.url, "--client-id", "me")
    await run("call", town.url, "look", *MACHINE)
    assert len(town.giver.visits("/token")) == 2


async def test_a_secret_is_shown_to_the_authorization_server_alone_that_it_was_first_used_at(town: Town) -> None:
    await run("list", town.url, *MACHINE)
    town.revoked |= town.giver.tokens.keys()
    town.issuers = [town.other.house.url]
    done = await run("list", town.url, *MACHINE)
    check_one_line(done, 4, "is registered at")
    assert town.other.visits("/token") == []
    assert "h4sh" not in done.words


# What makes no sense.


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--auth", "magic"], "magic"),
        (["--auth", "machine"], "--auth machine needs --client-id and --client-secret-env"),
        (["--auth", "machine", "--client-id", "me"], "--auth machine needs --client-id and --client-secret-env"),
        (["--client-secret-env", "HOME"], "--client-secret-env needs --client-id"),
        (["--issuer", "https://x.example"], "--issuer needs --client-id"),
        (["--client-id", "me", "--client-secret-env", "NO_SUCH"], "environment variable not set: NO_SUCH"),
        (
            ["--auth", "browser", "--header", "Authorization: Bearer x"],
            "--auth browser and an Authorization header exclude each other",
        ),
    ],
)
def test_flags_that_make_no_sense_are_one_line(flags: list[str], words: str) -> None:
    done = piped("list", "http://127.0.0.1:1/mcp", *flags)
    check_one_line(Done(done.returncode, done.stdout, done.stderr), 2, words)


@pytest.mark.parametrize(
    ("target", "code", "words"),
    [(APP, 2, "is not a URL"), ("nowhere.json#x", 2, "nowhere.json"), ("[]", 2, "is not a URL")],
)
@pytest.mark.parametrize("command", ["login", "logout"])
def test_logging_in_and_out_is_for_urls(command: str, target: str, code: int, words: str) -> None:
    done = piped(command, target)
    check_one_line(Done(done.returncode, done.stdout, done.stderr), code, words)


def test_help_teaches_how_to_log_in() -> None:
    taught = piped("call", "--help").stdout
    for flag in ("--auth", "--client-id", "--client-secret-env", "--issuer", "--scope", "--trust", "--auth browser"):
        assert flag in taught
    assert "callboard logout " in piped("logout", "--help").stdout


def test_a_server_by_plain_http_on_another_machine_is_shown_nothing_that_is_kept() -> None:
    done = piped("list", "http://192.0.2.1:9/mcp", "--timeout", "0.2")  # it is still tried, as ever
    check_one_line(Done(done.returncode, done.stdout, done.stderr), 3, "callboard: ")
