"""Where the store is: `redis://`, `valkey://` and their TLS forms, and Unix sockets."""

import ssl
from typing import Final, Self
from urllib.parse import parse_qsl, urlsplit

import attrs

from callboard.errors import CannotServe

SCHEMES: Final = {"redis": "redis", "valkey": "redis", "rediss": "rediss", "valkeys": "rediss", "unix": "unix"}
"""What is written, and what coredis calls it: Valkey speaks the protocol of Redis."""

TLS: Final = "rediss"
CA, CERTIFICATE, KEY = "ssl_ca_certs", "ssl_certfile", "ssl_keyfile"
DATABASE: Final = "db"
PORT: Final = 6379
EXPECTED: Final = "expected redis://HOST:PORT, rediss://HOST:PORT (TLS), valkey://, valkeys:// or unix:///path"


@attrs.frozen
class StoreUrl:
    """The URL as coredis reads it, without what concerns TLS: coredis by itself would not check whose certificate it is
    shown."""

    url: str
    address: tuple[str, int] | None = None
    """Host and port; None of a Unix socket."""
    tls: ssl.SSLContext | None = attrs.field(default=None, eq=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `CannotServe`."""
        try:
            parts = urlsplit(text)
            has_password, _ = parts.password is not None, parts.port
            options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        except ValueError as error:
            raise CannotServe(f"--cluster: invalid URL: {error}") from None
        if has_password:
            raise CannotServe(
                "--cluster: a password in the URL is seen by other users: use --cluster-password-file FILE"
            )
        scheme = SCHEMES.get(parts.scheme)
        if scheme is None or not (parts.path if scheme == "unix" else parts.hostname):
            raise CannotServe(f"--cluster: {EXPECTED}")
        known = {DATABASE, CA, CERTIFICATE, KEY} if scheme == TLS else {DATABASE}
        for name in options.keys() - known:
            raise CannotServe(f"--cluster: unknown parameter {name[:40]!r} in a URL of {parts.scheme}://")
        database = options.get(DATABASE, "0")
        if not (database.isascii() and database.isdecimal()):
            raise CannotServe(f"--cluster: invalid {DATABASE} {database[:40]!r}: expected a number")
        url = f"{scheme}://{parts.netloc}{parts.path}" + (f"?{DATABASE}={database}" if DATABASE in options else "")
        address = None if scheme == "unix" else (parts.hostname or "", parts.port or PORT)
        return cls(url, address, _context(options) if scheme == TLS else None)


def _context(options: dict[str, str]) -> ssl.SSLContext:
    """Of a client that checks the server's certificate and its name. Raises `CannotServe`."""
    ca, certificate, key = (options.get(name) for name in (CA, CERTIFICATE, KEY))
    try:
        context = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    except (OSError, ValueError) as error:  # `ssl.SSLError` is one
        named = ", ".join(file for file in (ca, certificate, key) if file is not None)
        raise CannotServe(f"--cluster: {named}: {error}") from None
    return context
