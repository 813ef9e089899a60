"""The certificate of a listener: read when the server starts, and again when its files change."""

import ssl
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import attrs

from callboard.errors import CannotRead, CannotServe


@attrs.define(eq=False)
class Certificate:
    """A certificate with its key. Connections that are open keep the one that they began with."""

    certificate: Path
    key: Path
    protocols: Sequence[str] = ("http/1.1",)
    """Protocols for ALPN."""
    context: ssl.SSLContext = attrs.field(init=False)

    name: ClassVar[str] = "certificate"

    def __attrs_post_init__(self) -> None:
        self.context = self._read()

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.certificate, self.key)

    def read(self) -> ssl.SSLContext:
        """A context of what the files say now. Raises `CannotServe`."""
        for file in self.files:
            try:
                is_regular = stat.S_ISREG(file.stat().st_mode)
            except OSError as error:
                raise CannotRead(f"TLS: {file}: {error.strerror or error}") from None
            if not is_regular:  # OpenSSL would wait for a pipe, for ever
                raise CannotServe(f"TLS: {file}: is not a regular file")
        return self._read()

    async def use(self, context: ssl.SSLContext) -> Mapping[str, object]:
        """Have new connections use *context*."""
        self.context = context
        return {"certificate": str(self.certificate)}

    def _read(self) -> ssl.SSLContext:
        # A context of its own each time: one that had two certificates of different kinds would serve either of them.
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except ssl.SSLError as error:  # the pair does not fit, or is none
            raise CannotServe(f"TLS: {self.certificate}, {self.key}: {error.strerror or error}") from None
        except OSError as error:
            raise CannotRead(f"TLS: {self.certificate}, {self.key}: {error.strerror or error}") from None
        context.set_alpn_protocols(list(self.protocols))
        return context
