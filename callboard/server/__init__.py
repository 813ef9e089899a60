"""Host tools, resources and prompts: `Server`, what handlers are given, and what they return."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from msgspec import Meta

    from callboard.actors.server.roots_reader import ClientRoots
    from callboard.server.content.content import assistant, user
    from callboard.server.content.errors import ToolError
    from callboard.server.content.media import Audio, Blob, Image
    from callboard.server.context import Context, Declined, Dismissed, InputRequired, Reply
    from callboard.server.extension import Extension
    from callboard.server.middleware import GoOn, Middleware
    from callboard.server.server import Server
    from callboard.server.signature.markers import Doc, Email, Header, Titles, Uri
    from callboard.server.skills import Skills
    from callboard.server.tasks import Tasks

__all__ = [
    "Audio",
    "Blob",
    "ClientRoots",
    "Context",
    "Declined",
    "Dismissed",
    "Doc",
    "Email",
    "Extension",
    "GoOn",
    "Header",
    "Image",
    "InputRequired",
    "Meta",
    "Middleware",
    "Reply",
    "Server",
    "Skills",
    "Tasks",
    "Titles",
    "ToolError",
    "Uri",
    "assistant",
    "user",
]

_MODULES: Final = {
    "Audio": "callboard.server.content.media",
    "Blob": "callboard.server.content.media",
    "ClientRoots": "callboard.actors.server.roots_reader",
    "Context": "callboard.server.context",
    "Declined": "callboard.server.context",
    "Dismissed": "callboard.server.context",
    "Doc": "callboard.server.signature.markers",
    "Email": "callboard.server.signature.markers",
    "Extension": "callboard.server.extension",
    "GoOn": "callboard.server.middleware",
    "Header": "callboard.server.signature.markers",
    "Image": "callboard.server.content.media",
    "InputRequired": "callboard.server.context",
    "Meta": "msgspec",
    "Middleware": "callboard.server.middleware",
    "Reply": "callboard.server.context",
    "Server": "callboard.server.server",
    "Skills": "callboard.server.skills",
    "Tasks": "callboard.server.tasks",
    "Titles": "callboard.server.signature.markers",
    "ToolError": "callboard.server.content.errors",
    "Uri": "callboard.server.signature.markers",
    "assistant": "callboard.server.content.content",
    "user": "callboard.server.content.content",
}
"""The module of each name. It is loaded when the name is first asked for: commands need some of it."""


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = found
    return found
