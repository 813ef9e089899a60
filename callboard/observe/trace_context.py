"""W3C trace context as clients send it: what is invalid or too long is dropped and counted, and never an error.

The propagators of OpenTelemetry read the same, but write a log line for what is wrong, as often as a client likes.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import attrs
import msgspec
from opentelemetry.trace import SpanContext, TraceFlags, TraceState

from callboard.codecs.http.head import Head
from callboard.codecs.members import Members

T = TypeVar("T")

MAX_PARENT: Final = 512
"""Longest `traceparent` of a later version, in characters. Version 00 has 55."""

MAX_STATE: Final = 512
"""Longest `tracestate`, in characters: what W3C wants carried at least."""

MAX_MEMBERS: Final = 32
"""Most members of `tracestate`, by W3C."""

MAX_BAGGAGE: Final = 8192
"""Longest `baggage`, in bytes, by W3C."""

_PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?")
_STATE_MEMBER: Final = re.compile(
    r"(?:[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_BAGGAGE_MEMBER: Final = re.compile(
    r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+[ \t]*=[ \t]*[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*[ \t]*(?:;[ -+\--~\t]*)?"
)
_STRING: Final = msgspec.json.Decoder(str)


@attrs.frozen
class RemoteContext:
    """What a client said of the trace that its request belongs to."""

    parent: SpanContext | None = None
    baggage: str = ""


NOTHING: Final = RemoteContext()


@attrs.define(eq=False)
class ContextReader:
    """Reads trace contexts, and counts what was dropped of them, by key."""

    dropped: Counter[str] = attrs.field(factory=Counter, init=False)

    def in_meta(self, meta: Members) -> RemoteContext:
        """What stands in `_meta`."""
        if "traceparent" not in meta and "baggage" not in meta:
            return NOTHING
        said: dict[str, str | None] = {}
        for key, most in (("traceparent", MAX_PARENT), ("tracestate", MAX_STATE), ("baggage", MAX_BAGGAGE)):
            raw = meta.get(key)
            if raw is not None:
                said[key] = _text(bytes(raw), most)
        return self._read(said)

    def in_head(self, head: Head) -> RemoteContext:
        """What stands in the headers of an HTTP request."""
        if head.get(b"traceparent") is None and head.get(b"baggage") is None:
            return NOTHING
        said: dict[str, str | None] = {}
        for key, most in (("traceparent", MAX_PARENT), ("tracestate", MAX_STATE), ("baggage", MAX_BAGGAGE)):
            if head.get(key.encode()) is not None:
                values = b",".join(head.all(key.encode()))  # two parents make an invalid one
                said[key] = values.decode("latin-1") if len(values) <= most else None
        return self._read(said)

    def _read(self, said: Mapping[str, str | None]) -> RemoteContext:
        parent = self._checked("traceparent", said, parent_of)
        state = self._checked("tracestate", said, state_of)
        if parent is not None and state is not None:
            parent = SpanContext(parent.trace_id, parent.span_id, True, parent.trace_flags, state)
        return RemoteContext(parent, self._checked("baggage", said, checked_baggage) or "")

    def _checked(self, key: str, said: Mapping[str, str | None], read: Callable[[str], T | None]) -> T | None:
        if key not in said:
            return None
        text = said[key]
        found = None if text is None else read(text)
        if found is None:
            self.dropped[key] += 1
        return found


def parent_of(text: str) -> SpanContext | None:
    """The span that a `traceparent` names; None if that is invalid."""
    match = _PARENT.fullmatch(text)
    if match is None or match[1] == "ff" or (match[1] == "00" and match[5] is not None):
        return None
    found = SpanContext(int(match[2], 16), int(match[3], 16), is_remote=True, trace_flags=TraceFlags(int(match[4], 16)))
    return found if found.is_valid else None


def state_of(text: str) -> TraceState | None:
    """The members of a `tracestate`; None if one is invalid, or they are too many."""
    members = [member for one in text.split(",") if (member := one.strip(" \t"))]
    pairs = [tuple(member.split("=", 1)) for member in members if _STATE_MEMBER.fullmatch(member)]
    if len(pairs) != len(members) or len(members) > MAX_MEMBERS or len({key for key, _ in pairs}) != len(pairs):
        return None
    return TraceState([(key, value) for key, value in pairs])


def checked_baggage(text: str) -> str | None:
    """*text* if it is written as W3C has it; else None."""
    return text if all(_BAGGAGE_MEMBER.fullmatch(one.strip(" \t")) for one in text.split(",")) else None


def _text(raw: bytes, most: int) -> str | None:
    if len(raw) > 6 * most + 2:  # each character may be escaped
        return None
    try:
        text = _STRING.decode(raw)
    except msgspec.MsgspecError:
        return None
    return text if len(text) <= most and text.isascii() else None
