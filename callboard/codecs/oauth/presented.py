"""What a client presents to be let in."""

import attrs


@attrs.frozen(kw_only=True)
class PresentedToken:
    """A token, and what belongs to it where it is bound to a key. Never printed."""

    token: str = attrs.field(repr=False)
    scheme: str = "bearer"
    """`bearer` or `dpop`, in lower case."""
    proof: str | None = attrs.field(default=None, repr=False)
    """The `DPoP` header, if there is exactly one."""
    method: str = "POST"
    url: str = ""
    """The address that the client meant, as others see it, without a query."""
    certificate: bytes | None = attrs.field(default=None, repr=False)
    """The certificate of the client's TLS, in DER."""
