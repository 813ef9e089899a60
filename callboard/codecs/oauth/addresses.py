"""Addresses that a server may name: discovery follows URLs from servers, which may be hostile.

An address is https, and leads into the public Internet: to no machine of ours, and to none that only we can reach. Two
things soften that. A server on this machine is one that is being developed, and may name this machine, without TLS. And
the user may name hosts to be trusted.
"""

import ipaddress
import re
from collections.abc import Iterable
from typing import Final, Self, TypeAlias
from urllib.parse import SplitResult, urlsplit, urlunsplit

import attrs

from callboard.errors import UnsafeUrl

MAX_URL: Final = 2048
"""Longest URL that is followed, in characters."""

_PORTS: Final = {"https": 443, "http": 80}
_PLAIN: Final = re.compile(r"[\x21-\x7e]+")
_NAME: Final = re.compile(r"(?=.{1,253}$)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")
"""A name of the DNS. Its last part begins with a letter: what ends in a number is an address in disguise."""

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")
_SPECIAL: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            "192.0.0.0/24",  # protocol assignments; clouds put metadata services there (192.0.0.192)
            "192.88.99.0/24",  # relays from IPv6, given up
            "64:ff9b:1::/48",  # translation inside of a network
            "100::/64",  # discarded
            "100:0:0:1::/64",
            "2001::/23",  # protocol assignments
            "2001:db8::/32",  # documentation
            "3fff::/20",  # documentation
            "5f00::/16",  # segments of a network
        ),
    )
)
"""Special-purpose networks of IANA that some Python versions take for public: their lists differ in age."""


@attrs.frozen
class Location:
    """A URL that may be followed, in its parts. *target* is path and query."""

    url: str
    scheme: str
    host: str
    port: int
    target: str


@attrs.frozen
class Reach:
    """How far addresses may lead: to this machine too (*loopback*), and to the *trusted* hosts wherever they are."""

    loopback: bool = False
    trusted: frozenset[str] = frozenset()

    @classmethod
    def of_server(cls, url: str, trusted: Iterable[str] = ()) -> Self:
        """For the metadata of the server at *url*, which its user chose, with the hosts that the user trusts."""
        host = (urlsplit(url).hostname or "").lower()
        # A name proves nothing: it may mean another machine at the next look. A number stays what it is.
        numbers = (host,) if _number(host) is not None else ()
        return cls(is_here(host), frozenset((*(name.lower().strip("[]") for name in trusted), *numbers)))


def is_here(host: str) -> bool:
    """Whether *host* says in so many words that it is this machine."""
    address = _number(host)
    return host == "localhost" if address is None else address.is_loopback


@attrs.frozen
class Page:
    """A page that a person may be sent to: its true host, and its URL put together again from what was understood."""

    scheme: str
    host: str
    url: str


def locate_page(url: str) -> Page:
    """Look at a page that a server wants opened in a browser. A browser reads a URL in its own way: it takes a
    backslash for a slash, leaves out tabs and line ends, and understands numbers that are no addresses to others. What
    the two could read differently is refused, so that the host that a person is told is the one that is opened.

    Raises `UnsafeUrl`.
    """
    parts, host, port = _split(url)
    shown = f"[{host}]" if ":" in host else host
    netloc = shown if port is None else f"{shown}:{port}"
    scheme = parts.scheme.lower()
    return Page(scheme, host, urlunsplit((scheme, netloc, parts.path or "/", parts.query, parts.fragment)))


def _split(url: str) -> tuple[SplitResult, str, int | None]:
    """A URL of the web, its host and its port. Raises `UnsafeUrl` for one that two programs could read differently."""
    if len(url) > MAX_URL:
        raise UnsafeUrl(f"URL longer than {MAX_URL} characters")
    if _PLAIN.fullmatch(url) is None or "\\" in url:
        raise UnsafeUrl("URL with invalid characters")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UnsafeUrl(f"invalid URL {url[:100]!r}") from None
    scheme = parts.scheme.lower()
    if scheme not in _PORTS:
        raise UnsafeUrl(f"URL scheme {scheme[:20]!r} is not https")
    host = _host(parts)
    if port == 0:
        raise UnsafeUrl(f"invalid port 0 of {host[:100]}")
    return parts, host, port


def locate(url: str, reach: Reach) -> Location:
    """Look at *url* before any request is made for it, DNS included. Raises `UnsafeUrl`."""
    parts, host, port = _split(url)
    scheme = parts.scheme.lower()
    if scheme == "http" and not (reach.loopback and is_here(host)):
        raise UnsafeUrl(f"http://{host[:100]} is not https")
    if "#" in url:
        raise UnsafeUrl(f"URL of {host[:100]} has a fragment")
    number = _number(host)
    if number is not None:
        check_address(str(number), host, reach)
    elif host == "localhost" and not reach.loopback and host not in reach.trusted:
        raise UnsafeUrl("localhost is not a public address")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Location(url, scheme, host, _PORTS[scheme] if port is None else port, target)


def check_address(address: str, host: str, reach: Reach) -> None:
    """Look at what the DNS says that *host* is. Raises `UnsafeUrl`."""
    if host in reach.trusted:
        return
    found = _number(address)
    if found is None:
        raise UnsafeUrl(f"cannot resolve {host[:100]}")
    if reach.loopback and found.is_loopback:
        return
    carried = _carried(found)
    if not _is_public(found) or not all(map(_is_public, carried)):
        raise UnsafeUrl(f"{host[:100]} is {found}, not a public address")


def _host(parts: SplitResult) -> str:
    if "@" in parts.netloc:
        raise UnsafeUrl("URL with a user name")
    host = (parts.hostname or "").lower()
    bracketed = parts.netloc.startswith("[")
    if bracketed == (":" in host) and (_number(host) is not None or (not bracketed and _NAME.fullmatch(host))):
        return host
    raise UnsafeUrl(f"invalid host {host[:100]!r}")


def _number(host: str) -> _Address | None:
    if "%" in host:  # a zone: an address of one network card
        return None
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _carried(address: _Address) -> list[_Address]:
    """The addresses that stand inside another one: packets for it go there."""
    if not isinstance(address, ipaddress.IPv6Address):
        return []
    carried: list[_Address] = [inner for inner in (address.ipv4_mapped, address.sixtofour) if inner is not None]
    carried += address.teredo or ()
    if address in _TRANSLATED:
        carried.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return carried


def _is_public(address: _Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped or address.is_site_local:
            return False
        if address in _TRANSLATED:  # the way to IPv4 out of a network without; what it carries is looked at too
            return True
    if any(address in network for network in _SPECIAL):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)
