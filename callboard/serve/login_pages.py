"""The pages where users of a broker log in at the servers behind it."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from callboard.codecs.http.head import Head
from callboard.codecs.http.refusal import HttpRefusal
from callboard.codecs.login_page import consent_page, page_headers, text_page
from callboard.codecs.oauth.client import check_redirect_uri
from callboard.codecs.oauth.discovery import origin_of
from callboard.config.authorization import read_authorization
from callboard.errors import CannotServe, NotAuthorized
from callboard.oauth.login_desk import CALLBACK_PATH, LOGIN_PATH, LOGIN_TIME, LoginDesk, LoginRefused
from callboard.oauth.sealed_store import SealedStore, open_store
from callboard.transports.server.http.response import Response

if TYPE_CHECKING:
    from callboard.broker.broker import Broker
    from callboard.serve.options import ServePlan

COOKIE: Final = "callboard-login"

_STATE: Final = re.compile(rb"[A-Za-z0-9_-]{43}")
_LOGIN: Final = LOGIN_PATH.encode()
_CALLBACK: Final = CALLBACK_PATH.encode()


@attrs.frozen(eq=False)
class LoginPages:
    """The pages, for browsers: these have no token to show."""

    desk: LoginDesk

    def has(self, path: bytes) -> bool:
        return path == _CALLBACK or (path.startswith(_LOGIN) and _STATE.fullmatch(path[len(_LOGIN) :]) is not None)

    def check(self, head: Head) -> None:
        """Raises `HttpRefusal` for what needs no body to be refused."""
        methods = ("GET",) if head.path == _CALLBACK else ("GET", "POST")
        if head.method not in methods:
            allow = ((b"allow", ", ".join(methods).encode()),)
            raise HttpRefusal(405, f"method {head.method} is not allowed", headers=allow, closes=True)

    async def serve(self, head: Head, response: Response) -> None:
        try:
            if head.path == _CALLBACK:
                await self._come_back(head, response)
            elif head.method == "POST":
                await self._agree(head, response)
            else:
                await self._show(head, response)
        except LoginRefused:
            page = text_page("Not logged in", "This login is over, or was not begun in this browser. Call again.")
            await response.answer(400, page_headers(), page)
        except NotAuthorized as error:
            await response.answer(400, page_headers(), text_page("Not logged in", str(error)))

    async def _show(self, head: Head, response: Response) -> None:
        login, cookie = self.desk.show(_state(head))
        server = login.found.server
        page = consent_page(login.backend, login.caller.principal, server.issuer, login.scopes)
        headers = page_headers(origin_of(server.authorization_endpoint or ""))
        await response.answer(200, (*headers, (b"set-cookie", self._cookie(cookie))), page)

    async def _agree(self, head: Head, response: Response) -> None:
        self._check_origin(head)
        url = self.desk.agree(_state(head), self._given(head))
        await response.answer(303, (*page_headers(), (b"location", url.encode("ascii"))))

    async def _come_back(self, head: Head, response: Response) -> None:
        login = await self.desk.come_back(head.query.decode("latin-1"), self._given(head))
        text = f"{login.backend} can be used now. You may close this page."
        await response.answer(200, page_headers(), text_page("Logged in", text))

    def _check_origin(self, head: Head) -> None:
        """Only our own page may agree for a user. Browsers say `null` there, since the page has `no-referrer`; then the
        cookie has to do, which they send with no request that another site has made (`SameSite`)."""
        origin, site = head.get(b"origin"), head.get(b"sec-fetch-site")
        if origin not in (None, b"null", self.desk.origin.encode()) or site not in (None, b"same-origin"):
            raise LoginRefused

    # The cookie.

    @property
    def _is_secure(self) -> bool:
        return self.desk.origin.startswith("https:")

    @property
    def _name(self) -> str:
        return f"__Host-{COOKIE}" if self._is_secure else COOKIE

    def _cookie(self, value: str) -> bytes:
        secure = "; Secure" if self._is_secure else ""
        rules = f"Path=/; HttpOnly; SameSite=Lax; Max-Age={LOGIN_TIME:.0f}{secure}"
        return f"{self._name}={value}; {rules}".encode("ascii")

    def _given(self, head: Head) -> str | None:
        """The one that came; none if there are several, of which one may be another site's."""
        pairs = b";".join(head.all(b"cookie")).decode("latin-1").split(";")
        named = [pair.strip().partition("=") for pair in pairs]
        found = [value for name, _, value in named if name == self._name]
        return found[0] if len(found) == 1 else None


def _state(head: Head) -> str:
    return head.path[len(_LOGIN) :].decode("ascii")


async def open_pages(broker: "Broker", plan: "ServePlan") -> LoginPages:
    """Let the users of *broker* log in. Raises `CannotServe` if they could not."""
    settings = None if plan.authorization is None else read_authorization(Path(plan.authorization))
    if settings is None or settings.resource is None or plan.http is None:
        raise CannotServe('oauth.grant "user" needs HTTP and `authorization.resource`: this server\'s URL for browsers')
    origin, keys = origin_of(settings.resource), plan.state_keys()
    if settings.tokens_folder is not None and not keys:
        raise CannotServe(f"{plan.authorization}: `authorization.tokens_folder` needs --state-key-file FILE")
    store = open_store(settings.tokens_folder, keys)
    try:
        check_redirect_uri(f"{origin}{CALLBACK_PATH}")
        if isinstance(store, SealedStore):
            await store.check()
    except NotAuthorized as error:
        raise CannotServe(str(error)) from None
    broker.logins = LoginDesk(origin, store)
    return LoginPages(broker.logins)
