"""Host tools, resources and prompts: `Server`, what handlers are given, and what they return."""

from msgspec import Meta

from callboard.server.content.content import assistant, user
from callboard.server.content.errors import ToolError
from callboard.server.content.media import Audio, Blob, Image
from callboard.server.context import Context, Declined, Dismissed, InputRequired, Reply
from callboard.server.server import Server
from callboard.server.signature.markers import Doc, Email, Header, Titles, Uri

__all__ = [
    "Audio",
    "Blob",
    "Context",
    "Declined",
    "Dismissed",
    "Doc",
    "Email",
    "Header",
    "Image",
    "InputRequired",
    "Meta",
    "Reply",
    "Server",
    "Titles",
    "ToolError",
    "Uri",
    "assistant",
    "user",
]
