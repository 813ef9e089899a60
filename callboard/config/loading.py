"""Servers that run in this process: from a Python file, or in front of an HTTP API."""

from typing import Final

from callboard.config.model import OpenApiTarget, PythonTarget
from callboard.errors import CannotServe
from callboard.server.load import load_server
from callboard.server.server import Server

MAX_REASON: Final = 160
"""Characters of each of the two lines that say why a server is left out."""


def loaded(target: PythonTarget | OpenApiTarget) -> Server:
    """The server that *target* names. Raises `CannotServe`."""
    if isinstance(target, PythonTarget):
        return load_server(str(target))
    return Server.from_openapi(target.document, base_url=target.base, headers=target.headers)


def skip_reason(error: CannotServe) -> str:
    """Return why a server is left out, in one line."""
    said = str(error).splitlines()  # between the first line and the last one is a traceback
    return " ".join(line[:MAX_REASON] for line in dict.fromkeys((said[0], said[-1])))
