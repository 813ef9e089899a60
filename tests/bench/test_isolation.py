"""Sessions that are kept apart, and servers that do not do that: each is caught, in virtual time."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from callboard import Context, Server, ToolError
from callboard.bench.engine import LoadPlan
from callboard.bench.isolation import (
    DIFFERENT,
    LEAK,
    MISSING,
    MIXED_UP,
    Canaries,
    CannotCheck,
    Isolation,
    has_canary,
    with_canary,
)
from callboard.bench.lanes import by_client
from callboard.bench.work import Act, Work
from callboard.client.client import Common
from callboard.codecs.revisions import Revision
from tests.at_terminal import piped
from tests.bench.test_script import both_eras
from tests.served import Addresses, served
from tests.shared import APPS

ECHO = Act(kind="call", name="echo", arguments={"text": "<{canary}>"})


def house(answer: Callable[[str, Context], Any]) -> Server:
    """A server whose tool answers as *answer* has it, after a moment in which others come."""
    server = Server("house", version="1")

    @server.tool
    async def echo(text: str, *, ctx: Context) -> str:
        said = answer(text, ctx)
        await trio.sleep(0.01)
        return str(said() if callable(said) else said)

    return server


async def check(
    answer: Callable[[str, Context], Any], act: Act = ECHO, *, sessions: int = 4, revision: Revision | None = None
) -> Isolation:
    plan = LoadPlan(sessions=sessions, concurrency=12, duration=2, warmup=0.1)
    opened = by_client(house(answer), Common(revision=revision, check_results=False), lambda _: None)
    drive = Isolation(plan, Work((act,)), opened)
    await drive.run()
    assert drive.in_flight == 0
    return drive


@both_eras
async def test_a_server_that_keeps_sessions_apart_passes(autojump_clock: MockClock, revision: Revision) -> None:
    drive = await check(lambda text, _: text, revision=revision)
    assert drive.tally.errors == {}
    assert drive.figures["answers_checked"] == drive.tally.count > 1000
    assert drive.figures["rounds"] > 100
    assert drive.figures["leaks"] == 0


@both_eras
async def test_ids_of_different_sessions_collide(autojump_clock: MockClock, revision: Revision) -> None:
    ids: list[object] = []

    def note(text: str, ctx: Context) -> str:
        ids.append(ctx.request_id)
        return text

    await check(note, revision=revision)
    assert len(ids) > 3 * len(set(ids)), "of four sessions each has used most of them"


async def test_an_answer_of_another_session_is_a_leak(autojump_clock: MockClock) -> None:
    last: list[str] = []

    def forgetful(text: str, _: Context) -> Callable[[], str]:
        last.append(text)
        return lambda: last[-1]  # a variable of the module, as it happens

    drive = await check(forgetful)
    assert set(drive.tally.errors) >= {LEAK}
    assert drive.figures["leaks"] > 100
    assert drive.tally.examples[LEAK].startswith("call echo, session ")


async def test_an_answer_of_another_request_of_the_session_is_mixed_up(autojump_clock: MockClock) -> None:
    last: list[str] = []

    def forgetful(text: str, _: Context) -> Callable[[], str]:
        last.append(text)
        return lambda: last[-1]

    drive = await check(forgetful, sessions=1)
    assert set(drive.tally.errors) == {MIXED_UP}
    assert drive.figures["mixed_up"] > 100


async def test_a_canary_of_another_session_in_an_error_is_a_leak(autojump_clock: MockClock) -> None:
    seen: list[str] = []

    def telling(text: str, _: Context) -> Callable[[], str]:
        seen.append(text)

        def answer() -> str:
            if len(seen) > 10:
                raise ToolError(f"busy with {seen[-1]}")
            return text

        return answer

    drive = await check(telling)
    assert drive.figures["leaks"] > 100
    assert "busy with <cb" in drive.tally.examples[LEAK]


async def test_what_is_lost_under_load_is_told(autojump_clock: MockClock) -> None:
    asked: list[str] = []

    def overloaded(text: str, _: Context) -> str:
        asked.append(text)
        return text if len(asked) < 50 else "..."

    drive = await check(overloaded)
    assert set(drive.tally.errors) == {MISSING}


# The same request, many times at once.


SAME = Act(kind="call", name="echo", arguments={"text": "x"})


async def test_the_same_request_must_have_the_same_answer_however_many_ask(autojump_clock: MockClock) -> None:
    drive = await check(lambda text, _: text, SAME)
    assert (drive.tally.errors, drive.tally.count > 1000) == ({}, True)
    now: list[int] = []

    def racing(_: str, __: Context) -> Callable[[], str]:
        now.append(1)

        def answer() -> str:
            found = len(now)
            now.pop()
            return f"{found} at once"

        return answer

    drive = await check(racing, SAME)
    assert set(drive.tally.errors) == {DIFFERENT}
    assert drive.figures["different_answers"] > 100


@pytest.mark.parametrize(
    ("answer", "act", "why"),
    [
        (lambda text, ctx: "ok", ECHO, "an answer does not contain its canary: choose a tool that returns"),
        (lambda text, ctx: trio.current_time(), SAME, "differ without any load"),
    ],
)
async def test_a_request_by_which_nothing_can_be_told_is_refused(
    autojump_clock: MockClock, answer: Callable[..., Any], act: Act, why: str
) -> None:
    with pytest.raises(CannotCheck, match=why):
        await check(answer, act)


# Canaries.


def test_a_canary_is_told_from_all_others() -> None:
    canaries = Canaries("r")
    own = canaries.of(1, 11)
    assert canaries.judge(f'{{"text":"{own}"}}', 1, 11) == ""
    assert canaries.judge(canaries.of(11, 1), 1, 11) == LEAK
    assert canaries.judge(own + canaries.of(2, 1), 1, 11) == LEAK, "also beside its own"
    assert canaries.judge(canaries.of(1, 1), 1, 11) == MIXED_UP
    assert canaries.judge("", 1, 11) == MISSING
    assert canaries.judge(Canaries("q").of(2, 1) + own, 1, 11) == "", "that of another run"


def test_a_canary_stands_anywhere_in_arguments_and_uris() -> None:
    act = Act(kind="call", name="t", arguments={"a": ["x {canary}", {"b": "{canary}"}], "c": 5})
    assert has_canary(act)
    assert with_canary(act, "bird").arguments == {"a": ["x bird", {"b": "bird"}], "c": 5}
    read = Act(kind="read", name="a://{canary}")
    assert (has_canary(read), with_canary(read, "bird").name) == (True, "a://bird")
    assert not has_canary(SAME)


# The command.


@pytest.fixture(scope="module")
def steady() -> Iterator[Addresses]:
    with served(f"{APPS / 'steady.py'}:server", ws=True) as addresses:
        yield addresses


@pytest.mark.parametrize("way", ["http", "ws"])
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_real_server_is_checked(steady: Addresses, way: str, revision: str, tmp_path: Path) -> None:
    file = tmp_path / "checks.xml"
    load = ("--duration", "300ms", "--warmup", "0", "--revision", revision, "--json", "--junit", str(file))
    args = ("--tool", "echo", "--args", '{"text": "{canary}"}', "--list", "--read", "steady://note")
    done = piped("bench", getattr(steady, way), "--profile", "isolation", *args, *load)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["errors"] == {}
    assert (told["figures"]["leaks"], told["figures"]["answers_checked"]) == (0, told["answered"])
    assert told["settings"]["load"] == "8 sessions, rounds of 32 requests at once, answers compared"
    assert set(told["steps"]) == {"call echo", "list tools", "read steady://note"}
    assert f'name="never: {LEAK}"/>' in file.read_text()


def test_a_server_that_mixes_answers_up_fails_a_pipeline(tmp_path: Path) -> None:
    file = tmp_path / "leaky.py"
    file.write_text(
        "import trio\nfrom callboard import Server\nserver, last = Server('leaky'), ['']\n"
        "@server.tool\nasync def echo(text: str) -> str:\n"
        "    last[0] = text\n    await trio.sleep(0.001)\n    return last[0]\n"
    )
    with served(f"{file}:server") as addresses:
        load = ("--duration", "200ms", "--warmup", "0", "--tool", "echo", "--args", '{"text": "{canary}"}')
        done = piped("bench", addresses.http, "--profile", "isolation", *load)
    assert done.returncode == 1
    assert "contained the canary of another session: sessions are not kept apart" in done.stderr


def test_what_cannot_be_checked_is_told_in_one_line(steady: Addresses) -> None:
    command = ("bench", f"{APPS / 'steady.py'}:server", "--profile", "isolation", "--list")
    for arguments, code, said in (
        (command, 2, "--profile isolation needs one server for all sessions"),
        (("bench", steady.http, "--profile", "isolation", "--list", "--rate", "5"), 2, "not --rate"),
        (
            (
                "bench",
                steady.http,
                "--profile",
                "isolation",
                "--tool",
                "slow",
                "--args",
                '{"seconds": 0, "x": "{canary}"}',
            ),
            4,
            "",
        ),
    ):
        done = piped(*arguments)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert said in done.stderr
