"""The client's side of a WebSocket: how it asks for one, what it must see in the answer, and its frames, masked."""

import base64
import re
from collections.abc import Iterable
from typing import Any, Final

import attrs
import msgspec

from callboard.codecs.http.response_parser import AnswerHead
from callboard.codecs.websocket.handshake import (
    GRACE,
    RECEIVED,
    RESUMABLE,
    SESSION,
    SUBPROTOCOL,
    VERSION,
    accept_token,
)
from callboard.codecs.websocket.masking import masked
from callboard.errors import BadAnswer

SESSION_KEY: Final = "dev.callboard/session"
"""The member of `_meta` in which the result of `initialize` says how to come back."""

ASKING: Final = ((RESUMABLE, b"1"),)
"""The header of a client that wants to come back if its socket drops, in any era."""

RESUMABLE_FROM_HERE: Final = "notifications/dev.callboard/resumable"
"""First message of a server to a client that asked for that. It is not counted."""

RESUMED: Final = "notifications/dev.callboard/resumed"
"""First message of a server to a client that resumes. It is not counted."""

_IS_MASKED: Final = 0x80
_SIZES: Final = {126: 4, 127: 10}
_NUMBER: Final = re.compile(rb"[0-9]{1,15}")
_VISIBLE: Final = re.compile(r"[!-~]{1,256}")
_FIRST_WORD: Final = b"notifications/dev.callboard/resum"
_READ = msgspec.json.Decoder()


@attrs.frozen
class ResumeTicket:
    """Id of a resumable session, and the seconds it survives without a socket."""

    id: str = attrs.field(repr=False)
    grace: float


def write_opening(target: bytes, authority: bytes, key: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> bytes:
    """The request that asks for a WebSocket. *key* is 16 random bytes."""
    own = (
        (b"host", authority),
        (b"upgrade", b"websocket"),
        (b"connection", b"Upgrade"),
        (b"sec-websocket-version", VERSION),
        (b"sec-websocket-key", base64.b64encode(key)),
        (b"sec-websocket-protocol", SUBPROTOCOL),
    )
    lines = [b"%b: %b\r\n" % header for header in (*own, *headers)]
    return b"".join((b"GET %b HTTP/1.1\r\n" % target, *lines, b"\r\n"))


def coming_back(ticket: ResumeTicket, received: int) -> tuple[tuple[bytes, bytes], ...]:
    """The headers of a client that goes on with a session, of which it has *received* messages."""
    return ((SESSION, ticket.id.encode("ascii")), (RECEIVED, b"%d" % received))


def check_accepted(head: AnswerHead, key: bytes) -> None:
    """See that a 101 is the answer to this very handshake. Raises `BadAnswer`."""
    if (head.get(b"upgrade") or b"").lower() != b"websocket":
        raise BadAnswer("the server switched to another protocol than WebSocket")
    if head.get(b"sec-websocket-accept") != accept_token(base64.b64encode(key)):
        raise BadAnswer("the response does not match the handshake (Sec-WebSocket-Accept)")
    if head.get(b"sec-websocket-protocol") not in (None, SUBPROTOCOL):
        raise BadAnswer("the server chose a subprotocol that was not offered")
    if head.get(b"sec-websocket-extensions"):
        raise BadAnswer("the server uses extensions that were not offered")


def received_there(head: AnswerHead) -> int:
    """How many messages of a client that comes back the server has. Raises `BadAnswer`."""
    number = head.get(RECEIVED) or b""
    if _NUMBER.fullmatch(number) is None:
        raise BadAnswer("the server did not send Mcp-Received")
    return int(number)


def read_ticket(frame: bytes) -> ResumeTicket | None:
    """The resumption offer in the result of `initialize`; None if there is none."""
    try:
        told = _READ.decode(frame)["result"]["_meta"][SESSION_KEY]
        session, grace = _VISIBLE.fullmatch(told["id"]), float(told["grace"])
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError):
        return None
    return None if session is None or not grace > 0 else ResumeTicket(session[0], grace)


def offered_ticket(head: AnswerHead) -> ResumeTicket | None:
    """How to come back to a connection of any era, if the server lets its client; None if it does not."""
    session = _VISIBLE.fullmatch((head.get(SESSION) or b"").decode("latin-1"))
    try:
        grace = float(head.get(GRACE) or b"0")
    except ValueError:
        return None
    return None if session is None or not grace > 0 else ResumeTicket(session[0], grace)


def is_first_word(frame: bytes) -> bool:
    """Whether it is what a server says to a client that may come back, or that came back."""
    if _FIRST_WORD not in frame:
        return False
    try:
        said: Any = _READ.decode(frame)
    except msgspec.MsgspecError:
        return False
    return isinstance(said, dict) and said.get("method") in (RESUMED, RESUMABLE_FROM_HERE)


def mask(frame: bytes, key: bytes) -> bytes:
    """A frame as a client must send it: *frame*, which a server would send, masked by four random bytes."""
    start = _SIZES.get(frame[1], 2)
    return bytes((frame[0], frame[1] | _IS_MASKED)) + frame[2:start] + key + masked(frame[start:], key)
