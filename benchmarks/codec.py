"""Decode, route, encode: what a broker does with a `tools/call` that it passes on.

    python -m benchmarks.codec [--quick] [--json FILE]

The job is the same for all: read the frame, find from the prefixed name whose call it is, and write it on under a new
id and the backend's own name for the tool. callboard checks all that it promises to check (PROMISES section 2); `json`
checks next to nothing; the official types come from PyPI's `mcp` 2.3.0, in an environment of their own.
"""

import argparse
import json
import random
from typing import Any

from msgspec import UNSET

from benchmarks.measure import Figure, Timer, add_json, alternate, as_json, timer, verdict, write_json
from benchmarks.peers import Worker, environment
from callboard.codecs.envelope import Request, decode, encode
from callboard.codecs.members import raw
from callboard.codecs.routing import read_route

TARGET = 10.0


def call(arguments: dict[str, Any]) -> bytes:
    params = {"name": "weather__forecast", "arguments": arguments, "_meta": {"progressToken": "call-17"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return json.dumps(message, separators=(",", ":")).encode()


def frames() -> dict[str, bytes]:
    """Calls of 400 bytes and of 40 kB: many small values, one long text, one vector of numbers."""
    draw = random.Random(40)
    row = {"name": "Ada", "email": "ada@example.com", "active": True, "tags": ["a", "b"]}
    rows = [{"id": number, "score": number * 1.5, **row} for number in range(400)]
    vector = [round(draw.uniform(-1, 1), 6) for _ in range(4000)]
    text = "It was the best of times, it was the worst of times, "
    return {
        "400 B": call({"city": "Oslo", "days": 3, "note": text * 5}),
        "40 kB, rows of small values": call({"rows": rows}),
        "40 kB, one text": call({"text": text * 750}),
        "40 kB, one vector of numbers": call({"embedding": vector}),
    }


def callboard_forward(frame: bytes) -> bytes:
    request = decode(frame)
    assert isinstance(request, Request)
    assert request.params is not UNSET
    _, _, name = (read_route(request).name or "").partition("__")
    return encode(Request(7, request.method, {**request.params, "name": raw(name)}))


def dict_forward(frame: bytes) -> bytes:
    message = json.loads(frame)
    _, _, message["params"]["name"] = message["params"]["name"].partition("__")
    message["id"] = 7
    return json.dumps(message, separators=(",", ":")).encode()


def official_timer(worker: Worker, frame: bytes) -> Timer:
    def run(budget: float) -> float:
        answer = worker.ask(frame=frame.decode(), budget=budget)
        assert json.loads(answer["answer"]) == json.loads(callboard_forward(frame))
        return float(answer["seconds"])

    return run


def measure(rounds: int, budget: float) -> dict[str, list[Figure]]:
    found = {}
    with Worker(environment("mcp==2.3.0"), "codec_official.py") as official:
        for name, frame in frames().items():
            assert json.loads(callboard_forward(frame)) == json.loads(dict_forward(frame))
            timers = {
                "callboard": timer(lambda frame=frame: callboard_forward(frame)),  # type: ignore[misc]
                "json dicts": timer(lambda frame=frame: dict_forward(frame)),  # type: ignore[misc]
                "official types (mcp 2.3.0)": official_timer(official, frame),
            }
            found[name] = alternate(timers, rounds=rounds, budget=budget)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three short rounds instead of seven")
    add_json(parser)
    options = parser.parse_args()
    found = measure(3 if options.quick else 7, 0.05 if options.quick else 0.3)
    for name, figures in found.items():
        print(f"{name}: decode + route + encode; median, times as long as callboard (lowest to highest)")
        for figure in figures:
            print(figure.row())
    for name, figures in found.items():
        if name.startswith("40 kB"):
            print(verdict(f"{name}: official types / callboard", figures[-1].ratio, TARGET))
    write_json(options.json, {name: as_json(figures) for name, figures in found.items()})


if __name__ == "__main__":
    main()
