"""Call any MCP server: `connect` gives a `Client`, over the transport and in the revision that the server has."""

from callboard.client.candidates import Candidates
from callboard.client.client import Client, connect
from callboard.client.manual import Asked, ManualClient
from callboard.client.tasks import TaskHandle

__all__ = ["Asked", "Candidates", "Client", "ManualClient", "TaskHandle", "connect"]
