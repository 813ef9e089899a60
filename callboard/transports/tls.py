"""The certificate of a door: read when the server starts, and again when its files change."""

import ssl
from collections.abc import Sequence
from pathlib import Path

import attrs

from callboard.errors import CannotServe


@attrs.define(eq=False)
class Certificate:
    """A certificate with its key. Connections that are open keep the one that they began with."""

    certificate: Path
    key: Path
    protocols: Sequence[str] = ("http/1.1",)
    """What is offered to clients, by ALPN."""
    context: ssl.SSLContext = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.context = self._read()

    @property
    def files(self) -> tuple[Path, Path]:
        return (self.certificate, self.key)

    def reload(self) -> None:
        """Use what the files say now, for new connections. Raises `CannotServe`, and then nothing has changed."""
        self.context = self._read()

    def _read(self) -> ssl.SSLContext:
        # A context of its own each time: one that had two certificates of different kinds would serve either of them.
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise CannotServe(f"TLS: {self.certificate}, {self.key}: {error.strerror or error}") from None
        context.set_alpn_protocols(list(self.protocols))
        return context
