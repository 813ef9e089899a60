"""Serve a server or a broker: over stdio, HTTP and WebSocket, until a signal ends it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from callboard.serve.run import serve

__all__ = ["serve"]


def __getattr__(name: str) -> object:
    """Load the function when it is asked for: the parent of workers does without what it needs."""
    if name != "serve":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from callboard.serve import run

    return run.serve
