"""Log messages that belong to no request: for all legacy sessions that want them."""

from collections.abc import Mapping
from typing import Final

import trio
from msgspec import UNSET

from callboard.actors.frames import notification_frame
from callboard.actors.outlet import FrameKind, Outbound
from callboard.actors.server.log_levels import is_heard
from callboard.actors.server.open_session import OpenSession
from callboard.codecs.revisions import JSONValue, LoggingLevel, LoggingMessageNotificationParams, Revision

AT_ONCE: Final = 100
"""Sessions that are told in one turn of the loop: between two such turns calls are served."""


async def log_to_all(
    sessions: Mapping[str, OpenSession], level: LoggingLevel, data: JSONValue, logger: str | None
) -> None:
    """Send a log message to each of *sessions* that has agreed on a revision and wants any of this *level*. One that
    does not read loses its oldest."""
    params = LoggingMessageNotificationParams(level=level, data=data, logger=UNSET if logger is None else logger)
    frames: dict[Revision, bytes] = {}
    for count, session in enumerate(list(sessions.values()), 1):
        home, terms = session.key.home, session.terms
        if home is not None and terms is not None and session.is_ready and is_heard(level, terms.log_level):
            if terms.revision not in frames:
                frames[terms.revision] = notification_frame(terms.revision, "notifications/message", params)
            home.outlet.send_nowait(Outbound(frames[terms.revision], FrameKind.REPORT))
        if not count % AT_ONCE:
            await trio.lowlevel.checkpoint()
    await trio.lowlevel.checkpoint()
