"""What records messages, as actors and transports see it: they hand it frames, and go on."""

from collections.abc import Iterable
from typing import Protocol

import attrs

from callboard.codecs.recording import Direction


class Tape(Protocol):
    """Takes frames to be recorded. Never waits and never raises: what it cannot take, it counts."""

    def take(self, server: str, session: str, direction: Direction, frame: bytes) -> None:
        """One frame that was sent to *server*, or that came from it."""


@attrs.frozen
class Track:
    """The part of a tape that is about one session with one server."""

    tape: Tape
    server: str
    session: str

    def to_server(self, frame: bytes) -> None:
        self.tape.take(self.server, self.session, "to_server", frame)

    def all_from_server(self, frames: Iterable[bytes]) -> None:
        for frame in frames:
            self.from_server(frame)

    def from_server(self, frame: bytes) -> None:
        self.tape.take(self.server, self.session, "from_server", frame)
