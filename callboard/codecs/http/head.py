"""The head of an HTTP request: what is decided before a byte of the body is read."""

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

import attrs

from callboard.codecs.caller import Caller
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.mcp_headers.header_map import HeaderMap
from callboard.codecs.mcp_headers.mirror import Received, read_mirror

HeaderList: TypeAlias = Sequence[tuple[bytes, bytes]]

_ONCE: Final = frozenset(
    (
        *(b"host", b"origin", b"authorization", b"dpop", b"content-type", b"content-length"),
        *(b"mcp-session-id", b"last-event-id", b"expect", b"upgrade", b"transfer-encoding"),
    )
)
"""Headers that two readers could read differently if they stood twice. The mirrored ones see to that themselves."""

_DISGUISED: Final = frozenset((b"content_length", b"transfer_encoding"))
"""Some gateways read `_` as `-`: to them these would say where the body ends."""

_ABSOLUTE: Final = re.compile(rb"https?://([^/?#@]+)(/[^#]*)?", re.IGNORECASE)
_NEVER: Final = re.compile(rb"q\s*=\s*0(?:\.0*)?")


@attrs.define
class Head:
    """Method, target and headers. Names are lower case; values are as they came, without outer white space."""

    method: str
    target: bytes
    headers: HeaderList
    version: str = "1.1"
    keeps_alive: bool = True
    path: bytes = attrs.field(init=False)
    agreed: tuple[str | None, ...] | None = attrs.field(default=None, init=False, repr=False)
    """What a body said that its mirrored headers agreed with: the next body mostly says the same."""
    admitted: tuple[object, float, Caller] | None = attrs.field(default=None, init=False, repr=False)
    """The caller whose token stands in this head, until when that is believed, and the guard's word for it."""
    _first: dict[bytes, bytes] = attrs.field(init=False, repr=False)
    _mirrored: Received | None = attrs.field(default=None, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self.path = self.target.partition(b"?")[0]
        self._first = dict(reversed(self.headers))

    def take_authority(self) -> bytes | None:
        """The authority of a target in absolute form, which then becomes the path and query alone; None of any other.

        RFC 9112 wants servers to accept that form, although only proxies need it.
        """
        match = _ABSOLUTE.fullmatch(self.target)
        if match is None:
            return None
        self.target = match[2] or b"/"
        self.path = self.target.partition(b"?")[0]
        return match[1]

    def get(self, name: bytes) -> bytes | None:
        """The value of a header, by its lower-case name: of several the first."""
        return self._first.get(name)

    def mirrored(self, header_map: HeaderMap) -> Received:
        """The headers that repeat what the body says. Raises `HeaderMismatch`. Worked out once for each head."""
        if header_map.paths:
            return read_mirror(self.headers, header_map)
        if self._mirrored is None:
            self._mirrored = read_mirror(self.headers)
        return self._mirrored

    def varied(self, places: Sequence[int], varying: Sequence[tuple[bytes, bytes]], *, is_mirror: bool) -> "Head":
        """The same head with other values: *varying* are the headers at these *places*. None of them stands twice.

        *is_mirror*: whether the headers that repeat what the body says are the same.
        """
        headers, first = list(self.headers), self._first.copy()
        for place, header in zip(places, varying, strict=True):
            headers[place] = header
        first.update(varying)
        # Not by its initializer, which would work out again what is known.
        new = object.__new__(Head)
        new.method, new.target, new.path, new.version = self.method, self.target, self.path, self.version
        new.headers, new.keeps_alive, new._first = headers, self.keeps_alive, first
        new._mirrored = self._mirrored if is_mirror else None
        new.agreed = self.agreed if is_mirror else None
        new.admitted = None
        return new

    def all(self, name: bytes) -> list[bytes]:
        """Every value of a header that may stand several times, or hold several by commas."""
        found = (value for known, value in self.headers if known == name)
        return [part.strip() for value in found for part in value.split(b",") if part.strip()]

    @property
    def has_body(self) -> bool:
        """Whether something follows the head."""
        return b"transfer-encoding" in self._first or int(self._first.get(b"content-length", b"0")) > 0

    @property
    def query(self) -> bytes:
        return self.target.partition(b"?")[2]


def check_once(headers: HeaderList) -> None:
    """Raises `HttpRefusal` (400) if a header that must be unique stands twice, or is there in disguise."""
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in _DISGUISED:
            raise HttpRefusal(400, f"{name.decode()} has an underscore instead of a hyphen", closes=True)
        if name in _ONCE:
            if name in seen:
                raise HttpRefusal(400, f"duplicate header {name.decode()}", closes=True)
            seen.add(name)


def check_framing(headers: HeaderList) -> None:
    """Raises `HttpRefusal` (400) if a body has two lengths: for a parser that does not check this."""
    names = {name for name, _ in headers}
    if b"content-length" in names and b"transfer-encoding" in names:
        raise HttpRefusal(400, "both content-length and transfer-encoding", closes=True)


def check_coding(head: Head) -> None:
    """Raises `HttpRefusal` for a body in pieces (400) where HTTP/1.0 has none, or (501) in more than pieces."""
    coding = head.get(b"transfer-encoding")
    if coding is None:
        return
    if head.version != "1.1":
        raise HttpRefusal(400, "transfer-encoding in HTTP/1.0", closes=True)
    if coding.lower() != b"chunked":
        raise HttpRefusal(501, "unsupported transfer-encoding: only chunked is supported", closes=True)


def check_length(head: Head) -> None:
    """Raises `HttpRefusal` (400) for a length that is not just digits: a list of them, or one with a sign."""
    length = head.get(b"content-length")
    if length is not None and not (length.isdigit() and len(length) < 19):
        raise HttpRefusal(400, "invalid content-length", closes=True)


def covers(accepted: Sequence[bytes], media_type: bytes) -> bool:
    """Whether an `Accept` list admits *media_type*: the narrowest name that fits counts.

    An empty list admits everything, as HTTP has it.
    """
    admits: dict[bytes, bool] = {}
    for item in accepted:
        media, *parameters = (part.strip().lower() for part in item.split(b";"))
        admits[media] = not any(_NEVER.fullmatch(parameter) for parameter in parameters)
    for name in (media_type, media_type.partition(b"/")[0] + b"/*", b"*/*"):
        if name in admits:
            return admits[name]
    return not accepted


def media_type_of(value: bytes | None) -> bytes:
    """The bare media type of a `Content-Type`."""
    return b"" if value is None else value.partition(b";")[0].strip().lower()
