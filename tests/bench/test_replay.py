"""A recorded session is played again: the same requests, in the same order, with the pauses that were made."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.bench.replay import LONGEST_PAUSE, MAX_SCRIPTS, replay_of
from callboard.bench.scenario import MAX_STEPS, BadScenario
from callboard.bench.steps import Listen, Scenario, Script, StepRequest, Think
from callboard.cli.arguments import BadArgument
from callboard.cli.profiles import read_scenario

FILE: Final = Path("day.jsonl")


def line(at: float, message: dict[str, Any], *, server: str = "shop", session: str = "s-1", out: bool = False) -> bytes:
    minutes, seconds = divmod(at, 60)
    recorded = {
        "time": f"2026-07-28T12:{int(minutes):02}:{seconds:06.3f}+00:00",
        "server": server,
        "session": session,
        "direction": "from_server" if out else "to_server",
        "message": {"jsonrpc": "2.0", **message},
    }
    return json.dumps(recorded).encode() + b"\n"


def asked(number: int, method: str, **params: Any) -> dict[str, Any]:
    return {"id": number, "method": method, "params": params}


def steps_of(*lines: bytes, server: str | None = None) -> list[Any]:
    [script] = replay_of(b"".join(lines), FILE, server).scripts
    return list(script.steps)


def called(script: Script) -> list[str]:
    return [step.name for step in script.steps if isinstance(step, StepRequest)]


def brief(steps: list[Any]) -> list[Any]:
    """Requests without their labels, and pauses in milliseconds."""
    found: list[Any] = []
    for one in steps:
        if isinstance(one, StepRequest):
            found.append((one.kind, one.name, one.args))
        else:
            found.append((round(one.low * 1000), round(one.high * 1000)) if isinstance(one, Think) else one)
    return found


def test_requests_come_again_with_the_pauses_between_an_answer_and_the_next_one() -> None:
    steps = steps_of(
        line(0.0, asked(1, "initialize", protocolVersion="2025-11-25")),
        line(0.1, {"id": 1, "result": {}}, out=True),
        line(0.1, {"method": "notifications/initialized"}),
        line(0.2, asked(2, "tools/list")),
        line(0.3, {"id": 2, "result": {}}, out=True),
        line(1.5, asked(3, "tools/call", name="buy", arguments={"n": 2}, _meta={"progressToken": 1})),
        line(1.6, {"method": "notifications/progress", "params": {}}, out=True),
        line(2.5, {"id": 3, "result": {}}, out=True),
        line(2.5, asked(4, "resources/read", uri="shop://hours")),
        line(2.6, asked(5, "prompts/get", name="slogan", arguments={"of": "tea"})),
        line(2.7, {"id": 4, "result": {}}, out=True),
        line(2.7, {"id": 5, "error": {}}, out=True),
        line(500.0, asked(6, "resources/templates/list")),
    )
    assert brief(steps) == [
        ("list", "tools", {}),
        (1200, 1200),
        ("call", "buy", {"n": 2}),
        ("read", "shop://hours", {}),
        ("prompt", "slogan", {"of": "tea"}),  # it was sent while the read waited
        (LONGEST_PAUSE * 1000, LONGEST_PAUSE * 1000),
        ("list", "templates", {}),
    ]


def test_subscriptions_to_lists_are_heard_and_retries_and_the_rest_are_left_out() -> None:
    steps = steps_of(
        line(0, asked(1, "subscriptions/listen", notifications={"toolsListChanged": True, "taskIds": ["x"]})),
        line(0, asked(2, "tools/call", name="ask", inputResponses={"a": {}}, requestState="***")),
        line(0, asked(3, "logging/setLevel", level="debug")),
        line(0, {"id": "s1", "method": "roots/list"}, out=True),
        line(0, {"id": "s1", "result": {"roots": []}}),
        line(0, asked(4, "tools/call", name="ask")),
    )
    assert brief(steps) == [Listen(("tools",)), ("call", "ask", {})]


def test_each_session_is_a_script_and_one_server_is_chosen() -> None:
    lines = [
        line(at, asked(at, "tools/call", name=f"t{at}"), server=server, session=session)
        for at, (server, session) in enumerate([("shop", "a"), ("mail", "b"), ("shop", "c"), ("shop", "a")])
    ]
    scenario = replay_of(b"".join(lines), FILE, "shop")
    assert [
        (one.name, [step.name for step in one.steps if isinstance(step, StepRequest)]) for one in scenario.scripts
    ] == [
        ("a", ["t0", "t3"]),
        ("c", ["t2"]),
    ]
    with pytest.raises(BadScenario, match=r"has several servers \(mail, shop\): name one, as day.jsonl#shop"):
        replay_of(b"".join(lines), FILE, None)
    with pytest.raises(BadScenario, match=r"has no server 'post'; it has mail, shop"):
        replay_of(b"".join(lines), FILE, "post")


def test_modern_requests_over_http_are_one_script_although_they_have_no_session() -> None:
    steps = steps_of(
        line(0.0, asked(1, "tools/call", name="a"), session="m-1"),
        line(0.1, asked(1, "tools/call", name="b"), session="m-2"),
        line(0.2, {"id": 1, "result": {}}, session="m-1", out=True),
        line(0.3, {"id": 1, "result": {}}, session="m-2", out=True),
        line(1.3, asked(1, "tools/call", name="c"), session="m-3"),
    )
    assert brief(steps) == [("call", "a", {}), ("call", "b", {}), (1000, 1000), ("call", "c", {})]


def test_a_plain_list_of_messages_is_played_without_pauses() -> None:
    messages = [asked(1, "tools/call", name="a"), {"id": 1, "result": {}}, asked(2, "tools/call", name="b")]
    data = b"".join(json.dumps({"jsonrpc": "2.0", **one}).encode() + b"\n" for one in messages)
    [script] = replay_of(data, FILE, None).scripts
    assert called(script) == ["a", "b"]


@pytest.mark.parametrize("data", [b"", b"\n", line(0, {"method": "notifications/initialized"})])
def test_a_recording_without_requests_is_refused(data: bytes) -> None:
    with pytest.raises(BadScenario, match="no request of a client"):
        replay_of(data, FILE, None)


def test_what_is_no_recording_is_an_error_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "odd.jsonl"
    file.write_bytes(b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}\n{]\n')
    with pytest.raises(BadArgument, match=r"odd\.jsonl: is not a recording: line 2: "):
        read_scenario(file)
    file.write_bytes(line(0, asked(1, "tools/list")) + line(0, asked(1, "tools/list"), server="mail"))
    assert read_scenario(Path(f"{file}#mail")).scripts[0].steps[0] == StepRequest(
        label="list tools", kind="list", name="tools"
    )


def test_long_recordings_are_bounded() -> None:
    many = b"".join(line(0, asked(1, "tools/list"), session=f"s{number}") for number in range(MAX_SCRIPTS + 9))
    assert len(replay_of(many, FILE, None).scripts) == MAX_SCRIPTS
    one = line(0, asked(1, "tools/list")) + line(0, {"id": 1, "result": {}}, out=True)
    [script] = replay_of(one * (MAX_STEPS + 9), FILE, None).scripts
    assert MAX_STEPS - 2 <= len(script.steps) <= MAX_STEPS


JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(st.tuples(st.sampled_from(["id", "method", "params"]), JSON), max_size=4), JSON)
def test_odd_messages_of_a_recording_are_steps_or_left_out(members: list[tuple[str, Any]], params: Any) -> None:
    for method in ("tools/call", "subscriptions/listen", "resources/read"):
        odd = {**dict(members), "id": 1, "method": method, "params": params}
        try:
            found = replay_of(line(0, odd) + line(1, asked(2, "tools/list")), FILE, None)
        except BadScenario:
            continue
        assert isinstance(found, Scenario)
