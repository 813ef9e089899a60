"""`--cacert` and `--insecure`: which certificates of servers a command trusts."""

import ssl
from pathlib import Path
from typing import Annotated, Final

import attrs
from cyclopts import Group, Parameter

from callboard.cli.input_files import BadArgument

_TLS: Final = Parameter(group=Group("TLS", sort_key=2), negative="", show_default=False)

WARNING: Final = "callboard: --insecure: the server's certificate is not verified; anything sent can be read on the way"


@attrs.frozen(kw_only=True)
class TlsFlags:
    """Trust in certificates."""

    cacert: Annotated[
        str | None,
        _TLS,
        Parameter(help="PEM file with the CA certificates to trust, in place of those of the system ($SSL_CERT_FILE)."),
    ] = None
    insecure: Annotated[
        bool, _TLS, Parameter(help="Do not verify the server's certificate. Stored tokens are not sent then.")
    ] = False

    def context(self) -> ssl.SSLContext | None:
        """None for the certificates of the system. Raises `BadArgument`."""
        if self.insecure:
            if self.cacert is not None:
                raise BadArgument("--insecure and --cacert exclude each other")
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            return context
        if self.cacert is None:
            return None
        try:
            return ssl.create_default_context(cafile=Path(self.cacert).expanduser())
        except ssl.SSLError:
            raise BadArgument(f"--cacert {self.cacert[:200]}: no certificates in PEM format") from None
        except (OSError, ValueError) as error:
            raise BadArgument(f"--cacert {self.cacert[:200]}: {getattr(error, 'strerror', None) or error}") from None
