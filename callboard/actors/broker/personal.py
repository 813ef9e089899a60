"""How a backend is reached that gets something of each caller's own: a token, a header, a variable."""

from collections.abc import Hashable
from typing import Protocol

from callboard.actors.broker.connection import Reach
from callboard.actors.broker.logins import CallerLogin
from callboard.codecs.caller import Caller


class CallerReach(Protocol):
    """Opens connections that belong to one caller each."""

    @property
    def login(self) -> CallerLogin | None:
        """Where each caller has to log in first; None if it need not."""

    def mark(self, caller: Caller) -> Hashable:
        """What of *caller* goes to the backend, as a digest: requests with equal ones may share a connection.

        Raises `NotAuthorized` if the caller lacks what the backend needs.
        """

    def reach(self, caller: Caller) -> Reach:
        """How to open a connection for *caller*."""
