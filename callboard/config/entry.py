"""One entry of the file in which MCP hosts, and brokers, keep their servers: `FILE.json#NAME`, or `FILE.toml#NAME`."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from callboard.config.remote import Remote
from callboard.errors import InvalidTarget

if TYPE_CHECKING:
    from callboard.server.server import Server
    from callboard.transports.client.process import Command

__all__ = ["Remote", "is_entry", "read_entry"]

_NAMED: Final = re.compile(r"(?P<file>.+\.(?:jsonc?|toml))(?:#(?P<name>.*))?", re.DOTALL)


def is_entry(text: str) -> bool:
    """Whether *text* names an entry of such a file: `path/to/file.json#name`."""
    return _NAMED.fullmatch(text) is not None


def read_entry(text: str) -> "Command | Remote | Server":
    """The server that *text* names; without a name the only one. Raises `CannotConnect`, and `InvalidTarget` if
    it is not there, in one line."""
    named = _NAMED.fullmatch(text)
    if named is None:
        raise InvalidTarget(f"{text[:200]!r} is not a server of a configuration file: expected FILE.json#NAME")
    from callboard.config.entry_reader import read_named  # with all of a broker's settings, which a URL does without

    return read_named(Path(named["file"]).expanduser(), named["name"])
