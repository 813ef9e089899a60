"""Listeners: HTTP, WebSocket, ASGI and stdio, for clients that connect."""
