"""Access to a listener: the Host it is called by, and the Origin of the page that calls it.

A page in the user's browser can reach loopback, and by rebinding a name it can make its own requests look local. So a
`Host` must be one that this listener goes by, and an `Origin`, which browsers always send and others never need, one
that was allowed. Both are compared whole, as scheme, host and port: a prefix or a suffix proves nothing.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable
from typing import Final, Self

import attrs

from callboard.codecs.http.refusal import HttpRefusal

LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
"""Names that only this machine can mean."""

ANY: Final = "*"
ANY_PORT: Final = 0

_HOST: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?", re.ASCII)
_ORIGIN: Final = re.compile(r"(https?)://(.+)", re.ASCII | re.IGNORECASE)
_PORTS: Final = {"http": 80, "https": 443}


@attrs.frozen
class Access:
    """The names a listener goes by, as (host, port), and the origins that may use it, as (scheme, host, port).

    `None` for a set means that anything goes: the operator said so.
    """

    hosts: frozenset[tuple[str, int]] | None
    origins: frozenset[tuple[str, str, int]] | None
    scheme: str = "http"
    port: int = ANY_PORT
    is_own: "Callable[[str], bool] | None" = attrs.field(default=None, eq=False, kw_only=True)
    """Whether an address is one of this machine's; None for a listener that is not bound to all of them."""
    on_refused: "Callable[[bytes], None] | None" = attrs.field(default=None, eq=False, kw_only=True)
    """Told of every host that is refused."""
    on_refused_origin: "Callable[[bytes], None] | None" = attrs.field(default=None, eq=False, kw_only=True)

    @classmethod
    def of(
        cls,
        host: str,
        port: int,
        *,
        scheme: str = "http",
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        is_own: "Callable[[str], bool] | None" = None,
        on_refused: "Callable[[bytes], None] | None" = None,
        on_refused_origin: "Callable[[bytes], None] | None" = None,
    ) -> Self:
        """For a listener on *host* and *port*. *hosts* and *origins* are what the operator adds; `*` admits all.

        Bound to loopback it goes by the loopback names too; bound to all addresses by the loopback names and by every
        address that *is_own* says is this machine's; bound to anything else by that name alone. An address cannot be
        rebound as a name can. Pages of its own origin may always use it. Raises ValueError for what is neither a host
        nor an origin.
        """
        named = (*(LOOPBACK if is_loopback(host) or is_wildcard(host) else ()), _bracketed(host))
        more, given = list(hosts), list(origins)
        known = {_host(name, port) for name in named} | {_host(name, port) for name in more if name != ANY}
        # `localhost` is another machine for each client, so its pages are foreign to a listener that others reach.
        foreign = {_host(name, port) for name in LOOPBACK} if is_wildcard(host) else set()
        own = {(scheme, name, number) for name, number in known - foreign}
        allowed = own | {_origin(origin) for origin in given if origin != ANY}
        return cls(
            None if ANY in more else frozenset(known),
            None if ANY in given else frozenset(allowed),
            scheme,
            port,
            is_own=is_own if is_wildcard(host) else None,
            on_refused=on_refused,
            on_refused_origin=on_refused_origin,
        )

    @classmethod
    def on_any_port(cls, *, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> Self:
        """For an application that does not know where it is bound: it goes by the loopback names and by *hosts*, on
        any port, and takes pages of theirs and of *origins*."""
        more, given = list(hosts), list(origins)
        names = {_host(name, ANY_PORT)[0] for name in (*LOOPBACK, *more) if name != ANY}
        own = {(scheme, name, ANY_PORT) for scheme in _PORTS for name in names}
        allowed = own | {_origin(origin) for origin in given if origin != ANY}
        known = {(name, ANY_PORT) for name in names}
        return cls(None if ANY in more else frozenset(known), None if ANY in given else frozenset(allowed))

    def check(self, host: bytes | None, origin: bytes | None) -> None:
        """Raises `HttpRefusal`: 403 for a foreign origin, 421 for a host that this is not, 400 for none at all."""
        if origin is not None and not (self._allows_origin(origin) or self._is_same(origin, host)):
            if self.on_refused_origin is not None:
                self.on_refused_origin(origin)
            raise HttpRefusal(403, "origin not allowed", closes=True)
        if host is None:
            raise HttpRefusal(400, "missing Host header", closes=True)
        if not self._goes_by(host):
            if self.on_refused is not None:
                self.on_refused(host)
            raise HttpRefusal(421, "host not allowed", closes=True)

    def _allows_origin(self, origin: bytes) -> bool:
        if self.origins is None:
            return True
        try:
            scheme, name, port = _origin(origin.decode("ascii"))
        except ValueError:
            return False
        return (scheme, name, port) in self.origins or (scheme, name, ANY_PORT) in self.origins

    def _is_same(self, origin: bytes, host: bytes | None) -> bool:
        """Whether a page of this listener's own asks, under the name that the request is for."""
        if host is None:
            return False
        try:
            scheme, *named = _origin(origin.decode("ascii"))
            is_same = named == list(_host(host.decode("ascii"), _PORTS[self.scheme]))
        except ValueError:
            return False
        return scheme == self.scheme and is_same and self._goes_by(host)

    def _goes_by(self, host: bytes) -> bool:
        if self.hosts is None:
            return True
        try:
            name, port = _host(host.decode("ascii"), _PORTS[self.scheme])
        except ValueError:
            return False
        return (name, port) in self.hosts or (name, ANY_PORT) in self.hosts or self._is_own(name, port)

    def _is_own(self, name: str, port: int) -> bool:
        if self.is_own is None or port != self.port:
            return False
        try:
            address = ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return not (address.is_multicast or address.is_unspecified) and self.is_own(str(address))


EVERYONE: Final = Access(None, None)
"""For a listener that no page can reach: a Unix socket."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to *host*."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_wildcard(host: str) -> bool:
    """Whether *host* stands for every address of this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _host(text: str, default_port: int) -> tuple[str, int]:
    """Host and port, in one spelling for every way to write an address. Raises ValueError."""
    match = _HOST.fullmatch(text)
    if match is None:
        raise ValueError(f"not a host: {text[:200]!r}")
    name, port = match[1].lower(), match[2]
    if name.startswith("["):
        name = f"[{ipaddress.IPv6Address(name[1:-1])}]"
    number = default_port if port is None else int(port)
    if number > 65535:
        raise ValueError(f"not a port: {number}")
    return name, number


def _origin(text: str) -> tuple[str, str, int]:
    """Scheme, host and port. Raises ValueError, also for `null`, which is no origin."""
    match = _ORIGIN.fullmatch(text)
    if match is None:
        raise ValueError(f"not an origin: {text[:200]!r}")
    scheme = match[1].lower()
    return scheme, *_host(match[2], _PORTS[scheme])
