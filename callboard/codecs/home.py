"""Names that clients hold, and the worker that each of them leads to.

With several workers, a client's next request may reach another one than the last. So a name that a client holds (the
id of a session) carries the worker that made it, its *home*, sealed: a forged one leads nowhere, and costs no hop.
"""

import hashlib
import math
import os
import secrets
from collections.abc import Iterable
from typing import Final, Protocol

import attrs

from callboard.codecs.seal import KeyRing, Seal

HOME_SIZE: Final = 8
"""Bytes of the name of a worker. It is drawn for each start of a process, and never used again."""

MOST_REMEMBERED: Final = 4096
"""Names that are remembered with their homes; then it begins anew. To open one takes 5 us, to find one 0.1."""

_UNIQUE: Final = 16
_NEVER: Final = math.inf


def new_worker_name() -> bytes:
    return os.urandom(HOME_SIZE)


def chosen_home(key: bytes, living: Iterable[bytes]) -> bytes:
    """The one of the *living* that *key* belongs to. All workers that know of the same ones choose the same one, and
    when one ends, only what belonged to it moves (highest random weight)."""
    return max(living, key=lambda name: hashlib.blake2s(key, key=name, digest_size=8).digest())


class Names(Protocol):
    """Makes names that clients hold."""

    def new(self, principal: str) -> str:
        """A name of something that lives here and is *principal*'s."""

    def home_of(self, name: str, principal: str) -> bytes | None:
        """The worker that made *name*; None if it is forged, torn, or another principal's."""


class LocalNames:
    """The names of a server in one process: all of them lead here."""

    def new(self, _: str) -> str:
        return secrets.token_hex(24)  # no hyphen at its start: a shell user types it after a command

    def home_of(self, _: str, __: str) -> bytes | None:
        return None


@attrs.define(eq=False)
class HomeNames:
    """Makes names that lead here, and reads where others lead."""

    ring: KeyRing
    here: bytes
    purpose: str = "session"
    _known: dict[tuple[str, str], bytes] = attrs.field(factory=dict, init=False, repr=False)

    def new(self, principal: str) -> str:
        """A name of something that lives here and is *principal*'s."""
        unique = self.here + os.urandom(_UNIQUE)
        return Seal(self.ring, self.purpose).close(unique, (_encoded(principal),), expires=_NEVER)

    def home_of(self, name: str, principal: str) -> bytes | None:
        """The worker that made *name*; None if it is forged, torn, or another principal's."""
        known = self._known.get((name, principal))
        if known is not None:
            return known
        opened = Seal(self.ring, self.purpose).open(name, (_encoded(principal),), now=0.0)
        if opened is None or len(opened.payload) != HOME_SIZE + _UNIQUE:
            return None
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        home = self._known[name, principal] = opened.payload[:HOME_SIZE]
        return home


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
