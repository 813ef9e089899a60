"""Recorded messages: one JSON line each, with the time, the server and the direction; and without secrets.

    {"time": "2026-07-28T12:00:00.125Z", "server": "weather", "session": "weather-1", "direction": "to_server",
     "message": {"jsonrpc": "2.0", ...}}

A line may also be a message and nothing else: then it is not known where it was heard.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

import attrs
import msgspec

from callboard.codecs.json_scan import check_frame, check_value
from callboard.errors import ParseError, PeerError

Direction: TypeAlias = Literal["to_server", "from_server"]

HIDDEN: Final = "***"
"""What stands in the place of a secret."""

MAX_NAME: Final = 64
"""Characters at the end of a member's name that say what it is."""

_open = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

_ABOUT: Final = ("time", "server", "session", "direction")

_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_SECRETS: Final = frozenset(
    {
        *("token", "tokens", "secret", "secrets", "password", "passwords", "passwd", "pwd", "passphrase", "jwt"),
        *("credential", "credentials", "authorization", "auth", "bearer", "cookie", "cookies", "apikey", "apikeys"),
    }
)
"""Last words of the name of a member whose value is a secret."""
_KEYS: Final = frozenset({"api key", "api keys", "private key", "access key", "secret key", "request state"})
"""The same, of two words."""
_NO_SECRET: Final = frozenset({"progressToken", "maxTokens"})
"""Names of the protocol's own that only sound so."""
_STEMS: Final = ("token", "secret", "passw", "passphrase", "key", "credential", "authorization", "cookie")
_NAMED: Final = (
    r"(?:token|secret|passw(?:or)?d|passphrase|(?:api|private|access)[_-]?key|credentials?|authorization|cookie)"
)
_SCHEMA: Final = frozenset({"$ref", "anyOf", "oneOf", "allOf", "enum", "const", "properties", "items"})
_SCHEMA_TYPES: Final = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})
"""What a JSON Schema has: that a member is named as a secret there says how a secret is asked for, and is none."""

_RUN: Final = "[A-Za-z0-9_-]"
_SECRET_TEXTS: Final = (
    (("bearer", "basic"), re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE), rf"\1 {HIDDEN}"),
    # A text may be JSON, or lines of settings: the same names count there.
    (_STEMS, re.compile(rf'({_NAMED}"\s*:\s*)"(?:[^"\\]|\\.)*"', re.IGNORECASE), rf'\1"{HIDDEN}"'),
    (_STEMS, re.compile(rf"({_NAMED}\s?[=:]\s?)[^\s\"',;&]{{4,}}", re.IGNORECASE), rf"\1{HIDDEN}"),
    # Each run of such characters is looked at once: a text may be made so that each attempt fails as late as can be.
    (("eyj",), re.compile(rf"(?<!{_RUN})(?>({_RUN}*?)eyJ)(?>{_RUN}{{5,}})\.(?>{_RUN}{{5,}})\.{_RUN}*"), rf"\1{HIDDEN}"),
    (
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "sk-", "xox", "glpat-", "akia"),
        re.compile(r"\b(?:gh[pousr]_|github_pat_|sk-|xox[abprs]-|glpat-)[A-Za-z0-9_-]{16,}|\bAKIA[0-9A-Z]{16}\b"),
        HIDDEN,
    ),
    (("://",), re.compile(r"://[^/@\s\"']{1,200}@"), f"://{HIDDEN}@"),
    # Of a query: keys, signatures and codes, as clouds and authorization servers have them there.
    (
        ("key=", "sig=", "signature=", "code="),
        re.compile(r"([?&][A-Za-z0-9_-]{0,40}(?:key|sig|signature|code)=)[^\s\"'&#]{4,}", re.IGNORECASE),
        rf"\1{HIDDEN}",
    ),
)
"""Secrets inside texts: parts, one of which each has (in lower case), the form, and what is shown instead. To look for
the parts is a hundred times as fast as to look for the form."""

