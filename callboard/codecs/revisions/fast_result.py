"""The results that most calls have, read without a look at the models: texts, and nothing else.

Anything in the least unusual is left to the models. They say the same of these, and take four times as long.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Literal, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from callboard.codecs.revisions import CallToolResult, ResultMetaObject, Revision, TextContent, read

MAX_REMEMBERED: Final = 2048
"""Longest `_meta` of a result that is remembered, in bytes: a server says the same with every one."""


class _Text(Struct, forbid_unknown_fields=True):
    type: Literal["text"]
    text: str


_USUAL: Final = frozenset(("content", "_meta", "resultType", "isError"))
_COMPLETE: Final = b'"complete"'
_FLAGS: Final[Mapping[bytes, bool]] = {b"true": True, b"false": False}
_read_texts = msgspec.json.Decoder(list[_Text]).decode


def read_plain(revision: Revision, result: Mapping[str, Raw]) -> CallToolResult | None:
    """The result of a call, if it is one of that kind. Raises `InvalidParams` for a `_meta` that does not fit."""
    if "content" not in result or not result.keys() <= _USUAL:
        return None
    if "resultType" in result and (not revision.dialect.typed_results or bytes(result["resultType"]) != _COMPLETE):
        return None
    is_error: bool | UnsetType | None = UNSET
    if "isError" in result and (is_error := _FLAGS.get(bytes(result["isError"]))) is None:
        return None
    said = bytes(result.get("_meta", b""))
    if len(said) > MAX_REMEMBERED:
        return None
    try:
        texts = _read_texts(result["content"])
    except msgspec.ValidationError:
        return None
    meta = _remembered(revision, said) if said else UNSET
    if meta is not UNSET and meta.extra:  # which its reader may change
        return None
    blocks = [TextContent(text=one.text) for one in texts]
    return CallToolResult(content=blocks, meta=meta, is_error=cast("Any", is_error))


def _read_meta(revision: Revision, said: bytes) -> ResultMetaObject:
    return read(revision, ResultMetaObject, said, at="result._meta")


_remembered: Final = lru_cache(maxsize=256)(_read_meta)
