"""Limits on the connections of a listener: in all, from one address, and by the descriptors of the process."""

import ipaddress
import os
from typing import Final

import attrs

from callboard.actors.shares import Shares, anonymous_at
from callboard.errors import Overloaded

RESERVE: Final = 64
"""Descriptors that no connection may use: health checks, restarts of backends and files need them."""

_UNBOUNDED: Final = 1 << 30


def descriptor_ceiling() -> int:
    """The first descriptor that a connection may not have. The kernel hands out the lowest free one, so a connection
    above the ceiling means that this many are open, in any part of the process."""
    if os.name != "posix":
        return _UNBOUNDED
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNBOUNDED if soft == resource.RLIM_INFINITY else soft - min(RESERVE, soft // 4)


@attrs.define(eq=False)
class ConnectionLimit:
    """The connections of one edge.

    One address gets three quarters of the room, so that other machines always find some. This machine's own clients
    are counted in all, but have no share: a proxy on it speaks for many clients.
    """

    most: int
    ceiling: int = attrs.field(factory=descriptor_ceiling)
    refused: int = attrs.field(default=0, init=False)
    total: int = attrs.field(default=0, init=False)
    _has_descriptors: bool = attrs.field(default=True, init=False)
    _of_others: Shares = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._of_others = Shares("connections", min(self.most, self.ceiling), 1)

    @property
    def is_full(self) -> bool:
        """Whether another connection would be refused, wherever it comes from."""
        return self.total >= self.most or not self._has_descriptors

    def enter(self, account: str | None, descriptor: int) -> str | None:
        """Count a connection; if there is no room for it, say what there is no room by."""
        self._has_descriptors = descriptor + 1 < self.ceiling  # the next one's is at least that, if none ends
        full = "max-connections" if self.total >= self.most else None
        if descriptor >= self.ceiling:
            full = "open files"
        elif account is not None and full is None:
            try:
                self._of_others.take(account)
            except Overloaded:
                full = "connections of one address"
        if full is None:
            self.total += 1
        else:
            self.refused += 1
        return full

    def leave(self, account: str | None) -> None:
        self.total -= 1
        self._has_descriptors = True
        if account is not None:
            self._of_others.give_back(account)


def counted_address(peer: object) -> str | None:
    """The account that a connection from *peer* is counted by; None for a Unix socket and for this machine."""
    if not isinstance(peer, tuple) or peer[0] == "127.0.0.1":
        return None
    try:
        address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    if (mapped or address).is_loopback:
        return None
    if isinstance(address, ipaddress.IPv6Address) and mapped is None:  # one household has a whole /64 of them
        return anonymous_at(str(ipaddress.ip_network((address, 64), strict=False)))
    return anonymous_at(str(mapped or address))
