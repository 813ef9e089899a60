"""Serve a server or a broker: over stdio, HTTP and WebSocket, until a signal ends it."""
