"""A browser without a screen, for logins: follows redirects with cookies. Runs in any environment."""

import asyncio
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

REDIRECT = "http://127.0.0.1:9/callback"
"""Where a login ends. Nothing listens there: the browser stops before."""

MOST_PAGES = 20


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def log_in(url: str) -> dict[str, str]:
    """Follow the pages of a login to its end: the parameters of the redirect."""
    cookies: dict[str, str] = {}
    opener = urllib.request.build_opener(_Stay)
    for _ in range(MOST_PAGES):
        if url.startswith(REDIRECT):
            return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query))
        said = {"cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())} if cookies else {}
        try:
            asked = urllib.request.Request(url, headers=said)  # noqa: S310  # of a provider that a test has started
            with opener.open(asked, timeout=10) as page:
                raise RuntimeError(f"the login stopped: {page.status} {page.read(2000)!r}")
        except urllib.error.HTTPError as answer:
            if answer.code not in (302, 303):
                raise RuntimeError(f"the login failed: {answer.code} {answer.read(2000)!r}") from None
            for cookie in answer.headers.get_all("set-cookie", []):
                name, _, value = cookie.partition(";")[0].partition("=")
                cookies[name] = value
            url = urllib.parse.urljoin(url, answer.headers["location"])
    raise RuntimeError("the login has no end")


class Login:
    """What a login brings, as the storage and the browser of an official Python client."""

    def __init__(self) -> None:
        self.tokens: Any = None
        self.client: Any = None
        self.found: dict[str, str] = {}
        self.scopes: list[str] = []

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info

    async def visit(self, url: str) -> None:
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query))
        self.scopes.append(query.get("scope", ""))
        self.found = await asyncio.to_thread(log_in, url)
