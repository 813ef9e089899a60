"""A call as it is shown for approval: the text, and the digest that the yes is bound to.

The arguments are shown in the spelling that is digested, on one line. What a reader could not see, or would see
somewhere else than it stands (control, format and bidi characters, fillers), is shown as an escape.
"""

import hashlib
import re
from typing import Final

import attrs
import msgspec
from msgspec import Raw

from callboard.codecs.canonical import canonical

MAX_SHOWN: Final = 1536
"""Bytes of arguments that are shown, escapes counted: a form has to fit on a screen."""

MAX_NAME: Final = 192
"""Bytes of the name of a server or tool that are shown, escapes counted."""

DIGITS: Final = 12
"""Hex digits of the digest that are shown: no other call with the same ones can be found in time."""

_NO_ARGUMENTS: Final = b"{}"

# Letters and marks that show nothing: fillers, joiners and variation selectors. Python calls them printable.
_UNSEEN: Final = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef"
_SUSPECT: Final = re.compile(rf"[^ -~]|[{_UNSEEN}]")
_IS_UNSEEN: Final = re.compile(f"[{_UNSEEN}]")


@attrs.frozen(kw_only=True)
class ShownCall:
    """A call that waits for a yes. It never holds more of the arguments than is shown."""

    server: str
    tool: str
    arguments: str = attrs.field(repr=False)
    """Canonical JSON, on one line, printable, clipped."""
    more: int
    """Bytes of arguments that are not shown."""
    digest: str
    """SHA-256 of the canonical JSON of an object with `arguments`, `server` and `tool`, in hex."""

    def text(self) -> str:
        """The question, in at most 2 KiB."""
        clipped = f"\n({self.more} bytes more)" if self.more else ""
        return (
            f"Approve this call?\nServer: {self.server}\nTool: {self.tool}\nArguments: {self.arguments}{clipped}\n"
            f"Digest: {self.digest[:DIGITS]}"
        )


def shown_call(server: str, tool: str, arguments: bytes | Raw | None) -> ShownCall:
    """Digest a call, and make it fit to be shown. Takes as long as `canonical`. Raises as that does."""
    spelled = _NO_ARGUMENTS if arguments is None else canonical(arguments)
    named = canonical(msgspec.json.encode({"server": server, "tool": tool}))
    digest = hashlib.sha256(b'{"arguments":%b,%b' % (spelled, named[1:])).hexdigest()
    text, more = _clipped(spelled, MAX_SHOWN)
    return ShownCall(server=_name(server), tool=_name(tool), arguments=text, more=more, digest=digest)


def visible(text: str) -> str:
    """*text* on one line, with an escape, as JSON has it, for each character that could not be seen as what it is."""
    return _SUSPECT.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    one = found[0]
    if one.isprintable() and not _IS_UNSEEN.match(one):
        return one
    units = one.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _name(text: str) -> str:
    shown, more = _clipped(text.encode(), MAX_NAME)
    return f"{shown}..." if more else shown


def _clipped(spelled: bytes, most: int) -> tuple[str, int]:
    """As much as fits into *most* bytes, and how many bytes do not."""
    shown: list[str] = []
    size = taken = 0
    for one in spelled[:most].decode(errors="ignore"):
        escaped = visible(one)
        size += len(escaped.encode())
        if size > most:
            break
        shown.append(escaped)
        taken += len(one.encode())
    return "".join(shown), len(spelled) - taken
