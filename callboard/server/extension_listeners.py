"""The functions that hear notifications of extensions: at a server, a client or a broker."""

from collections.abc import Sequence
from typing import Final

import attrs
import msgspec
import trio

from callboard.actors.rate import Rate, RateLimit
from callboard.actors.server.extensions import has_declared
from callboard.actors.terms import Terms
from callboard.codecs.envelope import Notification
from callboard.codecs.json_scan import check_modelled
from callboard.codecs.members import Members, write_members
from callboard.errors import PeerError
from callboard.server.extension import Extension
from callboard.supervisor import get_logger
from callboard.supervisor.ended import drop_frames, failure_text, where

log = get_logger("callboard.handlers")

REPORTED: Final = Rate(10, per=10.0)
"""How often it is logged that a function failed: a peer may send what it fails for in a loop."""

MAX_NAMED: Final = 128
"""Longest name of a notification in the log, in characters."""


@attrs.define(eq=False)
class ExtensionListeners:
    """Calls them, one after the other. What one raises ends neither the connection nor the others."""

    extensions: Sequence[Extension]
    """Some may get further functions while they are in use."""
    _reported: RateLimit = attrs.field(factory=lambda: RateLimit(REPORTED), init=False)
    _left_out: int = attrs.field(default=0, init=False)

    def hear(self, method: str, params: Members) -> bool:
        """Tell them of a notification. False if none of them knows it, or it has more values than may be read."""
        return self._tell(self.extensions, method, params)

    def hear_client(self, notification: Notification, terms: Terms | None) -> bool:
        """As `hear`, of a client with these *terms*, if it has said any. An extension that its clients must declare
        hears of no other."""
        hearing = [one for one in self.extensions if not one.needs_client or _may_use(terms, one.id)]
        return self._tell(hearing, notification.method, notification.members)

    def _tell(self, extensions: Sequence[Extension], method: str, params: Members) -> bool:
        listeners = [one.notifications[method] for one in extensions if method in one.notifications]
        try:
            for listener in listeners:
                check_modelled(params)
                said = msgspec.json.decode(write_members(params))
                try:
                    listener(said)
                except Exception as error:  # the author's own
                    self._report(method, error)
        except PeerError:
            return False
        return bool(listeners)

    def _report(self, method: str, error: Exception) -> None:
        if self._reported.allow(None, trio.current_time()):
            said = {"left_out": self._left_out} if self._left_out else {}
            self._left_out = 0
            failure, place = failure_text(error), where(error)
            log.error("notification_failed", method=method[:MAX_NAMED], failure=failure, where=place, **said)
        else:
            self._left_out += 1
        drop_frames(error)


def _may_use(terms: Terms | None, extension: str) -> bool:
    """Whether a client may use an extension that modern clients must declare."""
    if terms is None:
        return False
    return not terms.revision.dialect.has_extensions or has_declared(terms.capabilities, extension)
