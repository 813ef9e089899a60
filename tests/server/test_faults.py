"""Authors see why a handler failed; clients get no more than they should."""

import functools
import io
import re
import sys
import sysconfig
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
import trio.testing
from structlog.testing import capture_logs
from trio.testing import MockClock

from callboard import Context, Server, ToolError
from callboard.cli.client import call
from callboard.cli.client_run import _plain_line
from callboard.codecs.revisions import LATEST, CallToolResult, Model, Revision
from callboard.errors import CannotConnect, ServerRefused
from callboard.server.faults import DEBUG
from callboard.supervisor.ended import where
from callboard.supervisor.lines import MAX_TRACEBACK
from callboard.testing import Refusal, connect

SECRET = "postgres://admin:hunter2@db/prod"  # noqa: S105

LIBRARY = "def deeper(depth):\n    if depth == 0:\n        return 1 / 0\n    return deeper(depth - 1)\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """All log lines, as they are where standard error is no terminal."""
    monkeypatch.delenv(DEBUG, raising=False)
    with capture_logs() as lines:
        yield lines


def text(result: dict[str, Any]) -> str:
    words: str = result["content"][0]["text"]
    return words


def failing(error: BaseException, **options: Any) -> Server:
    """A server of which every handler raises *error*."""
    server = Server("s", **options)

    @server.tool
    async def plain() -> str:
        raise error

    @server.tool
    async def with_context(ctx: Context) -> str:
        raise error

    @server.tool
    def threaded() -> str:
        raise error

    @server.tool
    async def nursery() -> str:
        async with trio.open_nursery():
            raise error

    @server.resource("r://one")
    async def one() -> str:
        raise error

    @server.prompt
    async def ask(city: str) -> str:
        raise error

    @server.completion("ask", "city")
    async def cities(value: str) -> list[str]:
        raise error

    return server


TOOLS = ("plain", "with_context", "threaded", "nursery")
OTHERS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("resources/read", "r://one", {"uri": "r://one"}),
    ("prompts/get", "ask", {"name": "ask", "arguments": {"city": "Oslo"}}),
    (
        "completion/complete",
        '{"type":"ref/prompt","name":"ask"}',
        {"ref": {"type": "ref/prompt", "name": "ask"}, "argument": {"name": "city", "value": "O"}},
    ),
)


@pytest.mark.finding("newcomer-A1", "newcomer-A3", "security-24", "protocol-1.12o")
@pytest.mark.parametrize("revision", [LATEST, Revision.V2025_06_18])
async def test_a_handler_that_raises_is_logged_in_full_and_told_by_its_type(
    revision: Revision, logged: list[Any]
) -> None:
    async with connect(failing(RuntimeError(f"cannot connect to {SECRET}")), revision) as client:
        for tool in TOOLS:
            result = await client.call(tool)
            assert (result["isError"], text(result)) == (True, "Internal error: RuntimeError")
        for method, _, params in OTHERS:
            with pytest.raises(Refusal, match=r"-32603: Internal error: RuntimeError$"):
                await client.request(method, **params)
    lines = [line for line in logged if line["log_level"] == "error"]
    assert [line["event"] for line in lines] == ["handler_failed"] * (len(TOOLS) + len(OTHERS))
    assert [(line["method"], line["name"]) for line in lines] == [
        *(("tools/call", tool) for tool in TOOLS),
        *((method, name) for method, name, _ in OTHERS),
    ]
    assert {line["failure"] for line in lines} == {f"RuntimeError: cannot connect to {SECRET}"}
    assert all(line["where"].startswith("test_faults.py:") for line in lines)
    assert len({line["request"] for line in lines}) == len(lines)
    assert not any("exception" in line for line in lines)


@pytest.mark.finding("newcomer-A3")
async def test_a_server_may_show_what_its_exceptions_say(logged: list[Any]) -> None:
    async with connect(failing(ValueError("days must be positive"), show_errors=True)) as client:
        for tool in TOOLS:
            assert text(await client.call(tool)) == "ValueError: days must be positive"
        for method, _, params in OTHERS:
            with pytest.raises(Refusal, match="-32603: ValueError: days must be positive"):
                await client.request(method, **params)
    assert len(logged) == len(TOOLS) + len(OTHERS)


async def test_what_is_raised_for_the_client_goes_out_and_is_not_logged(logged: list[Any]) -> None:
    async with connect(failing(ToolError("no such city"))) as client:
        for tool in TOOLS:
            assert text(await client.call(tool)) == "no such city"
    assert logged == []


@pytest.mark.finding("newcomer-A3")
@pytest.mark.parametrize("error", [ServerRefused(-32603, SECRET), CannotConnect(SECRET), OSError(2, SECRET)])
async def test_what_another_server_or_the_system_said_stays_in_the_log(error: Exception, logged: list[Any]) -> None:
    async with connect(failing(error)) as client:
        assert text(await client.call("plain")) == f"Internal error: {type(error).__name__}"
        with pytest.raises(Refusal, match=f"-32603: Internal error: {type(error).__name__}$"):
            await client.request("resources/read", uri="r://one")
    assert all(SECRET in line["failure"] for line in logged)


async def test_a_group_is_told_by_all_that_is_in_it(logged: list[Any]) -> None:
    group = ExceptionGroup("", [ToolError("no such city"), ExceptionGroup("", [KeyError(SECRET)])])
    async with connect(failing(group)) as client:
        assert text(await client.call("plain")) == "no such city\nInternal error: KeyError"
    assert "and 1 more" in logged[0]["failure"]


async def test_middleware_that_raises_is_logged_with_the_tool_that_it_stands_before(logged: list[Any]) -> None:
    server = Server("s")

    @server.middleware
    async def audit(ctx: Context, go_on: Callable[[], Awaitable[Model]]) -> Model:
        raise LookupError(SECRET)

    @server.tool
    async def greet() -> str:
        return "hello"

    async with connect(server) as client:
        with pytest.raises(Refusal, match=r"-32603: Internal error: LookupError$"):
            await client.call("greet")
    assert (logged[0]["name"], logged[0]["failure"]) == ("greet", f"LookupError: {SECRET}")


def test_the_line_of_ones_own_code_is_told_when_a_library_fails_far_below() -> None:
    code: dict[str, Any] = {}
    exec(compile(LIBRARY, f"{sysconfig.get_path('purelib')}/library.py", "exec"), code)  # noqa: S102
    with pytest.raises(ZeroDivisionError) as failed:
        code["deeper"](20)
    told = where(failed.value)
    assert told.startswith("library.py:3 deeper < ")
    assert told.split(" < ")[-1].startswith("test_faults.py:")
    assert told.count(" < ") == 4


async def test_a_function_that_exits_is_logged_where_it_does(logged: list[Any]) -> None:
    async with connect(failing(SystemExit(3))) as client:
        for tool in TOOLS:
            assert text(await client.call(tool)) == "Internal error: RuntimeError"
    assert {line["failure"] for line in logged} == {"RuntimeError: the handler called sys.exit()"}
    assert all(line["where"].startswith("test_faults.py:") for line in logged)


async def test_a_function_that_exits_while_it_is_cancelled_is_cancelled(autojump_clock: MockClock) -> None:
    server = Server("s")

    @server.tool
    async def leave() -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                await trio.sleep_forever()
            finally:
                sys.exit(3)

    @server.tool
    async def greet() -> str:
        return "hello"

    async with connect(server) as client:
        begun = await client.begin("tools/call", name="leave", arguments={})
        await trio.testing.wait_all_tasks_blocked()
        await client.say({"method": "notifications/cancelled", "params": {"requestId": begun}})
        assert text(await client.call("greet")) == "hello"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize("options", [{}, {"show_errors": True}])
async def test_an_exception_without_words_is_told_by_its_type(options: dict[str, Any], logged: list[Any]) -> None:
    async with connect(failing(Unspeakable(), **options)) as client:
        assert text(await client.call("plain")).endswith("Unspeakable")
    assert logged[0]["failure"] == "Unspeakable"


@pytest.mark.finding("newcomer-A1")
@pytest.mark.parametrize("way", ["terminal", "variable"])
async def test_the_traceback_is_shown_at_a_terminal_or_if_wanted(
    way: str, logged: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "terminal":
        monkeypatch.setattr(sys, "stderr", Terminal())
    else:
        monkeypatch.setenv(DEBUG, "1")
    async with connect(failing(RuntimeError("gone" + "x" * 100_000))) as client:
        await client.call("plain")
        monkeypatch.setenv(DEBUG, "0")
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        await client.call("plain")
    assert "in plain\n    raise error" in logged[0]["exception"]
    assert len(logged[0]["exception"]) <= MAX_TRACEBACK
    assert logged[0]["exception"].endswith("xxx")
    assert "handlers.py" not in logged[0]["exception"]
    assert "exception" not in logged[1]


@pytest.mark.parametrize("tool", ["plain", "threaded"])
async def test_a_traceback_in_this_process_is_coloured_and_has_the_authors_steps_alone(
    tool: str, logged: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of `callboard run`: `callboard call FILE.py` runs the server in its own process."""
    server = Server("s")

    @server.tool
    async def plain() -> str:
        raise RuntimeError("gone")

    @server.tool
    def threaded() -> str:
        raise RuntimeError("gone")

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    async with connect(server) as client:
        await client.call(tool)
        shown = _plain_line(None, "error", logged[0])
    assert "\x1b[1;31mRuntimeError: gone\x1b[0m" in shown
    assert re.findall(r"in \x1b\[36m(\w+)", shown) == [tool]


