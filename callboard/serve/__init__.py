"""Serve a server or a broker: over stdio, HTTP and WebSocket, until a signal ends it."""

from callboard.serve.options import Options, Ready
from callboard.serve.serve import serve

__all__ = ["Options", "Ready", "serve"]
