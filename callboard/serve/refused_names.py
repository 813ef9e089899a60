"""What a listener refused: logged once for each name or client, since the operator may have forgotten a flag."""

from typing import Final

import attrs

from callboard.supervisor import get_logger

log = get_logger("callboard.serving")

MOST_NAMES: Final = 32
"""Different names of a kind that one listener logs: a client can make up any number of them."""

LONGEST: Final = 100
"""Characters of such a name that are logged."""


@attrs.define(eq=False)
class RefusedNames:
    """Logs the hosts, the origins and the clients without a token that one address refuses. Never a token."""

    place: str
    tokens: str = "--token-file"
    """Where it gets the tokens from that it takes."""
    allows_pages: bool = True
    """Whether the operator can allow pages of other origins to use it."""
    _said: set[tuple[str, bytes]] = attrs.field(factory=set, init=False)

    def host(self, host: bytes) -> None:
        """A request called it by this name."""
        if (shown := self._first("host", host)) is not None:
            log.warning("host_refused", host=shown, listener=self.place, fix=f"--allow-host {shown}")

    def origin(self, origin: bytes) -> None:
        """A page of this origin made a request."""
        if (shown := self._first("origin", origin)) is not None:
            fix = f"--allow-origin {shown}" if self.allows_pages else "none: only its own page may use this listener"
            log.warning("origin_refused", origin=shown, listener=self.place, fix=fix)

    def token(self, peer: str, reason: str | None) -> None:
        """A client at this address had no token, or one that is bad for this *reason*, which is a text of our own."""
        why = reason or "no token"
        if (shown := self._first(why, peer.rpartition("@")[2].encode())) is not None:
            # Browsers and clients that look for an authorization server ask without one first.
            write = log.info if reason is None else log.warning
            write("token_refused", client=shown, listener=self.place, reason=why, fix=f"a token of {self.tokens}")

    def _first(self, kind: str, said: bytes) -> str | None:
        """As it is logged; None if it was, or there were too many."""
        key = kind, said[:LONGEST].lower()
        if key in self._said or sum(one[0] == kind for one in self._said) >= MOST_NAMES:
            return None
        self._said.add(key)
        return ascii(key[1].decode("latin-1"))[1:-1]
