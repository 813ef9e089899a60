"""callboard: an actor-based message broker for the Model Context Protocol, built on Trio."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from callboard._version import __version__

if TYPE_CHECKING:
    from callboard.actors.client.conversation import Patience
    from callboard.actors.rate import Rate
    from callboard.broker.broker import Broker
    from callboard.client.client import Client, connect
    from callboard.client.manual import Asked, ManualClient
    from callboard.codecs.caller import Caller
    from callboard.codecs.revisions import Icon, ResourceLink, Revision, TextResourceContents, ToolAnnotations
    from callboard.server.content.content import assistant, user
    from callboard.server.content.errors import ToolError
    from callboard.server.content.media import Audio, Blob, Image
    from callboard.server.context import Context, Declined, Dismissed, InputRequired, Reply
    from callboard.server.extension import Extension
    from callboard.server.server import Server
    from callboard.server.signature.markers import Doc, Header
    from callboard.transports.client.process import Command

__all__ = [
    "Asked",
    "Audio",
    "Blob",
    "Broker",
    "Caller",
    "Client",
    "Command",
    "Context",
    "Declined",
    "Dismissed",
    "Doc",
    "Extension",
    "Header",
    "Icon",
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


_MODULES: Final = {
    "Asked": "callboard.client.manual",
    "Audio": "callboard.server.content.media",
    "Blob": "callboard.server.content.media",
    "Broker": "callboard.broker.broker",
    "Caller": "callboard.codecs.caller",
    "Client": "callboard.client.client",
    "Command": "callboard.transports.client.process",
    "Context": "callboard.server.context",
    "Declined": "callboard.server.context",
    "Dismissed": "callboard.server.context",
    "Doc": "callboard.server.signature.markers",
    "Extension": "callboard.server.extension",
    "Header": "callboard.server.signature.markers",
    "Icon": "callboard.codecs.revisions",
    "Image": "callboard.server.content.media",
    "InputRequired": "callboard.server.context",
    "ManualClient": "callboard.client.manual",
    "Patience": "callboard.actors.client.conversation",
    "Rate": "callboard.actors.rate",
    "Reply": "callboard.server.context",
    "ResourceLink": "callboard.codecs.revisions",
    "Revision": "callboard.codecs.revisions",
    "Server": "callboard.server.server",
    "TextResourceContents": "callboard.codecs.revisions",
    "ToolAnnotations": "callboard.codecs.revisions",
    "ToolError": "callboard.server.content.errors",
    "assistant": "callboard.server.content.content",
    "connect": "callboard.client.client",
    "user": "callboard.server.content.content",
}
"""The module of each public name. It is loaded when the name is first asked for: a server needs no client, and the
parent of workers needs neither."""


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
