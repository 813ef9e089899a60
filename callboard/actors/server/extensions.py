"""Methods and notifications that extensions add to an offer."""

from collections.abc import Callable, Set
from typing import TypeAlias

import attrs
from msgspec import UNSET

from callboard.actors.server.client_requests import SessionKey
from callboard.actors.server.exchange import Handler
from callboard.actors.terms import Terms
from callboard.codecs.envelope import Notification
from callboard.codecs.revisions import (
    ALL,
    Capability,
    ClientCapabilities,
    Direction,
    Method,
    RequestParams,
    Result,
    Revision,
)
from callboard.codecs.revisions.revision import NONE
from callboard.errors import MissingCapability


@attrs.frozen(kw_only=True)
class AddedMethod:
    """A request that an extension adds: its row, as the specification's own methods have one, and what serves it."""

    row: Method
    handler: Handler


NotificationListener: TypeAlias = Callable[[Notification, Terms | None, SessionKey], bool]
"""Takes a notification that the specification does not have. False if it is not known either: then it is counted."""


def added_row(
    name: str,
    *,
    extension: str | None = None,
    revisions: frozenset[Revision] = ALL,
    needs: tuple[Capability, ...] = (),
    may_ask: frozenset[Revision] = NONE,
) -> Method:
    """The row of a request of clients in these *revisions*. A modern client must declare *extension* to use it."""
    spoken = {Direction.CLIENT_TO_SERVER: revisions, Direction.SERVER_TO_CLIENT: NONE, Direction.INPUT: NONE}
    return Method(
        name=name,
        params=RequestParams,
        result=Result,
        spoken=spoken,
        needs=needs,
        may_ask=may_ask,
        extension=extension,
    )


def has_declared(capabilities: ClientCapabilities, extension: str) -> bool:
    """Whether a client says that it has an extension."""
    return capabilities.extensions is not UNSET and extension in capabilities.extensions


def has_declared_any(capabilities: ClientCapabilities, extensions: Set[str]) -> bool:
    """Whether a client says that it has one of them. Either may be thousands."""
    return capabilities.extensions is not UNSET and not capabilities.extensions.keys().isdisjoint(extensions)


def check_declared_extension(terms: Terms, extension: str) -> None:
    """Raises `MissingCapability` if a client that says what it can with each request does not name *extension*."""
    if terms.revision.dialect.has_extensions and not has_declared(terms.capabilities, extension):
        raise MissingCapability(f"the extension {extension}", {"extensions": {extension: {}}})
