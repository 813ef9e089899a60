"""The extensions of a client: what it declares, and what it does with notifications and requests of the server."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, cast

import attrs
import trio

from callboard.actors.client.answerer import NONE_ADDED, AddedAnswer
from callboard.actors.client.conversation import OnAdded
from callboard.codecs.revisions import JSONObject

if TYPE_CHECKING:
    from callboard.server.extension import Extension

Extensions: TypeAlias = Mapping[str, JSONObject] | Iterable["Extension"]
"""Settings by id, or extensions with functions of their own."""

THREADS: Final = 8
"""Plain functions of its extensions that run at once for one client, each in a thread."""


@attrs.frozen(kw_only=True)
class ClientExtensions:
    """The extensions of one connection."""

    settings: Mapping[str, JSONObject]
    answers: Mapping[str, AddedAnswer] = NONE_ADDED
    on_added: OnAdded | None = None

    @classmethod
    def of(cls, given: Extensions | None) -> Self:
        """Raises TypeError for what is no extension, or one for a server, and ValueError for two with one id, or one
        method."""
        if given is None or isinstance(given, Mapping):
            return cls(settings=dict(given or {}))
        # What serves requests is loaded for clients that have it.
        from callboard.server.extension import checked_extensions
        from callboard.server.extension_listeners import ExtensionListeners

        found = checked_extensions(cast("Iterable[Any]", given), is_client=True)
        answers: dict[str, AddedAnswer] = {}
        limiter = trio.CapacityLimiter(THREADS)
        for one in found:
            for name, answer in one.answers(limiter):
                if name in answers:
                    raise ValueError(f"extension {one.id!r}: another extension has the method {name!r} already")
                answers[name] = answer
        listeners = ExtensionListeners(found)
        return cls(settings={one.id: one.settings for one in found}, answers=answers, on_added=listeners.hear)
