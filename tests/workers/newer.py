"""`python -m tests.workers.newer`: callboard, whose parent and every other worker say more than this release knows.

What they add (kinds of messages and frames, members, headers) is what a later release may say beside this one.
"""

import json
import os
from types import ModuleType
from typing import Final

from callboard.actors.server import session, session_record
from callboard.actors.terms import Terms
from callboard.cli.main import main
from callboard.codecs import link as frames
from callboard.codecs.caller import Caller
from callboard.codecs.http.head import Head
from callboard.workers import control, link, link_server, messages, relay
from callboard.workers.messages import VARIABLE, Message
from callboard.workers.worker import Worker

UNKNOWN_KIND: Final = 200
MORE: Final = {"mood": ["good"]}

_frame = frames.write_frame
_begin = Worker.__attrs_post_init__


def write_message(message: Message) -> bytes:
    """With an unknown member, and another message of an unknown kind."""
    said = json.loads(messages.write_message(message)) | MORE
    for peer in said.get("workers", []):
        peer |= MORE
    return json.dumps(said).encode() + b'\n{"kind":"cheer","loud":true}\n'


def write_frame(stream: int, kind: int, payload: bytes = b"") -> bytes:
    """With others of an unknown kind: of the same request, and of none."""
    unknown = [_frame(number, UNKNOWN_KIND, b"hurrah") for number in (stream, 0)]
    return unknown[0] + _frame(stream, kind, payload) + unknown[1]


def write_forwarded(head: Head, body: bytes, caller: Caller, peer: str) -> bytes:
    first, rest = relay.write_forwarded(head, body, caller, peer).split(b"\r\n", 1)
    return first + b"\r\ncallboard-mood: good\r\n" + rest


def write_record(terms: Terms, followed: list[str], *, is_ready: bool, path: str = "") -> bytes:
    record = session_record.write_record(terms, followed, is_ready=is_ready, path=path)
    return json.dumps(json.loads(record) | MORE).encode()


OPENING: Final = link.OPENING.replace(b"\r\n", b"\r\ncallboard-mood: good\r\n", 1)

LATER: Final[list[tuple[ModuleType, str, object]]] = [
    (control, "write_message", write_message),
    (frames, "write_frame", write_frame),
    (link, "write_frame", write_frame),
    (link_server, "write_frame", write_frame),
    (link, "write_forwarded", write_forwarded),
    (link, "OPENING", OPENING),
    (session, "write_record", write_record),
]
"""What differs in the later release."""


def become_later() -> None:
    for module, name, later in LATER:
        assert hasattr(module, name)
        setattr(module, name, later)


def begin(worker: Worker) -> None:
    _begin(worker)
    if worker.assignment.number % 2:
        become_later()


if __name__ == "__main__":
    if VARIABLE not in os.environ:
        become_later()
    Worker.__attrs_post_init__ = begin  # type: ignore[method-assign, assignment]  # a method, all the same
    main()
