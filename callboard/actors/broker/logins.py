"""A call to a server where its user has no login yet: the user is sent to a page, and the call goes on after that."""

import secrets
from typing import Final, Protocol

import trio
from msgspec import UNSET

from callboard.actors.server.client_requests import ClientRequest
from callboard.actors.server.exchange import Exchange
from callboard.actors.terms import Terms
from callboard.codecs.bridge.askable import signature_of
from callboard.codecs.caller import Caller
from callboard.codecs.revisions import (
    LATEST,
    METHODS,
    ElicitationCompleteNotificationParams,
    ElicitRequestURLParams,
    ElicitResult,
)
from callboard.errors import (
    INTERNAL_ERROR,
    URL_ELICITATION_REQUIRED,
    BackendRefused,
    MissingCapability,
    NotAuthorized,
    RequestFailed,
)

LOGIN_ROUNDS: Final = 5
"""How often one call asks its user to log in."""

LOGIN_WAIT: Final = 60.0
"""Seconds that a call waits for a login after its user said yes. Then it asks again."""


class CallerLogin(Protocol):
    """The logins of callers at one backend."""

    async def has(self, caller: Caller) -> bool: ...

    async def begin(self, caller: Caller) -> str:
        """The URL of a page where *caller* can log in. Raises `NotAuthorized`, `Overloaded`."""

    async def wait(self, caller: Caller, seconds: float) -> bool:
        """Wait until *caller* has logged in, but not longer; whether that is so."""


async def have_login(backend: str, logins: CallerLogin, terms: Terms, exchange: Exchange | None, method: str) -> None:
    """Return when the caller has logged in. Raises `BackendRefused` if it does not, or cannot be asked."""
    caller = terms.caller
    if caller.is_anonymous:
        return  # it has no connection there
    try:
        if not await logins.has(caller):
            await _ask_for_login(backend, logins, caller, terms, exchange, method)
    except NotAuthorized as error:
        raise _refusal(backend, str(error)) from None


async def _ask_for_login(
    backend: str, logins: CallerLogin, caller: Caller, terms: Terms, exchange: Exchange | None, method: str
) -> None:
    can_ask = (
        method in METHODS
        and LATEST in METHODS[method].may_ask
        and "elicitation.url" in signature_of(terms.capabilities)
    )
    ids = terms.revision.dialect.has_elicitation_ids
    for _ in range(LOGIN_ROUNDS):
        url, ours, message = await logins.begin(caller), secrets.token_urlsafe(12), f"Log in to {backend}"
        params = ElicitRequestURLParams(message=message, url=url, elicitation_id=ours if ids else UNSET)
        if exchange is None or not can_ask:
            raise _unasked(backend, params)
        try:
            [answer] = await exchange.ask([ClientRequest("elicitation/create", params)], at_once=True)
        except MissingCapability:
            raise _unasked(backend, params) from None
        except RequestFailed:  # the client does not wait any more, or too much is waited for already
            answer = ElicitResult(action="cancel")
        if not isinstance(answer, ElicitResult) or answer.action != "accept":
            raise _refusal(backend, "needs a login, and the user did not open the page")
        has_come = await logins.wait(caller, LOGIN_WAIT)
        if has_come and ids:
            await exchange.slot.notify(
                "notifications/elicitation/complete", ElicitationCompleteNotificationParams(elicitation_id=ours)
            )
        if has_come:
            return
        await trio.lowlevel.checkpoint()
    raise _refusal(backend, "needs a login, which did not come")


def _unasked(backend: str, params: ElicitRequestURLParams) -> BackendRefused:
    """The error for a client that cannot be asked: it names the page all the same."""
    if isinstance(params.elicitation_id, str):
        asked = {"mode": "url", "message": params.message, "url": params.url, "elicitationId": params.elicitation_id}
        return BackendRefused(URL_ELICITATION_REQUIRED, f"{backend} needs a login", {"elicitations": [asked]})
    return _refusal(backend, f"needs a login: open {params.url} and call again")


def _refusal(backend: str, why: str) -> BackendRefused:
    about = {"origin": "broker", "reason": "upstream auth", "backend": backend}
    return BackendRefused(INTERNAL_ERROR, f"{backend}: {why}"[:500], about)
