"""callboard: an actor-based message broker for the Model Context Protocol, built on Trio."""

__version__ = "0.1.0.dev0"

# After the version: the command line and the server say it.
from callboard.actors.caller import Patience
from callboard.actors.rate import Rate
from callboard.client import Client, connect
from callboard.codecs.revisions import ResourceLink, Revision, TextResourceContents, ToolAnnotations
from callboard.context import Context, Declined, Dismissed, InputRequired, Reply
from callboard.hosting import Audio, Blob, Doc, Header, Image, ToolError, assistant, user
from callboard.manual import Asked, ManualClient
from callboard.server import Server
from callboard.transports.client.process import Command

__all__ = [
    "Asked",
    "Audio",
    "Blob",
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
