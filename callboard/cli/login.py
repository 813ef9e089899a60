"""Credentials of a command: `--auth`, and what belongs to it."""

import hashlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final, Literal

import attrs
import trio
from cyclopts import Group, Parameter

from callboard.actors.client.link import held
from callboard.cli.arguments import BadArgument
from callboard.cli.screen import Screen
from callboard.cli.terminal import Terminal
from callboard.cli.tls_flags import WARNING, TlsFlags
from callboard.codecs.http.response_parser import AnswerHead
from callboard.errors import CallboardError, NotAuthorized
from callboard.transports.client.credentials import Auth, Credentials, Proof

if TYPE_CHECKING:  # it takes time to load, and most servers want to know nothing
    from callboard.oauth import Consent, FileStore, Grant, OAuth
    from callboard.oauth.consent import Prepare

WHO: Final = (
    "the server requires authorization: log in with --auth browser (--help has others), or send a token: "
    "--header 'Authorization: Bearer ...'"
)
NOT_VERIFIED: Final = (
    "the server requires authorization, and with --insecure no stored tokens are sent: trust its certificate with "
    "--cacert FILE, or send a token: --header 'Authorization: Bearer ...'"
)
AGAIN: Final = "the stored tokens are expired or lack a scope: log in again with --auth browser"
NOT_TAKEN: Final = "the server rejected the Authorization header"

Way = Literal["kept", "browser", "headless", "machine", "none"]

_LOGIN: Final = Parameter(group=Group("Authorization", sort_key=1))


@attrs.frozen(kw_only=True)
class Login(TlsFlags):
    """How to authenticate to servers that demand it."""

    auth: Annotated[
        Way,
        _LOGIN,
        Parameter(
            help="kept: use the stored tokens of an earlier login; browser: log in with a browser; headless: print a "
            "URL to open on another machine; machine: client credentials; none: send no credentials.",
        ),
    ] = "kept"
    client_id: Annotated[
        str | None, _LOGIN, Parameter(help="OAuth client id, if the client is already registered.", show_default=False)
    ] = None
    client_secret_env: Annotated[str | None, _LOGIN, Parameter(help="Environment variable with the client secret.")] = (
        None
    )
    issuer: Annotated[
        str | None,
        _LOGIN,
        Parameter(
            help="Authorization server at which --client-id is registered. The secret is sent to no other server."
        ),
    ] = None
    scope: Annotated[
        list[str] | None, _LOGIN, Parameter(negative="", help="OAuth scope to request. May be repeated.")
    ] = None
    trust: Annotated[
        list[str] | None,
        _LOGIN,
        Parameter(negative="", help="Host in a private network to trust as authorization server. May be repeated."),
    ] = None

    def check(self, *, has_header: bool) -> None:
        """Raises `BadArgument` for what does not go together."""
        if has_header and self.auth not in ("kept", "none"):
            raise BadArgument(f"--auth {self.auth} and an Authorization header exclude each other")
        if self.insecure and self.auth not in ("kept", "none"):
            raise BadArgument(
                f"--auth {self.auth} and --insecure exclude each other: tokens could be stolen on the way"
            )
        if self.auth == "machine" and (self.client_id is None or self.client_secret_env is None):
            raise BadArgument("--auth machine needs --client-id and --client-secret-env")
        for flag, value in (("--client-secret-env", self.client_secret_env), ("--issuer", self.issuer)):
            if value is not None and self.client_id is None:
                raise BadArgument(f"{flag} needs --client-id")
        self.secret()

    def secret(self) -> str | None:
        """Raises `BadArgument` if the environment has none. It never stands on a command line, where others see it."""
        if self.client_secret_env is None:
            return None
        secret = os.environ.get(self.client_secret_env)
        if not secret:
            raise BadArgument(f"--client-secret-env: environment variable not set: {self.client_secret_env[:100]}")
        return secret


def auth_of(login: Login, screen: Screen, connecting: trio.CancelScope, *, has_header: bool) -> Auth:
    """The `auth` option for `connect`. The connect timeout of *connecting* pauses while the user is asked.

    Raises `BadArgument`.
    """
    login.check(has_header=has_header)
    if login.insecure:
        screen.say(WARNING)
    if has_header:
        return _Stranger(NOT_TAKEN)
    if login.auth == "none" or login.insecure:
        return _Stranger(NOT_VERIFIED if login.insecure else WHO)
    return _OnDemand(lambda: _oauth(login, screen, connecting), is_asked_for=login.auth != "kept")


def _oauth(login: Login, screen: Screen, connecting: trio.CancelScope) -> "OAuth":
    from callboard.oauth import OAuth

    scopes = [scope for given in login.scope or () for scope in given.split()]
    is_machine = login.auth == "machine"
    store = store_of(login.client_id if is_machine else None)
    grant = _machine(login) if is_machine else _person(login, screen, connecting)
    return OAuth(grant=grant, scopes=scopes, store=store, trust=login.trust or (), tls=login.context())


