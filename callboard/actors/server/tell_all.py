"""What belongs to no request: for all legacy sessions, which have a way for it."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import trio

from callboard.actors.outlet import FrameKind, Outbound
from callboard.actors.server.open_session import OpenSession
from callboard.actors.terms import Terms

AT_ONCE: Final = 100
"""Sessions that are told in one turn of the loop: between two such turns calls are served."""

FrameFor: TypeAlias = Callable[[Terms], bytes | None]
"""The notification as a session of these terms gets it; None for one that does not get it."""


async def tell_all(sessions: Mapping[str, OpenSession], frame_for: FrameFor) -> None:
    """Send a notification to each of *sessions* that has agreed on a revision. One that does not read loses its
    oldest."""
    for count, session in enumerate(list(sessions.values()), 1):
        home, terms = session.key.home, session.terms
        if home is not None and terms is not None and session.is_ready:
            frame = frame_for(terms)
            if frame is not None:
                home.outlet.send_nowait(Outbound(frame, FrameKind.REPORT))
        if not count % AT_ONCE:
            await trio.lowlevel.checkpoint()
    await trio.lowlevel.checkpoint()
