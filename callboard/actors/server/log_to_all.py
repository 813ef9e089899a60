"""Log messages that belong to no request: for all legacy sessions that want them."""

from collections.abc import Mapping

from msgspec import UNSET

from callboard.actors.frames import notification_frame
from callboard.actors.server.log_levels import is_heard
from callboard.actors.server.open_session import OpenSession
from callboard.actors.server.tell_all import tell_all
from callboard.actors.terms import Terms
from callboard.codecs.revisions import JSONValue, LoggingLevel, LoggingMessageNotificationParams, Revision


async def log_to_all(
    sessions: Mapping[str, OpenSession], level: LoggingLevel, data: JSONValue, logger: str | None
) -> None:
    """Send a log message to each of *sessions* that wants any of this *level*."""
    params = LoggingMessageNotificationParams(level=level, data=data, logger=UNSET if logger is None else logger)
    frames: dict[Revision, bytes] = {}

    def frame_for(terms: Terms) -> bytes | None:
        if not is_heard(level, terms.log_level):
            return None
        if terms.revision not in frames:
            frames[terms.revision] = notification_frame(terms.revision, "notifications/message", params)
        return frames[terms.revision]

    await tell_all(sessions, frame_for)
