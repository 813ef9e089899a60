"""Approval end to end: the operator sees the call at the admin address, and lets it begin from the command line."""

import json
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
import structlog
import trio

from callboard import Server, connect
from callboard.serve.node_view import NodeView
from callboard.serve.options import Ready
from callboard.serve.run import serve
from tests.observe.admin import Operator, token_file
from tests.process import CALLBOARD

RULES = """
[authorization]
approval_time = 30

[[authorization.rules]]
tools = ["wipe"]
approve = "operator"
"""


def made(ran: list[str]) -> Server:
    server = Server("disks")

    @server.tool
    async def wipe(disk: str) -> str:
        ran.append(disk)
        return f"wiped {disk}"

    return server


async def run(*words: str) -> tuple[int, str, str]:
    done = await trio.run_process([*CALLBOARD, *words], capture_stdout=True, capture_stderr=True, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize("deny", [False, True])
async def test_the_operator_lists_the_calls_and_decides(tmp_path: Path, deny: bool) -> None:
    ran: list[str] = []
    said: list[str] = []
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    tokens = token_file(tmp_path)
    options: dict[str, Any] = {"http": 0, "admin": 0, "admin_token_file": tokens, "admin_actions": True}

    async def call(url: str) -> None:
        try:
            async with connect(url) as client:
                said.append(str(await client.call("wipe", disk="C:\u202e")))
        except Exception as error:  # what it was told
            said.append(str(error))

    with structlog.testing.capture_logs() as logged, trio.fail_after(90):
        async with trio.open_nursery() as nursery:

            async def run_server(*, task_status: trio.TaskStatus[Ready]) -> None:
                await serve(made(ran), authorization=str(rules), **options, task_status=task_status)

            ready = await nursery.start(run_server)
            urls = {one.transport: one.url or "" for one in ready.listening}
            port = urls["admin"].split(":")[2].strip("/")
            operator = Operator(int(port))
            async with trio.open_nursery() as calling:
                calling.start_soon(call, urls["http"])
                waits: list[Any] = []
                while not waits:
                    waits = (await operator.view())["waiting_calls"]
                (row,) = waits
                assert (row["tool"], row["server"], row["arguments"]) == ("wipe", "disks", '{"disk":"C:\\u202e"}')
                at = (f"127.0.0.1:{port}", "--token-file", tokens)
                if deny:
                    code, out, _ = await run("approve", "calls", *at)
                    assert (code, out.split("\t")[:3]) == (0, [row["id"], "disks", "wipe"])
                    assert (await run("approve", "call", row["id"], at[0]))[0] == 4  # without a token
                else:
                    code, out, _ = await run("approve", "calls", "--json", *at)
                    assert json.loads(out)["waiting"][0]["digest"] == row["digest"]
                    assert (await run("status", *at))[1].count("calls that wait for approval: 1") == 1
                assert not ran
                code, out, _ = await run("approve", "call", row["id"], *at, *(["--deny"] * deny))
                assert (code, out) == (0, "denied\n" if deny else "approved\n")
            code, _, err = await run("approve", "call", row["id"], *at)
            assert (code, "there is none such" in err) == (4, True)
            nursery.cancel_scope.cancel()
    assert ran == ([] if deny else ["C:\u202e"])
    assert said == [said[0]]
    assert ("the operator has declined" if deny else "wiped C:") in said[0]
    acts = [
        (line["operator"], line["action"], line["outcome"]) for line in logged if line["event"] == "operator_action"
    ]
    assert acts == [
        ("ops", "deny_call" if deny else "approve_call", "done"),
        ("ops", "approve_call", "not found"),
    ]


@attrs.define
class FakeWorker:
    """A worker that has one call, or none."""

    label: str
    has: str | None
    is_serving: bool = True
    asked: list[tuple[str, str]] = attrs.field(factory=list)

    async def act(self, action: str, subject: str) -> bool:
        self.asked.append((action, subject))
        return subject == self.has


@pytest.mark.parametrize("action", ["approve_call", "deny_call"])
async def test_the_worker_that_has_the_call_hears_of_it(action: str) -> None:
    workers = [FakeWorker("w1", None), FakeWorker("w2", "abc"), FakeWorker("w3", None)]
    keeper = FakeWorker("keeper", None)
    view = NodeView(lambda: cast("Any", workers), lambda: True, lambda: cast("Any", keeper))
    assert await view.act(action, "abc") is True
    assert await view.act(action, "xyz") is False
    assert workers[1].asked == [(action, "abc"), (action, "xyz")]
    assert not keeper.asked
