"""What `hosting.py` asks every server: the same calls, as exact bytes, and the check that they are answered."""

import http.client
import json
from typing import Any, Final

import attrs

MODERN: Final = "2026-07-28"
LEGACY: Final = "2025-11-25"
META: Final = "io.modelcontextprotocol/"
CLIENT: Final = {"name": "bench", "version": "0"}

MARK: Final = "call-00000000"
"""Stands for the id of a call: the generator puts another one of the same length there for each."""

TEXT: Final = ("It was the best of times, it was the worst of times. " * 200)[:10_000]
"""What is echoed: 10 kB."""

ANSWER_TIME: Final = 30.0
"""Seconds for one answer to a check. It takes milliseconds; a server that hangs is not waited for."""


class WrongAnswer(AssertionError):
    """A server does not do what it is measured for."""


@attrs.frozen
class Call:
    """A tool call in one era: its headers, but for those of the connection, and its body."""

    headers: dict[str, str]
    body: bytes

    def raw(self, port: int, path: str = "/mcp") -> bytes:
        """The whole request, as it stands on the wire."""
        headers = {"Host": f"127.0.0.1:{port}", **self.headers, "Content-Length": str(len(self.body))}
        lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode() + self.body


def tool_call(tool: str, *, session: str | None, is_streamed: bool, text: str = "") -> Call:
    """A call of *tool*: legacy in a session, modern without. With a token for progress if that is wanted."""
    arguments = {"text": text or TEXT} if text or tool.startswith("echo") else {}
    meta: dict[str, Any] = {"progressToken": MARK} if is_streamed else {}
    if session is None:
        about = {"protocolVersion": MODERN, "clientInfo": CLIENT, "clientCapabilities": {}}
        meta |= {META + name: value for name, value in about.items()}
    params = {"name": tool, "arguments": arguments, **({"_meta": meta} if meta else {})}
    names = {"Mcp-Method": "tools/call", "Mcp-Name": tool} if session is None else {"Mcp-Session-Id": session}
    version = {"MCP-Protocol-Version": MODERN if session is None else LEGACY}
    return Call({**_COMMON, **version, **names}, _json({"id": MARK, "method": "tools/call", "params": params}))


_COMMON: Final = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


def _json(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode()


@attrs.define(eq=False)
class Caller:
    """One connection to a server, for what is not measured."""

    port: int
    path: str = "/mcp"
    source: str = "127.0.0.1"
    """The address that it calls from: what a server lets one address hold is bounded."""
    _connection: http.client.HTTPConnection = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=ANSWER_TIME, source_address=(self.source, 0)
        )

    def open_session(self) -> str:
        """Shake hands, and return the session's id. Raises `WrongAnswer`."""
        hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT}
        first = Call(_COMMON, _json({"id": 1, "method": "initialize", "params": hello}))
        status, headers, body = self._post(first)
        session = headers.get("mcp-session-id")
        if status != 200 or session is None:
            raise WrongAnswer(f"initialize: {status} {body[:300]!r}")
        bound = {**_COMMON, "MCP-Protocol-Version": LEGACY, "Mcp-Session-Id": session}
        status, _, body = self._post(Call(bound, _json({"method": "notifications/initialized"})))
        if status != 202:
            raise WrongAnswer(f"notifications/initialized: {status} {body[:300]!r}")
        return session

    def check(self, call: Call, expected: str, *, is_streamed: bool) -> None:
        """See that *call* is answered as wanted, and in the form that is measured. Raises `WrongAnswer`."""
        status, headers, body = self._post(call)
        form = headers.get("content-type", "").partition(";")[0]
        wanted = "text/event-stream" if is_streamed else "application/json"
        words = body.decode(errors="replace")
        if status != 200 or form != wanted or expected not in words or '"error":' in words:
            raise WrongAnswer(f"not 200 {wanted} with {expected[:40]!r}: {status} {form} {words[:600]}")

    def check_either(self, call: Call, expected: str) -> None:
        """As `check`, whether the answer is a stream or not. Raises `WrongAnswer`."""
        status, _, body = self._post(call)
        words = body.decode(errors="replace")
        if status != 200 or expected not in words or '"error":' in words:
            raise WrongAnswer(f"not 200 with {expected[:40]!r}: {status} {words[:600]}")

    def close(self) -> None:
        self._connection.close()

    def _post(self, call: Call) -> tuple[int, http.client.HTTPMessage, bytes]:
        self._connection.request("POST", self.path, call.body, call.headers)
        response = self._connection.getresponse()
        return response.status, response.headers, response.read()
