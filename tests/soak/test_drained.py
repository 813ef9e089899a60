"""Promise 18: at the drain deadline every kind of request is answered, and the process is over in time."""

import json
import signal
from typing import Any, Final

import pytest
import trio

from benchmarks.nemesis_fronts import websocket
from tests.figures import LONG, figure
from tests.soak.clients import HELLO, ask, connect, frame_of, head_of, modern, session_at, whole_answer
from tests.soak.stage import Scene, scene

DRAINING: Final = -31004
DRAIN: Final = 10.0 if LONG else 1.0
LATE: Final = 1.0
"""Seconds that the process may take for its end beyond the drain time: it says its last words within."""
CAPABLE: Final[dict[str, Any]] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}

Told = dict[str, dict[str, Any]]


def held(**meta: Any) -> dict[str, Any]:
    return {"name": "b0__hold", "arguments": {"key": "held"}, **({"meta": meta} if meta else {})}


async def over_http(here: Scene, kind: str, told: Told, task_status: trio.TaskStatus[None]) -> None:
    """A call that waits; what it is told in the end."""
    url = here.run.stand.http
    session = await session_at(url) if kind == "legacy" else ""
    meta = {"progressToken": "t"} if kind == "modern, with progress" else {}
    frame = frame_of("tools/call", **held()) if session else modern("tools/call", **held(**meta))
    async with await connect(url) as stream:
        await stream.send_all(head_of(url, frame, session=session) + frame)
        task_status.started()
        answer = await whole_answer(stream)
        told[f"http, {kind}"] = answer.message()


async def over_websocket(here: Scene, kind: str, told: Told, task_status: trio.TaskStatus[None]) -> None:
    async with websocket(here.run.stand.ws) as line:
        if kind == "legacy":
            await line.send_message(frame_of("initialize", "i", **HELLO).decode())
            await line.get_message()
            await line.send_message(frame_of("notifications/initialized", None).decode())
        frame = frame_of("tools/call", **held()) if kind == "legacy" else modern("tools/call", **held())
        await line.send_message(frame.decode())
        task_status.started()
        told[f"websocket, {kind}"] = json.loads(await line.get_message())


@pytest.mark.finding("faults-M2", "newcomer-P5")
@pytest.mark.parametrize("is_legacy", [False, True], ids=["modern backend", "legacy backend"])
async def test_18_every_request_is_answered_at_the_drain_deadline(is_legacy: bool) -> None:
    flags = ("--legacy",) if is_legacy else ()
    told: Told = {}
    async with scene(("b0",), "--drain-time", f"{DRAIN:g}", flags=flags) as here:
        run, stand = here.run, here.run.stand
        await run.wait_up("b0")
        frame = modern("tools/call", 1, name="b0__ask", arguments={"key": "parked"}, meta=CAPABLE)
        parked = await ask(stand.http, frame)
        assert parked.message()["result"]["resultType"] == "input_required"
        with trio.move_on_after(DRAIN + 15):
            async with trio.open_nursery() as nursery:
                for kind in ("modern", "modern, with progress", "legacy"):
                    await nursery.start(over_http, here, kind, told)
                for kind in ("modern", "legacy"):
                    await nursery.start(over_websocket, here, kind, told)
                await run.ask("b0", "meet", count=5)
                began = trio.current_time()
                stand.process.send_signal(signal.SIGTERM)
        with trio.fail_after(20):
            await stand.process.wait()
        took = trio.current_time() - began
    codes = {kind: message.get("error", {}).get("code") for kind, message in told.items()}
    answered = sum(code == DRAINING for code in codes.values())
    found = f"{answered} of 5 kinds of request told {DRAINING}, over {took:.1f} s after SIGTERM ({is_legacy=})"
    figure("promise 18", found, f"5, <= {DRAIN:g} s and the end of the process")
    assert len(codes) == 5
    assert set(codes.values()) == {DRAINING}, told
    assert took <= DRAIN + LATE * (1 if LONG else 3)
