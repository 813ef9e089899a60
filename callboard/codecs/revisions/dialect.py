"""Differences between revisions, by trait: `revision.dialect.has_sessions` says why a line is there.

A trait is about behaviour. Which methods, members and error codes a revision has is in the tables beside this one.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import attrs

ProbeMethod: TypeAlias = Literal["ping", "server/discover"]


@attrs.frozen(kw_only=True)
class Dialect:
    """The traits of one revision."""

    # How a conversation goes.
    has_sessions: bool
    """`initialize` opens a session, which has one revision and one client; else every request stands alone."""
    terms_per_request: bool
    """`_meta` of every request has the version, the client and its capabilities."""
    level_per_request: bool
    """`_meta` of a request sets its log level; else `logging/setLevel` sets that of the session."""
    probe_method: ProbeMethod
    """The request that every server answers at once, if it is alive."""
    takes_batches: bool
    """A frame may be an array of messages."""
    has_extensions: bool
    """Capabilities may name extensions; tasks are one of them."""
    has_tasks: bool
    """Tasks are a part of the protocol itself: a call with `task` is answered by a handle."""
    has_listen: bool
    """`subscriptions/listen` opens a stream of changes; else the session has `resources/subscribe`."""
    declares_completions: bool
    """A server that has `completion/complete` declares the capability `completions`."""

    # How a server asks its client.
    asks_in_results: bool
    """A server asks in an `input_required` result, and the retry answers; else it sends requests of its own."""
    tells_root_changes: bool
    """A client may send `notifications/roots/list_changed`."""
    has_elicitation_modes: bool
    """An elicitation says whether it is a form or a URL, and forms have the newer kinds of choices."""
    has_elicitation_ids: bool
    """A URL elicitation has an id, and a notification says when it is complete."""
    samples_many_blocks: bool
    """A sampling message may have an array of content blocks; else it has one block."""
    declares_sampling_context: bool
    """A client that adds context of its servers to a sampling request declares `sampling.context`."""

    # How HTTP is used.
    cancelled_by_close: bool
    """A closed response stream cancels its request; else the stream can be resumed, and a notification cancels."""
    versioned_header: bool
    """`MCP-Protocol-Version` is on every request after the first agreement."""
    mirrors_headers: bool
    """Headers repeat what the body of a request says: its version, method, name and marked arguments."""
    polls_streams: bool
    """A server may close a stream early: it begins with an event id, by which the client comes back."""

    # What results, definitions and errors say.
    typed_results: bool
    """Every result has a `resultType`."""
    has_cache_hints: bool
    """Lists and resources have `ttlMs` and `cacheScope`."""
    names_server: bool
    """`_meta` of every result has the server's name and version."""
    has_audio: bool
    """Content may be audio."""
    has_resource_links: bool
    """Content may be a link to a resource."""
    has_structured_content: bool
    """Tools may have an output schema, and their results structured content."""
    structures_any_json: bool
    """Output schemas and structured content may be of any JSON type; else they are objects."""
    has_not_found_code: bool
    """A resource that does not exist has an error code of its own, -32002."""
    reserves_error_codes: bool
    """The specification alone gives a meaning to the codes from -32020 to -32099."""


_2024_11_05: Final = Dialect(
    has_sessions=True,
    terms_per_request=False,
    level_per_request=False,
    probe_method="ping",
    takes_batches=False,
    has_extensions=False,
    has_tasks=False,
    has_listen=False,
    declares_completions=False,
    asks_in_results=False,
    tells_root_changes=True,
    has_elicitation_modes=False,
    has_elicitation_ids=False,
    samples_many_blocks=False,
    declares_sampling_context=False,
    cancelled_by_close=False,
    versioned_header=False,
    mirrors_headers=False,
    polls_streams=False,
    typed_results=False,
    has_cache_hints=False,
    names_server=False,
    has_audio=False,
    has_resource_links=False,
    has_structured_content=False,
    structures_any_json=False,
    has_not_found_code=True,
    reserves_error_codes=False,
)

# Each of the others is written as what it changed.

_2025_03_26: Final = attrs.evolve(
    _2024_11_05,
    takes_batches=True,
    declares_completions=True,
    has_audio=True,
)

_2025_06_18: Final = attrs.evolve(
    _2025_03_26,
    takes_batches=False,
    versioned_header=True,
    has_resource_links=True,
    has_structured_content=True,
)

_2025_11_25: Final = attrs.evolve(
    _2025_06_18,
    has_tasks=True,
    has_elicitation_modes=True,
    has_elicitation_ids=True,
    samples_many_blocks=True,
    declares_sampling_context=True,
    polls_streams=True,
)

_2026_07_28: Final = attrs.evolve(
    _2025_11_25,
    has_sessions=False,
    terms_per_request=True,
    level_per_request=True,
    probe_method="server/discover",
    has_extensions=True,
    has_tasks=False,
    has_listen=True,
    asks_in_results=True,
    tells_root_changes=False,
    has_elicitation_ids=False,
    cancelled_by_close=True,
    mirrors_headers=True,
    polls_streams=False,
    typed_results=True,
    has_cache_hints=True,
    names_server=True,
    structures_any_json=True,
    has_not_found_code=False,
    reserves_error_codes=True,
)

DIALECTS: Final[Mapping[str, Dialect]] = {
    "2024-11-05": _2024_11_05,
    "2025-03-26": _2025_03_26,
    "2025-06-18": _2025_06_18,
    "2025-11-25": _2025_11_25,
    "2026-07-28": _2026_07_28,
}
"""The dialects by the name of their revision on the wire; `Revision.dialect` is the way to them."""
