"""The inspector of `callboard dev`: a page at the server's own address, with a form for each tool."""

import os
from pathlib import Path
from typing import Final

import attrs

from callboard.codecs.http.head import Head
from callboard.codecs.http.refusal import HttpRefusal
from callboard.serve.options import LIVE_PAGE
from callboard.transports.server.http.response import Response

PAGE: Final = b"/inspector"

_FOLDER: Final = Path(__file__).parent
_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; media-src data:;"
    b" base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_GUARDS: Final = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", _POLICY),
)
_FILES: Final = {
    PAGE: ("inspector.html", b"text/html; charset=utf-8"),
    **{
        f"{PAGE.decode()}/{name}".encode(): (name, kind)
        for name, kind in (
            ("inspector.css", b"text/css; charset=utf-8"),
            ("inspector.js", b"text/javascript; charset=utf-8"),
            ("form.js", b"text/javascript; charset=utf-8"),
            ("rpc.js", b"text/javascript; charset=utf-8"),
        )
    },
}


@attrs.frozen(eq=False)
class InspectorPages:
    """The page and its files. What a page does it does by requests to `/mcp`, as any client."""

    def has(self, path: bytes) -> bool:
        return path in _FILES

    def check(self, head: Head) -> None:
        """Raises `HttpRefusal` for what needs no body to be refused."""
        if head.method not in ("GET", "HEAD"):
            raise HttpRefusal(405, f"method {head.method} is not allowed", headers=((b"allow", b"GET"),), closes=True)

    async def serve(self, head: Head, response: Response) -> None:
        name, kind = _FILES[head.path]
        body = (_FOLDER / name).read_bytes()
        if head.path == PAGE:
            body = body.replace(b"<title>", _live() + b"<title>")
        await response.answer(200, ((b"content-type", kind), *_GUARDS), b"" if head.method == "HEAD" else body)


def _live() -> bytes:
    """The address of the live page, which is ours: no text of others."""
    address = os.environ.get(LIVE_PAGE, "")
    return f'<meta name="live" content="{address}">\n'.encode() if address.startswith("http://127.0.0.1:") else b""