def store_of(machine: str | None) -> "FileStore":
    """The token store of a user, or of a machine: the two are kept apart."""
    from callboard.oauth.store import FileStore

    home = FileStore.at_home()
    return home if machine is None else FileStore(home.folder / hashlib.sha256(machine.encode()).hexdigest())


def _machine(login: Login) -> "Grant":
    from callboard.oauth import ClientCredentials

    return ClientCredentials(client_id=login.client_id or "", client_secret=login.secret(), issuer=login.issuer)


def _person(login: Login, screen: Screen, connecting: trio.CancelScope) -> "Grant":
    from callboard.oauth import AuthorizationCode, Browser, Headless, Identity, RegisteredClient

    async def visit(url: str) -> str:
        return await _pasted(screen, url)

    def tell(url: str) -> None:
        screen.say(f"callboard: opening a browser to log in; if it does not open, visit {url}")

    consents: dict[str, Consent] = {"browser": Browser(tell=tell), "headless": Headless(visit)}
    consent = Unhurried(consents[login.auth], connecting) if login.auth in consents else _Nobody()
    registered = None
    if login.client_id is not None:
        registered = RegisteredClient(client_id=login.client_id, client_secret=login.secret(), issuer=login.issuer)
    return AuthorizationCode(consent=consent, identity=Identity(registered=registered))


async def _pasted(screen: Screen, url: str) -> str:
    if not Terminal.is_there():
        raise NotAuthorized("--auth headless needs a terminal")
    with screen.person() as person:
        screen.say(f"To log in, open this URL in a browser on any machine:\n\n{url}\n")
        said = await person.ask("Then paste the URL of the last page here, even if the browser cannot show that page:")
    if not said:
        raise NotAuthorized("login cancelled: no URL was pasted")
    return said.strip()


@attrs.frozen
class Unhurried:
    """Asks the user, and the time that takes does not count for the request."""

    consent: "Consent"
    waiting: trio.CancelScope

    async def ask(self, prepare: "Prepare", registered: str | None) -> str:
        with held(self.waiting):
            return await self.consent.ask(prepare, registered)


@attrs.frozen
class _Nobody:
    """Never asks."""

    async def ask(self, prepare: "Prepare", registered: str | None) -> str:
        await trio.lowlevel.checkpoint()
        raise NotAuthorized(AGAIN)


@attrs.frozen
class _OnDemand:
    """OAuth, for servers that are reached by a URL. Unless it *is_asked_for*, what is kept is shown where it may be."""

    make: Callable[[], "OAuth"]
    is_asked_for: bool

    def credentials(self, url: str) -> Credentials:
        if self.is_asked_for:
            return self.make().credentials(url)
        if not _may_be_kept(url):
            return _Stranger()
        try:
            return _Kept(self.make().credentials(url))
        except NotAuthorized:
            return _Stranger()  # a token could be overheard on the way there


def _may_be_kept(url: str) -> bool:
    """Whether there may be tokens for *url*. To look for their file costs nothing; OAuth takes time to load."""
    from callboard.oauth.store import tokens_of

    try:
        return store_of(None).path(tokens_of(url)).exists()
    except (OSError, CallboardError):
        return True  # OAuth says what is wrong


@attrs.frozen
class _Stranger:
    """Has nothing to show, and says so when it is wanted."""

    complaint: str = WHO

    def credentials(self, url: str) -> Credentials:
        return self

    async def prove(self, method: bytes) -> Proof:
        await trio.lowlevel.checkpoint()
        return Proof()

    def helps(self, refusal: AnswerHead, used: Proof) -> bool:
        return refusal.status == 401

    async def renew(self, method: bytes, refusal: AnswerHead, used: Proof) -> Proof:
        await trio.lowlevel.checkpoint()
        raise NotAuthorized(self.complaint)


@attrs.define(eq=False)
class _Kept:
    """Shows what is kept. Without a login the user is told how to log in, before any request is made."""

    inner: Credentials
    _complaint: str = attrs.field(default=WHO, init=False)

    async def prove(self, method: bytes) -> Proof:
        try:
            return await self.inner.prove(method)
        except NotAuthorized as error:  # it cannot be read: that matters only to a server that wants it
            self._complaint = str(error)
            return Proof()

    def helps(self, refusal: AnswerHead, used: Proof) -> bool:
        return refusal.status == 401 or self.inner.helps(refusal, used)

    async def renew(self, method: bytes, refusal: AnswerHead, used: Proof) -> Proof:
        if not used.headers:
            raise NotAuthorized(self._complaint)
        return await self.inner.renew(method, refusal, used)
