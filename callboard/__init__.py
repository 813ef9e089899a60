"""callboard: an actor-based message broker for the Model Context Protocol, built on Trio."""

from typing import TYPE_CHECKING

from callboard._version import __version__
from callboard.actors.client.caller import Patience
from callboard.actors.rate import Rate
from callboard.client.client import Client, connect
from callboard.client.manual import Asked, ManualClient
from callboard.codecs.revisions import ResourceLink, Revision, TextResourceContents, ToolAnnotations
from callboard.server.content.content import assistant, user
from callboard.server.content.errors import ToolError
from callboard.server.content.media import Audio, Blob, Image
from callboard.server.context import Context, Declined, Dismissed, InputRequired, Reply
from callboard.server.server import Server
from callboard.server.signature.markers import Doc, Header
from callboard.transports.client.process import Command

if TYPE_CHECKING:
    from callboard.broker.broker import Broker

__all__ = [
    "Asked",
    "Audio",
    "Blob",
    "Broker",
    "Client",
    "Command",
    "Context",
    "Declined",
    "Dismissed",
    "Doc",
    "Header",
    "Image",
    "InputRequired",
    "ManualClient",
    "Patience",
    "Rate",
    "Reply",
    "ResourceLink",
    "Revision",
    "Server",
    "TextResourceContents",
    "ToolAnnotations",
    "ToolError",
    "__version__",
    "assistant",
    "connect",
    "user",
]


def __getattr__(name: str) -> object:
    """Load `Broker` when it is asked for: a server or a client needs nothing of it."""
    if name == "Broker":
        from callboard.broker.broker import Broker

        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
