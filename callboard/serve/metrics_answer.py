"""Metrics as the answer to one request of an admin listener: in the form that is accepted, and in pieces."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from callboard.codecs.http.head import Head
from callboard.observe.metrics import media_type
from callboard.transports.server.http.response import Response

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    b" base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

GUARDS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", _POLICY),
)
"""Headers of every answer of an admin listener: what it shows is for no page but its own."""


def headers_of(kind: bytes) -> Headers:
    """Those of an answer of this type, which is out of date at once."""
    return (b"content-type", kind), (b"cache-control", b"no-store")


async def answer_metrics(head: Head, response: Response, make: Callable[[bytes], Awaitable[Sequence[bytes]]]) -> None:
    """Answer with the pieces that *make* returns for a form. A client that does not read is bounded by the deadline of
    a write."""
    form = media_type(head.get(b"accept"))
    headers = (*headers_of(form), *GUARDS)
    pieces = [b""] if head.method == "HEAD" else await make(form)
    if len(pieces) == 1:
        await response.answer(200, headers, pieces[0])
        return
    await response.begin(headers, pieces[0])
    for piece in pieces[1:]:
        await response.write(piece)
    await response.end()
