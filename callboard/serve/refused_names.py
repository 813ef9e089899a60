"""Names that a server was called by and does not go by: logged once each, since the operator may have forgotten one."""

from typing import Final

import attrs

from callboard.supervisor import get_logger

log = get_logger("callboard.serving")

MOST_NAMES: Final = 32
"""Different names that one listener logs: a client can make up any number of them."""

LONGEST: Final = 100
"""Characters of such a name that are logged."""


@attrs.define(eq=False)
class RefusedNames:
    """Logs the names that requests to one address were refused for."""

    place: str
    _said: set[bytes] = attrs.field(factory=set, init=False)

    def __call__(self, host: bytes) -> None:
        name = host[:LONGEST].lower()
        if name in self._said or len(self._said) >= MOST_NAMES:
            return
        self._said.add(name)
        shown = ascii(name.decode("latin-1"))[1:-1]
        log.warning("host_refused", host=shown, listener=self.place, fix=f"--allow-host {shown}")
