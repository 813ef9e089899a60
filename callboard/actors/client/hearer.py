"""What is heard of one request before its answer, and by which callbacks."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

import attrs
from msgspec import Raw

from callboard.codecs.envelope import Request
from callboard.codecs.revisions import LoggingMessageNotificationParams, ProgressNotificationParams

Report: TypeAlias = ProgressNotificationParams
OnProgress: TypeAlias = Callable[[Report], None]
OnChange: TypeAlias = Callable[[str, Mapping[str, Raw]], None]
OnLog: TypeAlias = Callable[[LoggingMessageNotificationParams], None]
OnQuestion: TypeAlias = Callable[[Request], None]


class Hearer(Protocol):
    """Callbacks for what a server says and asks about one request, before its answer.

    Progress is matched by its token on any way, and what a subscription says by its id. Where a request has a way of
    its own (HTTP), all else that comes on it is heard here, too; what has no callback is heard as if it came on none.
    """

    @property
    def on_progress(self) -> OnProgress | None: ...

    @property
    def on_told(self) -> OnChange | None:
        """Hears notifications: those of a subscription, and those that came on this request's way."""

    @property
    def on_custom(self) -> OnChange | None:
        """Hears notifications that the specification does not have, if they came on this request's way."""

    @property
    def on_log(self) -> OnLog | None: ...

    @property
    def on_question(self) -> OnQuestion | None:
        """Takes a request of a legacy server's, and sees to it that it is answered: on the link, with `tell`."""

    @property
    def why_cancelled(self) -> Callable[[], str] | None:
        """Asked for the reason when the request is no longer wanted."""


@attrs.frozen(kw_only=True)
class NotificationHandler:
    """A `Hearer` of given callbacks."""

    on_progress: OnProgress | None = None
    on_told: OnChange | None = None
    on_custom: OnChange | None = None
    on_log: OnLog | None = None
    on_question: OnQuestion | None = None
    why_cancelled: Callable[[], str] | None = None


NOBODY: Final[Hearer] = NotificationHandler()
