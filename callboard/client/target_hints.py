"""Suggestions for a target that is none: what was probably meant."""

import re
from pathlib import Path
from typing import Final

from callboard.errors import InvalidTarget

EXPECTED: Final = "expected a URL, FILE.py:NAME, package.module:NAME, FILE.json#NAME, or a command"

_PORT: Final = re.compile(r":?(?P<port>\d{1,5})(?P<path>/.*)?", re.ASCII)
_HOST: Final = re.compile(
    r"(?P<host>localhost|[\w-]+(\.[\w-]+)+|\[[0-9a-fA-F:]+\]|[\w-]+(?=:\d))(?P<port>:\d+)?(?P<path>/.*)?", re.ASCII
)
"""An address of the web without its scheme: `localhost:8000/mcp`."""

_MODULE: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_NEAR: Final = re.compile(r"localhost|[\d.]+|\[.*", re.ASCII)
"""Hosts that seldom have a certificate."""

_NO_HOSTS: Final = frozenset({".cjs", ".js", ".md", ".mjs", ".rs", ".sh", ".ts", ".txt", ".yaml", ".yml"})
"""Endings of files, some of which are those of hosts, too."""


def no_target(text: str) -> InvalidTarget:
    """The error for *text*, which names no server."""
    return InvalidTarget(f"{text[:200]!r} is not a target: {EXPECTED}{hint_for(text)}")


def hint_for(text: str) -> str:
    """What *text*, which is no target, probably stands for, with a semicolon before it; nothing if that is unknown."""
    text = text[:200]
    if (port := _PORT.fullmatch(text)) is not None and 0 < int(port["port"]) < 65_536:
        return _meant(f"http://127.0.0.1:{port['port']}{_path(port['path'])}")
    path = Path(text)
    if path.is_dir():
        return f"; {text} is a directory: name a file in it, FILE.py:NAME, or a module, package.module:NAME"
    if path.is_file():
        return f"; {text} is a file: a program is started by a command, `-- COMMAND`"
    if _MODULE.fullmatch(text) is not None and (found := _module(text)):
        return _meant(found)
    host = _HOST.fullmatch(text)
    if host is None or path.suffix in _NO_HOSTS or ("_" in text and not host["port"]):
        return ""
    is_plain = host["port"] is not None or _NEAR.fullmatch(host["host"]) is not None
    where = f"{host['host']}{host['port'] or ''}{_path(host['path'])}"
    return _meant(f"{'http' if is_plain else 'https'}://{where}")


def _path(given: str | None) -> str:
    return given if given not in (None, "/") else "/mcp"


def _module(name: str) -> str:
    """A target for a file or package of this name in the current folder."""
    first, _, rest = name.partition(".")
    if rest:
        return f"{name}:NAME" if Path(first).is_dir() else ""
    return f"{name}.py" if Path(f"{name}.py").is_file() else ""


def _meant(target: str) -> str:
    return f"; did you mean {target}?"
