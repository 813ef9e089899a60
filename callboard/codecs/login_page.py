"""The pages of a login at a server behind the broker: plain HTML without scripts, for any text that it is given."""

from collections.abc import Sequence
from html import escape
from typing import Final

MAX_SHOWN: Final = 200
"""Characters of a name that a page shows."""

_STYLE: Final = "body{font-family:sans-serif;max-width:36em;margin:4em auto;padding:0 1em}button{font-size:1em}"

PAGE_HEADERS: Final = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


def page_headers(to: str = "") -> tuple[tuple[bytes, bytes], ...]:
    """The headers of a page with a form that may lead *to* another origin."""
    action = f"'self' {to}" if to else "'self'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; form-action {action}; frame-ancestors 'none'"
    return (*PAGE_HEADERS, (b"content-security-policy", policy.encode("ascii")))


def consent_page(server: str, user: str, issuer: str, scopes: Sequence[str]) -> bytes:
    """What a user agrees to before being sent to the authorization server of *server*."""
    items = "".join(f"<li>{_shown(scope)}</li>" for scope in scopes)
    asked = f"<p>It asks for these scopes:</p><ul>{items}</ul>" if items else ""
    return _page(
        f"Log in to {_shown(server)}",
        f"<p>The server <b>{_shown(server)}</b> wants you to log in at <b>{_shown(issuer)}</b>. "
        f"All calls of the user <b>{_shown(user)}</b> will then have your access there.</p>{asked}"
        f"<p>If you are not <b>{_shown(user)}</b>, or did not ask for this, close this page.</p>"
        '<form method="post"><button type="submit">Log in</button></form>',
    )


def text_page(title: str, text: str) -> bytes:
    """A page that only says something."""
    return _page(_shown(title), f"<p>{_shown(text)}</p>")


def _page(title: str, body: str) -> bytes:
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>{body}</body></html>"
    )
    return page.encode("utf-8")


def _shown(text: str) -> str:
    """*text* inside of an element: what is not printable, or turns the direction of text around, is left out."""
    return escape("".join(char if char.isprintable() else "\ufffd" for char in text[:MAX_SHOWN]))
