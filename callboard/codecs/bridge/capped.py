"""A result that is larger than its backend's `max_result`, cut down so that a model can still use it.

The result of a tool keeps what fits: structured content whole or not at all, then blocks in their order, the first text
that does not fit cut. A last block says how much is missing. Without the structured content that its tool may have
promised, the result is an error. Other results have no place for such a note: they are refused.
"""

from typing import Any, Final

import msgspec
from msgspec import Raw

from callboard.codecs.members import Members, raw

LEAST_RESULT: Final = 1024
"""Smallest `max_result`, in bytes: the note, and something of the result."""

_BLOCKS: Final = msgspec.json.Decoder(list[Raw])
_OWN: Final = ("content", "structuredContent")


def size_of_result(result: Members) -> int:
    """Bytes of a result, as the backend wrote its members."""
    return sum(map(len, result.values()))


def cap_call(result: Members, limit: int, backend: str) -> Members:
    """The result of a tool that has more than *limit* bytes, with at most so many and a note."""
    size = size_of_result(result)
    room = limit
    kept: dict[str, Any] = {}
    for name, value in result.items():
        if name not in _OWN and len(value) <= room // 4:
            kept[name] = value
            room -= len(value)
    structured = result.get("structuredContent")
    if structured is not None and len(structured) <= room:
        kept["structuredContent"] = structured
        room -= len(structured)
    elif structured is not None:
        kept["isError"] = raw(True)
    blocks, left_out = _fitting(result.get("content"), room)
    what = [f"{left_out} of its content blocks"] if left_out else []
    what += ["its structured content"] if structured is not None and "structuredContent" not in kept else []
    missing = f" Left out: {' and '.join(what)}." if what else ""
    note = (
        f"[The result of {backend} has {size:,} bytes, and this broker passes on at most {limit:,}: "
        f"it was truncated.{missing} Ask for less, for example with a filter or page by page.]"
    )
    kept["content"] = raw([*blocks, {"type": "text", "text": note}])
    return kept


def _fitting(content: Raw | None, room: int) -> tuple[list[Any], int]:
    """The blocks that fit, the first text that does not cut, and how many are left out altogether."""
    try:
        blocks = [] if content is None else _BLOCKS.decode(content)
    except msgspec.DecodeError:
        return [], 0  # no list: nothing of it is a block
    found: list[Any] = []
    for block in blocks:
        if len(block) > room:
            cut = _cut(block, room)
            return [*found, *cut], len(blocks) - len(found) - len(cut)
        found.append(block)
        room -= len(block)
    return found, 0


class _Text(msgspec.Struct, tag_field="type", tag="text"):
    text: str


def _cut(block: Raw, room: int) -> list[Any]:
    """The beginning of a text that fits; nothing of another block."""
    try:
        text = msgspec.json.decode(block, type=_Text).text
    except msgspec.DecodeError:
        return []
    text = text[:room]
    while text and len(written := msgspec.json.encode(text)) > room:
        text = text[: len(text) * room // len(written) - 1] if len(text) > 1 else ""
    return [{"type": "text", "text": text}] if text else []
