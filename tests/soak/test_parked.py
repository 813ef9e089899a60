"""Promise 17: one client that parks calls at a legacy backend locks out nobody, and refusals come at once."""

import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from benchmarks.nemesis_history import share
from benchmarks.nemesis_stand import standing
from tests.figures import BUSY, LONG, figure
from tests.soak.clients import Answer, ask, modern

ALICE: Final = "alice-" + "a" * 40
BOB: Final = "bob-" + "b" * 40
AT_ONCE: Final = 0.01
PATIENCE: Final = 5.0
TRIES: Final = 100 if LONG else 10
CAPABLE: Final[dict[str, Any]] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}


async def call(url: str, tool: str, token: str, **meta: object) -> tuple[Answer, float]:
    """The answer, and the seconds until it came. Status 0: there was none in time."""
    began, answer = time.monotonic(), Answer(0, {}, b"")
    frame = modern("tools/call", 1, name=f"b0__{tool}", arguments={"key": "k"}, meta=meta)
    with trio.move_on_after(PATIENCE):
        answer = await ask(url, frame, token=token)
    return answer, time.monotonic() - began


@pytest.mark.finding("faults-H2", "security-11")
async def test_17_parked_calls_of_one_client_do_not_keep_others_out(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"alice {ALICE}\nbob {BOB}\n")
    tokens.chmod(0o600)
    options = ("--token-file", str(tokens))
    async with standing(("b0",), *options, flags=("--legacy",), settings={"share": "principal"}) as stand:
        url, refused = stand.http, list[float]()
        parked, answer = 0, Answer(200, {}, b"")
        while answer.status == 200 and parked < 32:
            answer, took = await call(url, "ask", ALICE, **CAPABLE)
            parked += answer.message().get("result", {}).get("resultType") == "input_required"
        assert parked
        plain, plain_took = await call(url, "echo", BOB)
        may_ask, ask_took = await call(url, "ask", BOB, **CAPABLE)
        while answer.status in (429, 503) and len(refused) < TRIES:
            refused.append(took)
            answer, took = await call(url, "ask", ALICE, **CAPABLE)
    refused.sort()
    late = share(refused, 0.99)
    figure(
        "promise 17",
        f"{parked} calls parked by one client, then {answer.status}: another's plain call {plain.status} in "
        f"{plain_took:.2f} s, one that asks {may_ask.status} in {ask_took:.2f} s; {len(refused)} refusals, p99 "
        f"{late * 1000:.1f} ms",
        f"200, 200; p99 <= {AT_ONCE * 1000:.0f} ms",
    )
    assert (plain.status, may_ask.status) == (200, 200), (plain, may_ask)
    assert max(plain_took, ask_took) <= 1.0 * BUSY
    assert answer.status != 0
    assert late <= AT_ONCE * BUSY


@pytest.mark.finding("security-11")
async def test_17_running_calls_of_one_client_do_not_keep_others_out(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"alice {ALICE}\nbob {BOB}\n")
    tokens.chmod(0o600)
    options = ("--token-file", str(tokens))
    async with standing(("b0",), *options, flags=("--legacy",), settings={"share": "principal"}) as stand:
        url = stand.http
        await call(url, "echo", ALICE)
        async with trio.open_nursery() as nursery:
            for _ in range(20):  # each may be asked about, and so has a process of its own
                nursery.start_soon(partial(call, url, "hold", ALICE, **CAPABLE))
            await trio.sleep(2)
            plain, plain_took = await call(url, "echo", BOB)
            may_ask, ask_took = await call(url, "ask", BOB, **CAPABLE)
            nursery.cancel_scope.cancel()
    figure(
        "promise 17",
        f"20 running calls of one client: another's plain call {plain.status} in {plain_took:.2f} s, one that asks "
        f"{may_ask.status} in {ask_took:.2f} s",
        "200, 200",
    )
    assert (plain.status, may_ask.status) == (200, 200), (plain, may_ask)
    assert max(plain_took, ask_took) <= 1.0 * BUSY
