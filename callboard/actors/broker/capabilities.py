"""What a broker says of itself: the capabilities and the instructions of all its backends."""

from typing import Any, Final

import attrs
from msgspec import UNSET

from callboard.actors.broker.backend import Backend
from callboard.codecs.bridge.tasks import EXTENSION, has_task_extension, runs_tasks
from callboard.codecs.bridge.transparent import Transparent
from callboard.codecs.revisions import (
    JSONObject,
    ListChangedCapability,
    ResourcesCapability,
    ServerCapabilities,
    ServerTaskRequests,
    ServerTasksCapability,
    ToolTaskRequests,
    UnsetType,
    declares,
)
from callboard.codecs.skills import ID as SKILLS

MAX_INSTRUCTIONS: Final = 16_384
"""Characters of all backends' instructions together."""


def capabilities_of(backends: list[Backend], transparent: Transparent) -> ServerCapabilities:
    """Capabilities of at least one backend. A backend that was never up may have any but extensions."""
    known = [backend.agreed for backend in backends if backend.agreed is not None]
    is_known = len(known) == len(backends) and bool(backends)

    def can(path: str) -> bool:
        return not is_known or any(declares(agreed.capabilities, path) for agreed in known)

    def listed(name: str) -> Any:
        return ListChangedCapability(list_changed=True) if can(name) else UNSET

    # A backend of a revision without a capability for completion may have it all the same.
    completes = can("completions") or not all(agreed.revision.dialect.declares_completions for agreed in known)
    crossing: dict[str, Any] = transparent.merged([agreed.capabilities for agreed in known])
    return ServerCapabilities(
        tools=listed("tools"),
        prompts=listed("prompts"),
        resources=ResourcesCapability(list_changed=True, subscribe=can("resources.subscribe"))
        if can("resources")
        else UNSET,
        completions={} if completes else UNSET,
        logging={} if can("logging") else UNSET,
        tasks=_tasks(
            [agreed.capabilities for agreed in known if runs_tasks(agreed.revision, agreed.capabilities)],
            is_own=any(has_task_extension(agreed.revision, agreed.capabilities) for agreed in known),
        ),
        extensions=_extensions(crossing.get("extensions", {}), [agreed.capabilities for agreed in known]),
        experimental=crossing.get("experimental", UNSET),
    )


def with_tasks(capabilities: ServerCapabilities) -> ServerCapabilities:
    """*capabilities* as modern clients are told them, with the extension of tasks."""
    known = {} if capabilities.extensions is UNSET else capabilities.extensions
    return attrs.evolve(capabilities, extensions={**known, EXTENSION: {}})


def _extensions(crossing: dict[str, JSONObject], known: list[ServerCapabilities]) -> dict[str, JSONObject] | UnsetType:
    """Those that cross, and skills, of which the broker makes one list."""
    said = [one.extensions[SKILLS] for one in known if one.extensions is not UNSET and SKILLS in one.extensions]
    if said:
        reads = any(isinstance(one, dict) and one.get("directoryRead") is True for one in said)
        crossing = {**crossing, SKILLS: {"directoryRead": True} if reads else {}}
    return crossing or UNSET


def _tasks(running: list[ServerCapabilities], *, is_own: bool) -> ServerTasksCapability | UnsetType:
    """Only of backends that are known: a client that asks for a task must get one. Lists of tasks are never shown.
    *is_own*: whether the broker has tasks for backends that have them otherwise."""
    if not running and not is_own:
        return UNSET
    cancel: Any = {} if is_own or any(declares(one, "tasks.cancel") for one in running) else UNSET
    return ServerTasksCapability(cancel=cancel, requests=ServerTaskRequests(tools=ToolTaskRequests(call={})))


def instructions_of(backends: list[Backend]) -> str | None:
    """The instructions of the backends; of several, each with its name."""
    said = {
        backend.name: backend.agreed.instructions
        for backend in backends
        if backend.agreed is not None and backend.agreed.instructions
    }
    if len(backends) > 1:
        said = {name: f"{name}: {text}\n\n" for name, text in said.items()}
    left, kept = MAX_INSTRUCTIONS, {}
    for rank, name in enumerate(sorted(said, key=lambda name: len(said[name]))):
        # The shortest first: one that says much gets what the others leave, and takes nothing from them.
        kept[name] = said[name][: left // (len(said) - rank)]
        left -= len(kept[name])
    return "".join(kept[name] for name in said).rstrip("\n") or None
