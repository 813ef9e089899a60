"""Bytes with a type: pictures, sounds and everything else that a handler may return.

A path is read when the value is made, inside the handler: the code that opens a file should get the error if it is
not there, and a plain `def` handler has a thread of its own to wait in.
"""

import base64
import hashlib
import mimetypes
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Final

import attrs

from callboard.codecs.revisions import (
    UNSET,
    Annotations,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    UnsetType,
)

# Where in the data, what stands there, and what that makes it.
_MAGIC: Final[Sequence[tuple[int, bytes, str]]] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (8, b"WAVE", "audio/wav"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
)
_SOUND: Final = {"audio/x-wav": "audio/wav", "audio/x-flac": "audio/flac"}


@attrs.frozen(init=False)
class Blob:
    """Bytes with a type, from memory or from a file.

    As a resource's contents it is a blob; in a tool's result an embedded resource, named by *uri* or else by its own
    digest (RFC 6920).
    """

    data: bytes = attrs.field(repr=lambda data: f"<{len(data)} bytes>")
    mime_type: str
    uri: str | None
    annotations: Annotations | UnsetType

    def __init__(
        self,
        data: bytes | PathLike[str],
        mime_type: str | None = None,
        *,
        uri: str | None = None,
        annotations: Annotations | UnsetType = UNSET,
    ) -> None:
        """Raises `ValueError` if there is no *mime_type* and neither the file's name nor its content tells."""
        named = None
        if isinstance(data, PathLike):
            named = mimetypes.guess_type(Path(data).name)[0]
            data = Path(data).read_bytes()
        kind = mime_type or named or _sniffed(data)
        if kind is None:
            raise ValueError(f"{type(self).__name__}: the type of the data is unknown; pass mime_type")
        self.__attrs_init__(data, _SOUND.get(kind, kind), uri, annotations)

    def block(self) -> ImageContent | AudioContent | EmbeddedResource:
        """The content block that carries this."""
        uri = self.uri or f"ni:///sha-256;{_base64url(hashlib.sha256(self.data).digest())}"
        return EmbeddedResource(resource=self.contents(uri), annotations=self.annotations)

    def contents(self, uri: str) -> BlobResourceContents:
        """The same as the contents of a resource."""
        return BlobResourceContents(uri=self.uri or uri, mime_type=self.mime_type, blob=self.text)

    @property
    def text(self) -> str:
        """The bytes in Base64."""
        return base64.b64encode(self.data).decode()


@attrs.frozen(init=False)
class Image(Blob):
    """A picture, from bytes or from a path."""

    def block(self) -> ImageContent:
        return ImageContent(data=self.text, mime_type=self.mime_type, annotations=self.annotations)


@attrs.frozen(init=False)
class Audio(Blob):
    """A sound, from bytes or from a path."""

    def block(self) -> AudioContent:
        return AudioContent(data=self.text, mime_type=self.mime_type, annotations=self.annotations)


def _sniffed(data: bytes) -> str | None:
    return next((kind for at, mark, kind in _MAGIC if data[at : at + len(mark)] == mark), None)


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
