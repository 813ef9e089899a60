"""The audit log of a running server: who called what, how it ended, who was refused."""

import json
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
import pytest
import trio
import trio.testing

from callboard import Context, Server, connect
from callboard.errors import CannotServe
from callboard.serve.auditing import RETRY_AFTER
from callboard.serve.tokens import TokenFile
from tests.observe.admin import Operator, token_file
from tests.process import CALLBOARD, callboard, started
from tests.serve.test_serve import TOKEN, call, hosted, post, served

ADA = {"principal": "ada", "tenant": "acme"}


@attrs.frozen
class Answer:
    text: str


def write(file: Path, text: str) -> None:
    file.write_text(text)


def told(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def about(file: Path, event: str) -> list[dict[str, Any]]:
    return [line for line in told(file) if line["event"] == event]


def with_resources() -> Server:
    server = hosted()

    @server.resource("notes://{name}{?page}")
    async def notes(name: str, page: str) -> str:
        return f"text of {name} {page}"

    @server.tool
    async def fail() -> str:
        raise ValueError("secret words")

    return server


async def test_each_call_has_a_line_and_its_caller_a_name(tmp_path: Path) -> None:
    file = tmp_path / "audit"
    tokens = TokenFile(Path(token_file(tmp_path, "tokens", f"ada {TOKEN} tenant=acme")))
    async with served(with_resources(), http="127.0.0.1:0", authenticate=tokens, audit=str(file)) as here:
        url = here.url("http")
        await post(url, call("echo", text="secret words"), token=TOKEN)
        await post(url, call("fail"), token=TOKEN)
        await post(url, call("unknown"), token=TOKEN)
        await post(url, call("echo", text="x"), token="secret-and-wrong-token")  # noqa: S106
        await post(url, call("echo", text="x"))
    echo, fail, unknown = about(file, "request")
    assert echo["outcome"] == "ok"
    assert {name: echo[name] for name in ("principal", "tenant", "transport", "method", "name", "remote")} == {
        **ADA,
        "transport": "http",
        "method": "tools/call",
        "name": "echo",
        "remote": "127.0.0.1",
    }
    assert echo["request"] == "1"
    assert echo["revision"] == "2026-07-28"
    assert 0 < echo["duration"] < 5
    assert (fail["outcome"], fail["name"]) == ("tool_error", "fail")
    assert (unknown["outcome"], unknown["code"]) == ("failed", -32602)
    wrong, missing = about(file, "authentication_refused")
    assert (wrong["reason"], missing["reason"]) == ("unknown token", "no token")
    assert wrong["remote"] == "127.0.0.1"
    assert [line["event"] for line in (told(file)[0], told(file)[-1])] == ["server_started", "server_ended"]
    assert "secret" not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
async def test_sessions_and_resources_have_lines(tmp_path: Path, revision: str) -> None:
    file = tmp_path / "audit"
    async with (
        served(with_resources(), http="127.0.0.1:0", audit=str(file), admin="127.0.0.1:0", access_log=True) as on,
        connect(on.url("http"), revision=revision) as client,
    ):
        await client.read("notes://a?page=secret")
        await client.call("echo", text="x")
    read, _ = about(file, "request")
    assert (read["method"], read["name"], read["revision"]) == ("resources/read", "notes://a", revision)
    assert read["remote"] == "127.0.0.1"
    has_sessions = revision < "2026"
    begun, ended = about(file, "session_begun"), about(file, "session_ended")
    assert (len(begun), len(ended)) == (has_sessions, has_sessions)
    if has_sessions:
        assert begun[0]["client"].startswith("callboard")
        assert ended[0]["duration"] > 0
        assert ended[0]["principal"] == "anonymous"
        assert begun[0]["remote"] == ended[0]["remote"] == "127.0.0.1"


async def test_nothing_new_is_begun_that_cannot_be_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.observe.audit_writer.AGAIN", 0.01)
    file = tmp_path / "audit"
    file.symlink_to("/dev/full")
    async with served(http="127.0.0.1:0", audit=str(file), audit_when_full="refuse") as here:
        ask = partial(post, here.url("http"), call("echo", text="x"))
        while (found := await ask())[0] == 200:  # noqa: ASYNC110  # a thread writes
            await trio.sleep(0.01)
        status, answer = found
        assert status == 503
        assert answer["id"] == 1
        assert answer["error"]["code"] == -31003
        assert answer["error"]["data"] == {"retryAfter": RETRY_AFTER}
        file.unlink()  # there is room again
        while (await ask())[0] != 200:  # noqa: ASYNC110
            await trio.sleep(0.01)
    assert about(file, "server_started")
    assert len(about(file, "request")) >= 1  # those that had begun, too


async def test_lines_that_cannot_be_written_are_dropped_and_calls_go_on(tmp_path: Path) -> None:
    async with served(http="127.0.0.1:0", audit="/dev/full", admin="127.0.0.1:0") as here:
        for _ in range(3):
            assert (await post(here.url("http"), call("echo", text="x")))[0] == 200
        shown = (await Operator(urlsplit(here.url("admin")).port or 0).ask("/metrics")).body.decode()
        assert 'callboard_audit_lines_total{outcome="written"} 0' in shown
        assert 'callboard_audit_lines_total{outcome="dropped"} 0' in shown  # they wait


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"audit": "/nowhere/at/all"}, "No such file"),
        ({"audit": "-", "audit_arguments": "digest"}, "need an audit file"),
        ({"audit": "x", "audit_when_full": "explode"}, "invalid audit_when_full"),
    ],
)
async def test_an_audit_log_that_cannot_be_is_refused_at_the_start(options: Any, words: str) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(CannotServe, match=words)):
        async with served(http="127.0.0.1:0", **options):
            pass


