"""Who is let in, and to what: the file with issuers, rules and quotas, as it is now."""

from collections.abc import Callable, Mapping, Set
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

import attrs

from callboard.actors.quotas import MakeLimit, Quotas, own_limit
from callboard.actors.server.host import Host
from callboard.actors.server.new_rules import apply
from callboard.authorization.verifier import TokenVerifier
from callboard.codecs.caller import Caller
from callboard.codecs.oauth.dpop import PROOF_ALGORITHMS
from callboard.codecs.oauth.presented import PresentedToken
from callboard.codecs.oauth.resource import ProtectedResource
from callboard.config.authorization import AuthorizationSettings, read_authorization
from callboard.errors import BadToken, CannotServe, FetchFailed
from callboard.serve.renew import Renewable, Renewing
from callboard.serve.revoke import end_all_of, end_if
from callboard.serve.tokens import TokenFile
from callboard.server.served import Hosted
from callboard.transports.server.http.guard import Authenticate, Authenticator, Guard, guard_of

NO_TABLES: Final = "has neither `authorization` nor `quotas`"


@attrs.frozen(eq=False)
class Authenticators:
    """Tokens that the operator gave out, and those of issuers."""

    own: Authenticator | None
    verifier: TokenVerifier

    def known(self, token: str) -> Caller | None:
        found = None if self.own is None else self.own.known(token)
        return self.verifier.known(token) if found is None else found

    async def verify(self, presented: PresentedToken) -> Caller:
        if self.own is not None:
            try:
                return await self.own.verify(presented)
            except BadToken:
                pass  # it may be an issuer's
        return await self.verifier.verify(presented)


@attrs.define(eq=False)
class AuthorizationFile:
    """The tables `authorization` and `quotas` of a file: read at the start, and again when it changes."""

    path: Path
    make_limit: MakeLimit = own_limit
    keeps_tokens: Callable[[], bool] = lambda: False
    settings: AuthorizationSettings = attrs.field(init=False)
    guard: Guard | None = attrs.field(default=None, init=False)
    _host: Host | None = attrs.field(default=None, init=False)
    _verifier: TokenVerifier | None = attrs.field(default=None, init=False)
    _url: str = attrs.field(default="", init=False)

    name: ClassVar[str] = "authorization"

    def __attrs_post_init__(self) -> None:
        self.settings = self._read()

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path,)

    def read(self) -> AuthorizationSettings:
        """Read the file. Raises `CannotServe`."""
        settings = self._read(is_running=True)
        if settings.issuers and self._verifier is None:
            raise CannotServe(f"{self.path}: the first issuers need a restart: now clients need no token")
        return settings

    def _read(self, *, is_running: bool = False) -> AuthorizationSettings:
        settings = read_authorization(self.path, is_running=is_running)
        if settings is None:
            raise CannotServe(f"{self.path} {NO_TABLES}")
        return settings

    async def begin(self, host: Host, authenticate: Authenticate | None, url: str | None) -> Guard | None:
        """Go by it at *host*, whose own address is *url*. Returns the guard of its endpoints. Raises `CannotServe`."""
        self._host = host
        self.guard = guard_of(authenticate)
        if self.settings.issuers:
            self._url = self.settings.resource or url or ""
            if not self._url:
                raise CannotServe(f"{self.path}: `authorization.resource` is missing: this server's URL for clients")
            self._verifier = await TokenVerifier(self._url, keeps_tokens=self.keeps_tokens).open(host.root)
            own = None if self.guard is None else self.guard.authenticator
            self.guard = Guard(Authenticators(own, self._verifier))
        await self.use(self.settings)
        return self.guard

    async def use(self, settings: AuthorizationSettings) -> Mapping[str, object]:
        """Go by *settings* from now on. Raises `CannotServe` if its keys are none; then nothing changes."""
        if self._host is None:
            raise RuntimeError("there is no host yet")
        if self._verifier is not None and self.guard is not None:
            try:
                await self._verifier.use(settings.issuers, resource=settings.resource or self._url)
            except (ValueError, FetchFailed) as error:
                raise CannotServe(f"{self.path}: {error}") from None
            self.guard.resource = _resource(settings, settings.resource or self._url)
        before, self.settings = self.settings, settings
        lost = {one.issuer for one in before.issuers} - {one.issuer for one in settings.issuers}
        if lost and self.guard is not None:
            self.guard.forget()
            await end_if(self._host, lambda caller: caller.issuer in lost)
        self._host.approvals.time = settings.approval_time
        told = await apply(self._host, settings.make_rules())
        if before.quotas != settings.quotas or self._host.quotas is None:
            self._host.quotas = None if settings.quotas is None else Quotas(settings.quotas, self.make_limit)
        return {"issuers": len(settings.issuers), "rules": len(settings.rules), "clients_told": told}


async def open_guard(
    host: Host,
    server: Hosted,
    authenticate: Authenticate | None,
    file: str | None,
    *,
    url: str | None = None,
    make: MakeLimit = own_limit,
) -> tuple[AuthorizationFile | None, Guard | None]:
    """The guard of the endpoints of *server*, and the *file* that it goes by; *url* is their own address, if only this
    machine can use it. Raises `CannotServe`."""
    if file is None:
        return None, guard_of(authenticate)
    tables = AuthorizationFile(Path(file), make, lambda: server.wants_tokens)
    return tables, await tables.begin(host, authenticate, url)


def begin_renewing(host: Host, guard: Guard | None, *several: object) -> None:
    """Have the files of *several* read again when they change: those that have files. Others are left alone."""
    on_used = (lambda: None) if guard is None else guard.forget
    for what in several:
        if isinstance(what, TokenFile):
            what.on_gone = partial(_end_all_of, host, on_used)
            what.on_removed = partial(end_if, host)
        if isinstance(what, Renewable):
            host.root.spawn(Renewing(what, on_used), name=f"renew-{what.name}", shutdown=0)


async def _end_all_of(host: Host, forget: Callable[[], None], principals: Set[str]) -> int:
    forget()  # first: else one of their heads that is remembered opens something new meanwhile
    return await end_all_of(host, principals)


def _resource(settings: AuthorizationSettings, url: str) -> ProtectedResource | None:
    if not settings.issuers:
        return None
    return ProtectedResource(
        url=url,
        authorization_servers=tuple(issuer.issuer for issuer in settings.issuers),
        scopes=settings.scopes,
        name=settings.resource_name,
        documentation=settings.documentation,
        dpop_algorithms=tuple(PROOF_ALGORITHMS),
    )
