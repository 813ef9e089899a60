"""Requests that callboard's client has made once, to be sent again and again with another id; and their answers, of
which no more is read than whether they are."""

import re
from typing import Final

import attrs
import msgspec

from callboard.bench.work import MAX_SAID, Act, ToolFailed
from callboard.errors import BadAnswer, CallboardError, HttpRefused, ServerRefused

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The response is invalid."""

FIRST_ID: Final = 1_000_000_000
"""Beyond all that the client uses, and always of the same length."""

_FORM: Final = re.compile(
    rb"(?:(?P<head>POST .*?\r\ncontent-length: )\d+(?P<tail>\r\n.*?\r\n))?"
    rb'(?P<start>\{"jsonrpc":"2\.0","id":)(?P<id>\d+)(?P<rest>,.*)',
    re.DOTALL,
)
_SESSION: Final = b"\r\nmcp-session-id: "


class Failure(msgspec.Struct):
    code: int
    message: str = ""


class Outcome(msgspec.Struct, rename="camel"):
    is_error: bool = False
    result_type: str = "complete"


class Answer(msgspec.Struct):
    id: int | str | None = None
    result: Outcome | None = None
    error: Failure | None = None


class Block(msgspec.Struct):
    text: str = ""


class Failing(msgspec.Struct):
    content: list[Block] = []


class FailedAnswer(msgspec.Struct):
    result: Failing


decode: Final = msgspec.json.Decoder(Answer).decode
_decode_failed: Final = msgspec.json.Decoder(FailedAnswer).decode


@attrs.frozen
class Template:
    """A request with a gap for its id between *pieces*; the id is the progress token, too."""

    pieces: tuple[bytes, ...]

    @classmethod
    def of(cls, sent: bytes) -> "Template | None":
        """Of a message, or of a whole HTTP request with one. None for what the client does not write like that."""
        found = _FORM.fullmatch(sent)
        if found is None:
            return None
        start, number, rest = found["start"], found["id"], found["rest"]
        # The last one: a tool may have an argument of that name.
        before, token, after = rest.rpartition(b'"progressToken":%b' % number)
        is_token = token and after[:1] in (b",", b"}")
        pieces = (start, before + b'"progressToken":', after) if is_token else (start, rest)
        if found["head"] is None:
            return cls(pieces)
        length = sum(map(len, pieces)) + (len(pieces) - 1) * len(b"%d" % FIRST_ID)
        head = b"%b%d%b" % (found["head"], length, found["tail"])
        return cls((head + pieces[0], *pieces[1:]))

    @property
    def has_session(self) -> bool:
        """Whether it is good for one session, and not for another."""
        return _SESSION in self.pieces[0]

    def filled(self, number: int) -> bytes:
        return (b"%d" % number).join(self.pieces)


def fault_of(answer: Answer, act: Act, written: bytes) -> CallboardError | None:
    """The error that the client would raise for this answer, *written* so; None for a good one."""
    if answer.error is not None:
        return ServerRefused(answer.error.code, answer.error.message)
    if answer.result is None or answer.result.result_type != "complete":
        return BadAnswer("not a valid result of this request")
    if answer.result.is_error:
        return ToolFailed(f"the tool {act.name} failed: {_reason(written)}")
    return None


def _reason(written: bytes) -> str:
    """What a tool said when it failed. Read a second time, because most do not fail."""
    try:
        said = next((block.text for block in _decode_failed(written).result.content if block.text), "")
    except UNREADABLE:
        said = ""
    return " ".join(said[:MAX_SAID].split()) or "no reason given"


def http_fault_of(status: int, body: bytes, number: int, act: Act) -> CallboardError | None:
    """The same for an answer by HTTP, be it JSON or a stream of events."""
    whole = body
    if not body.startswith(b"{"):
        events = [line[5:] for line in body.splitlines() if line.startswith(b"data:") and len(line) > len(b"data: ")]
        body = events[-1] if events else b""
    try:
        answer = decode(body)
    except UNREADABLE:
        text = whole[:MAX_SAID].decode("utf-8", "replace")
        return HttpRefused(status, text) if status != 200 else BadAnswer(f"not JSON-RPC: {text}")
    fault = fault_of(answer, act, body)
    if isinstance(fault, ServerRefused):
        return fault
    if status != 200:
        return HttpRefused(status, "")
    return BadAnswer("a response to another request") if fault is None and answer.id != number else fault