async def test_a_traceback_stands_below_its_line(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv(DEBUG, "1")
    structlog.reset_defaults()
    async with connect(failing(RuntimeError("gone"))) as client:
        await client.call("plain")
    assert "handler_failed" in (said := capsys.readouterr().err).splitlines()[0]
    assert "\nTraceback (most recent call last):\n" in said


def misfits() -> Server:
    server = Server("s")

    @server.tool
    async def five() -> int:
        return "five"  # type: ignore[return-value]

    @server.tool
    async def raw():  # type: ignore[no-untyped-def]
        return SECRET.encode()

    @server.tool
    async def opaque():  # type: ignore[no-untyped-def]
        return object()

    def summed(first: int, second: int) -> int:
        return str(first + second)  # type: ignore[return-value]

    server.tool(name="partial")(functools.partial(summed, second=1))

    @server.tool
    async def lying() -> CallToolResult:
        return CallToolResult(content=[object()])  # type: ignore[list-item]

    @server.prompt
    def odd():  # type: ignore[no-untyped-def]
        return [{"role": SECRET, "content": "x"}]

    return server


MISMATCH = "Internal error: the result does not match the output schema"
BYTES = (
    "Internal error: a result of type bytes has no MIME type: return Blob(data, mime_type), Image(data) or Audio(data)"
)


@pytest.mark.finding("newcomer-A2")
@pytest.mark.parametrize(
    ("tool", "told", "reason"),
    [
        ("five", MISMATCH, 'result: expected integer, got "five"'),
        ("partial", MISMATCH, 'result: expected integer, got "2"'),
        ("raw", BYTES, "bytes has no MIME type"),
        (
            "opaque",
            "Internal error: a result of type object cannot be serialized as JSON",
            "BadResult: a result of type object cannot be serialized as JSON",
        ),
    ],
)
async def test_a_result_that_does_not_fit_says_why(tool: str, told: str, reason: str, logged: list[Any]) -> None:
    arguments = {"first": 1} if tool == "partial" else {}
    async with connect(misfits()) as client:
        result = await client.call(tool, **arguments)
    assert (result["isError"], text(result)) == (True, told)
    (line,) = logged
    assert (line["event"], line["name"]) == ("handler_failed", tool)
    assert reason in line["failure"]
    assert line["where"].startswith("test_faults.py:")


@pytest.mark.finding("newcomer-A2")
async def test_a_message_or_a_ready_result_that_does_not_fit_says_why_in_the_log(logged: list[Any]) -> None:
    async with connect(misfits()) as client:
        with pytest.raises(Refusal, match=r"the role of a message must be user or assistant$"):
            await client.request("prompts/get", name="odd")
        with pytest.raises(Refusal, match="-32603: Internal error"):
            await client.call("lying")
    assert SECRET in logged[0]["failure"]
    assert logged[1]["event"] == "request_failed"
    assert "object" in logged[1]["failure"]


@pytest.mark.finding("newcomer-A1")
def test_a_server_in_a_file_tells_its_author_why_a_call_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "shop.py"
    file.write_text(
        "from callboard import Server\n"
        "server = Server('shop')\n"
        "@server.tool\n"
        "async def boom() -> str:\n"
        "    return {}['nope']\n"
    )
    for debug in ("0", "1"):
        monkeypatch.setenv(DEBUG, debug)
        code = call(str(file), "boom")
        out, err = capsys.readouterr()
        assert (code, out) == (1, "Internal error: KeyError\n")
        assert "callboard: handler failed (method: tools/call, name: boom, request: " in err
        assert "failure: KeyError: 'nope', where: shop.py:5 boom" in err
        assert ("\nTraceback (most recent call last):\n" in err) is (debug == "1")
    structlog.reset_defaults()