async def test_a_revoked_principal_and_a_reload_have_lines(tmp_path: Path) -> None:
    file, path = tmp_path / "audit", Path(token_file(tmp_path, "tokens", f"ada {TOKEN} tenant=acme"))
    tokens = TokenFile(path)
    async with served(http="127.0.0.1:0", authenticate=tokens, audit=str(file)) as here:
        write(path, "# all tokens are revoked\n")
        while (await post(here.url("http"), call("who"), token=TOKEN))[0] != 401:  # noqa: ASYNC110  # it is watched
            await trio.sleep(0.01)
        await trio.testing.wait_all_tasks_blocked()
    (revoked,) = about(file, "principal_revoked")
    assert {name: revoked[name] for name in ADA} == ADA
    (reloaded,) = about(file, "configuration_reloaded")
    assert (reloaded["name"], reloaded["outcome"], reloaded["detail"]["revoked"]) == ("tokens", "ok", 1)


@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
async def test_an_answer_to_a_question_has_its_action_and_no_word_of_it(tmp_path: Path, revision: str) -> None:
    file = tmp_path / "audit"
    server = hosted()

    @server.tool
    async def ask(*, ctx: Context) -> str:
        return (await ctx.elicit("secret question", Answer)).text

    async with (
        served(server, http="127.0.0.1:0", audit=str(file)) as here,
        connect(here.url("http"), elicitation=lambda _: {"text": "secret answer"}, revision=revision) as client,
    ):
        await client.call("ask")
    (asked,), (answered,) = about(file, "question_asked"), about(file, "question_answered")
    assert asked["name"] == answered["name"] == "ask"
    assert answered["outcome"] == "ok"
    assert answered["detail"] == {"kind": "elicitation.form", "action": "accept"}
    assert "secret" not in file.read_text()


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_processes_write_whole_lines_to_one_file(workers: str, tmp_path: Path) -> None:
    file = tmp_path / "audit"
    app = tmp_path / "app.py"
    write(app, "from callboard import Server\nserver = Server('app')\n@server.tool\ndef f() -> str:\n    return 'x'\n")
    words = ["run", str(app), "--http", "0", "--workers", workers, "--audit", str(file), "--json"]
    words += ["--admin", "0", "--admin-actions", "--admin-token-file", token_file(tmp_path)]
    async with started(*CALLBOARD, *words) as process:
        urls = {one["transport"]: one["url"] for one in (await process.hear())["listening"]}
        url, operator = urls["http"], Operator(urlsplit(urls["admin"]).port or 0)
        assert await operator.act("restart", "nothing") == 404
        async with trio.open_nursery() as nursery:
            for _ in range(40):
                nursery.start_soon(partial(post, url, call("f")))
        process.signal()
        assert await process.wait() == 0
    assert [line["outcome"] for line in about(file, "request")] == ["ok"] * 40
    parents = int(workers) > 1
    assert len({line["detail"]["pid"] for line in about(file, "server_ended")}) == int(workers) + parents
    (act,) = about(file, "operator_action")
    assert (act["principal"], act["outcome"], act["detail"]["action"]) == ("ops", "failed", "restart")


async def test_lines_may_go_to_standard_error(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    write(app, "from callboard import Server\nserver = Server('app')\n")
    async with started(*CALLBOARD, "run", str(app), "--http", "0", "--audit", "-", "--json") as process:
        await process.hear()
        process.signal()
        assert await process.wait() == 0
    lines = [json.loads(line) for line in process.words.splitlines() if line.startswith("{")]
    assert [line["event"] for line in lines] == ["server_started", "server_ended"]


def test_a_flag_is_not_taken_for_the_file() -> None:
    done = callboard("run", "app.py", "--http", "0", "--audit", "--json")
    assert done.returncode == 2
    assert "--audit --json: expected a file, or - for standard error" in done.stderr
