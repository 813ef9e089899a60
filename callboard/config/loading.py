"""Servers that run in this process: from a Python file, or in front of an HTTP API."""

from callboard.config.model import OpenApiTarget, PythonTarget
from callboard.server.load import load_server
from callboard.server.server import Server


def loaded(target: PythonTarget | OpenApiTarget) -> Server:
    """The server that *target* names. Raises `CannotServe`."""
    if isinstance(target, PythonTarget):
        return load_server(str(target))
    return Server.from_openapi(target.document, base_url=target.base, headers=target.headers)
