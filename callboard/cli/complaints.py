"""What went wrong: an exit code, one line on standard error, and for scripts one JSON object on standard output."""

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from callboard.cli.codes import Exit
from callboard.cli.input_files import BadArgument
from callboard.cli.screen import Screen
from callboard.cli.streams import CannotWrite
from callboard.errors import (
    URL_ELICITATION_REQUIRED,
    CallboardError,
    CannotConnect,
    ConnectionLost,
    HttpRefused,
    InvalidTarget,
    NotAuthorized,
    RequestTimedOut,
    ServerRefused,
)

MOST_LINES: Final = 10
"""Lines of a server's standard error that are shown when it cannot be spoken to."""

MOST_CANDIDATES: Final = 5
"""Candidates of an ambiguous name that stand in the line; `--json` has all."""

UNTRUSTED: Final = ("self-signed certificate", "unable to get local issuer")
"""Words of OpenSSL for a certificate that no known CA has signed."""

_KINDS: Final[tuple[tuple[type[Exception], Exit, str], ...]] = (
    (BadArgument, Exit.USAGE, "usage"),
    (CannotWrite, Exit.CANNOT_WRITE, "cannot_write"),
    (InvalidTarget, Exit.USAGE, "usage"),
    (CannotConnect, Exit.CANNOT_CONNECT, "cannot_connect"),
    (RequestTimedOut, Exit.LOST, "timed_out"),
    (ConnectionLost, Exit.LOST, "connection_lost"),
    (NotAuthorized, Exit.REFUSED, "not_authorized"),
    (ServerRefused, Exit.REFUSED, "server_error"),
    (HttpRefused, Exit.REFUSED, "http_error"),
    (CallboardError, Exit.REFUSED, "error"),
)
"""Exit code and name of each kind of error: the first that fits."""


def code_of(error: Exception) -> Exit:
    """The exit code for what went wrong."""
    return next(code for kind, code, _ in _KINDS if isinstance(error, kind))


def complain(screen: Screen, error: Exception, said: Iterable[str] = (), *, is_json: bool = False) -> Exit:
    """Say what went wrong, in one line, and return its code. What a server *said* last stands above it, if it helps.

    With *is_json* standard output has the same as one object.
    """
    code = code_of(error)
    words = _last_words(list(said)) if code in (Exit.CANNOT_CONNECT, Exit.LOST) else []
    for line in words:
        screen.say(f"  server: {line}", style="dim")
    screen.say(f"callboard: {told(error)}")
    if is_json:
        write_error(_members(error, code, words))
    return code


def write_error(members: Mapping[str, Any]) -> None:
    """The error as JSON. Standard output may be what failed: then the line on standard error is all."""
    try:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode({"error": members}), indent=2).decode() + "\n")
        sys.stdout.flush()
    except OSError:
        pass


def usage_error(kind: str, message: str) -> Mapping[str, Any]:
    """The members of an error that came before there was anything to do: of arguments, or of a file."""
    return {"kind": kind, "message": message, "exit_code": int(Exit.USAGE)}


def _members(error: Exception, code: Exit, words: list[str]) -> Mapping[str, Any]:
    kind = next(name for one, _, name in _KINDS if isinstance(error, one))
    members: dict[str, Any] = {"kind": kind, "message": told(error), "exit_code": int(code)}
    if isinstance(error, ServerRefused):
        members["code"] = error.error_code
        if error.data is not None:
            members["data"] = _decoded(error.data)
    elif isinstance(error, HttpRefused):
        members["status"] = error.status
    return members | ({"server_stderr": words} if words else {})


def _last_words(said: list[str]) -> list[str]:
    """The last lines on stderr, without the duplicates of a second attempt."""
    half = len(said) // 2
    return (said[half:] if said[:half] == said[half:] else said)[-MOST_LINES:]


def told(error: Exception) -> str:
    """One line. Where the server wants a page to be visited first, which; where a name is ambiguous, the candidates."""
    text = str(error) or type(error).__name__
    if isinstance(error, ServerRefused):
        if error.error_code == URL_ELICITATION_REQUIRED:
            text += "; open: " + ", ".join(_pages(error.data))
        elif candidates := _candidates(error.data):
            text += f": {', '.join(candidates)}"
    if isinstance(error, CannotConnect) and any(words in text for words in UNTRUSTED):
        text += "; trust it with --cacert FILE"
    text = "; ".join([text, *getattr(error, "__notes__", ())])
    return " ".join(text.split()) if isinstance(error, ServerRefused) else text.rstrip()


def _decoded(data: object) -> Any:
    try:
        return json.loads(bytes(data)) if isinstance(data, Raw) else data
    except (ValueError, RecursionError):
        return None


def _pages(data: object) -> list[str]:
    try:
        return [str(one["url"]) for one in _decoded(data)["elicitations"]]
    except (TypeError, LookupError):
        return ["(no URL given)"]


def _candidates(data: object) -> list[str]:
    """The names that a broker offers in place of an ambiguous one."""
    found = _decoded(data)
    listed = found.get("candidates") if isinstance(found, Mapping) else None
    if not isinstance(listed, list):
        return []
    shown = [str(one)[:200] for one in listed[:MOST_CANDIDATES]]
    return shown + ([f"and {len(listed) - MOST_CANDIDATES} more"] if len(listed) > MOST_CANDIDATES else [])
