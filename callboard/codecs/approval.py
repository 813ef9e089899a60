"""A call as a person is shown it who must approve of it: the text, and the digest that the yes is bound to.

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

MAX_NAME: Final = 96
"""Characters of the name of a server or tool that are shown. With escapes, both take at most 1 KiB."""

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
        """The question, in at most 3 KiB."""
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
    text, more = _clipped(spelled)
    return ShownCall(
        server=visible(server[:MAX_NAME]), tool=visible(tool[:MAX_NAME]), arguments=text, more=more, digest=digest
    )


def visible(text: str) -> str:
    """*text* on one line, with an escape, as JSON has it, for each character that could not be seen as what it is."""
    return _SUSPECT.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    one = found[0]
    if one.isprintable() and not _IS_UNSEEN.match(one):
        return one
    units = one.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _clipped(spelled: bytes) -> tuple[str, int]:
    """As much as fits, and how many bytes do not."""
    if len(spelled) <= MAX_SHOWN // 6:  # no escape is longer than that
        return visible(spelled.decode()), 0
    shown: list[str] = []
    size = taken = 0
    for one in spelled[:MAX_SHOWN].decode(errors="ignore"):
        escaped = visible(one)
        size += len(escaped.encode())
        if size > MAX_SHOWN:
            break
        shown.append(escaped)
        taken += len(one.encode())
    return "".join(shown), len(spelled) - taken
