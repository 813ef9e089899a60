"""A broker whose users log in at the server behind it, and a browser that follows its pages."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar, cast

import attrs
import trio

from callboard.broker import Broker
from callboard.config import BackendSpec, Remote, UpstreamAuth
from callboard.oauth.login_desk import LoginDesk
from callboard.oauth.sealed_store import BoundedStore
from callboard.oauth.store import Store
from callboard.oauth.user_login import UserLogin
from callboard.serve.login_pages import LoginPages
from callboard.server import Server
from tests.broker.callers import Dump, spec
from tests.oauth.house import Asked, Said, open_house
from tests.oauth.town import Giver, visit
from tests.transports.server.http.stage import Answer, Place, serving

LIMIT = 20


class Upstream(Dump):
    """Its lists are for everybody; calls need a token that was given, and is not revoked."""

    lists_need_token: ClassVar[bool] = False

    def _mcp(self, asked: Asked) -> Said:
        is_call = bool(asked.body) and asked.json.get("method") == "tools/call"
        self.needs_token = is_call or self.lists_need_token
        return super()._mcp(asked)

    def shown(self) -> list[str]:
        return [(call.header("authorization") or "").removeprefix("Bearer ") for call in self.calls()]


@attrs.define(eq=False)
class Scene:
    """All of them."""

    broker: Broker
    desk: LoginDesk
    place: Place
    upstream: Upstream
    giver: Giver

    def redeemed(self) -> int:
        return sum(asked.form["grant_type"] == "authorization_code" for asked in self.giver.visits("/token"))

    @property
    def login(self) -> UserLogin:
        return cast("UserLogin", cast("Any", self.broker.backends["back"].personal).login)

    def browser(self) -> "Browser":
        return Browser(self.place)


@attrs.define(eq=False)
class Browser:
    """Keeps one cookie, as it was told to."""

    place: Place
    cookie: str = ""

    async def ask(self, method: str, url: str, **headers: str) -> Answer:
        target = re.sub(r"^https?://[^/]+", "", url)
        sent = {"cookie": self.cookie, **headers}
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in sent.items() if value)
        head = f"{method} {target} HTTP/1.1\r\nhost: 127.0.0.1:{self.place.port}\r\ncontent-length: 0\r\n{lines}\r\n"
        answer = await self.place.ask(head.encode("latin-1"))
        if "set-cookie" in answer.headers:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return answer

    async def agree(self, url: str) -> str:
        """Open the page of a login and say yes: the URL at the authorization server."""
        assert (await self.ask("GET", url)).status == 200
        answer = await self.ask("POST", url, origin="null", sec_fetch_site="same-origin")
        assert answer.status == 303, answer.body
        return answer.headers["location"]

    async def log_in(self, url: str) -> Answer:
        return await self.ask("GET", await visit(await self.agree(url)))


def backend(url: str, **said: Any) -> BackendSpec:
    return spec(Remote(url=url), auth=UpstreamAuth(grant="user", **said))


@asynccontextmanager
async def open_scene(
    *, is_modern: bool = True, refreshes: bool = False, store: Store | None = None, **said: Any
) -> AsyncIterator[Scene]:
    giver, upstream = Giver(refreshes=refreshes), Upstream(is_modern=is_modern)
    upstream.good = cast("set[str]", giver.tokens)
    with trio.fail_after(LIMIT):
        async with open_house(giver.house), open_house(upstream.house):
            upstream.issuer = giver.house.url
            broker = Broker([backend(upstream.url, **said)])
            desk = broker.logins = LoginDesk("", store or BoundedStore())
            async with serving(cast("Server", broker)) as place:
                desk.origin = f"http://127.0.0.1:{place.port}"
                place.endpoint.pages = LoginPages(desk)
                yield Scene(broker, desk, place, upstream, giver)
