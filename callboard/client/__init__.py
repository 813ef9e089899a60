"""Call any MCP server: `connect` gives a `Client`, over the transport and in the revision that the server has."""

from callboard.client.client import Client, connect
from callboard.client.manual import Asked, ManualClient

__all__ = ["Asked", "Client", "ManualClient", "connect"]