PIECE: Final = 32 * 1024
"""Characters of a text that are looked at in one go: all other threads wait meanwhile."""
_BETWEEN: Final = (re.compile(r"\n|[,;}]\s?"), re.compile(r"\s"))
"""Where it is cut, by preference: what comes before a secret says that it is one, and must be seen together with it."""


@attrs.frozen
class RecordedMessage:
    """One message, and where it was heard; empty where that is not known."""

    message: dict[str, Any]
    time: str = ""
    server: str = ""
    session: str = ""
    direction: Direction | Literal[""] = ""


def write_line(recorded: RecordedMessage) -> bytes:
    """One line of a recording, with its end."""
    about = {name: value for name in _ABOUT if (value := getattr(recorded, name))}
    line = {**about, "message": recorded.message} if about else recorded.message
    return msgspec.json.encode(line) + b"\n"


def read_lines(data: bytes) -> Iterator[tuple[int, RecordedMessage]]:
    """The messages of a recording, each with the number of its line. Lines that only tell of a gap are left out.

    Raises `ParseError` with the line that is no message.
    """
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            try:
                recorded = _read_line(line)
            except PeerError as error:
                raise ParseError(f"line {number}: {error}") from None
            if recorded is not None:
                yield number, recorded


def _read_line(line: bytes) -> RecordedMessage | None:
    check_frame(line)
    try:
        members = _open(line)
        check_value(bytes(members.get("message", line)))  # the depth that a message may have
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        raise ParseError("expected a JSON object") from None
    if "jsonrpc" in value:
        return RecordedMessage(value)
    if "dropped" in value and "message" not in value:
        return None
    about = {name: value.get(name, "") for name in _ABOUT}
    if not isinstance(value.get("message"), dict) or not all(isinstance(one, str) for one in about.values()):
        raise ParseError("expected a message, or a recorded one")
    if about["direction"] not in ("", "to_server", "from_server"):
        raise ParseError("`direction` is to_server or from_server")
    return RecordedMessage(value["message"], **about)


def redacted(value: Any) -> Any:
    """A JSON value without what could be a secret: members that are named as one, and texts that look like one."""
    if isinstance(value, dict):
        return {name: _redacted_member(name, inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [redacted(inner) for inner in value]
    return _without_secrets(value) if isinstance(value, str) else value


def _redacted_member(name: str, value: Any) -> Any:
    return _hidden(value) if _is_secret(name) and not _is_schema(value) else redacted(value)


def _hidden(value: Any) -> Any:
    """A secret: its form, and nothing of what it says."""
    if isinstance(value, dict):
        return {name: _hidden(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_hidden(inner) for inner in value]
    return value if value is None or isinstance(value, bool) else HIDDEN


def _is_schema(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    return not _SCHEMA.isdisjoint(value) or (isinstance(kind, str) and kind in _SCHEMA_TYPES)


@lru_cache(maxsize=4096)
def _is_secret(name: str) -> bool:
    words = [word.lower() for word in _WORD.findall(name[-MAX_NAME:])]
    return name not in _NO_SECRET and ((words[-1:] != [] and words[-1] in _SECRETS) or " ".join(words[-2:]) in _KEYS)


def _pieces(text: str) -> Iterator[str]:
    """A long text in parts, cut where no secret goes on: or anywhere, if there is no such place."""
    at = 0
    while at < len(text):
        end = at + PIECE
        if end < len(text):
            ends = ([found.end() for found in form.finditer(text, end - PIECE // 4, end)] for form in _BETWEEN)
            end = next((found[-1] for found in ends if found), end)
        yield text[at:end]
        at = end


def _without_secrets(text: str) -> str:
    if len(text) > PIECE:
        return "".join(map(_without_secrets, _pieces(text)))
    lowered = text.lower()
    for parts, form, shown in _SECRET_TEXTS:
        if any(part in lowered for part in parts):
            text = form.sub(shown, text)
    return text
