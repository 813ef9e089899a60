"""The official types at the same job as `codec.py`. Runs in the peer's environment, never in ours."""

import json
import sys
import time

from mcp_types import JSONRPCRequest, jsonrpc_message_adapter, methods

VERSION = "2025-11-25"


def forward(frame: bytes) -> bytes:
    """Read a call, find whose it is, write it on under a new id and the backend's own name."""
    message = jsonrpc_message_adapter.validate_json(frame, by_name=False)
    request = methods.parse_client_request(message.method, VERSION, message.params)
    request.params.name = request.params.name.partition("__")[2]
    params = request.params.model_dump(by_alias=True, mode="json", exclude_unset=True)
    onward = JSONRPCRequest(jsonrpc="2.0", id=7, method=message.method, params=params)
    text: str = onward.model_dump_json(by_alias=True, exclude_unset=True)
    return text.encode()


def main() -> None:
    for line in sys.stdin:
        question = json.loads(line)
        frame, budget = question["frame"].encode(), question["budget"]
        started = time.perf_counter()
        answer = forward(frame)
        count = max(1, int(budget / (time.perf_counter() - started)))
        started = time.perf_counter()
        for _ in range(count):
            forward(frame)
        seconds = (time.perf_counter() - started) / count
        print(json.dumps({"seconds": seconds, "answer": answer.decode()}), flush=True)


main()
