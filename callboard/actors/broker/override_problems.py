"""Overrides that come to nothing: of a tool that a server does not have, or that cannot be changed so."""

from typing import Final

from callboard.actors.broker.listing import BackendLists
from callboard.codecs.bridge.definitions import PROMPTS, TOOLS
from callboard.codecs.bridge.overrides import unused
from callboard.supervisor import get_logger

log = get_logger("callboard.broker")

MOST_TOLD: Final = 16
"""Problems of one server that the operator is told at once."""


def override_problems(backend: str, listings: BackendLists) -> list[str]:
    """Each in a sentence: tools that are withheld, and overrides of what there is not."""
    if not listings.overrides:
        return []
    tools, prompts = (listings.lists[kind.member].definitions for kind in (TOOLS, PROMPTS))
    found = [f"{one.name} is withheld: {one.withheld}" for one in (*tools, *prompts) if one.withheld]
    found += [f"{backend} has no {name[:128]}, for which there is an override" for name in _unused(listings)]
    return found[:MOST_TOLD]


def warn_unused(backend: str, listings: BackendLists) -> None:
    """Log overrides of what the server does not list."""
    if names := _unused(listings):
        log.warning("override_unused", backend=backend, names=names[:MOST_TOLD])


def _unused(listings: BackendLists) -> list[str]:
    if not listings.overrides or not (listings.has_read(TOOLS) and listings.has_read(PROMPTS)):
        return []
    tools, prompts = ([one.name for one in listings.lists[kind.member].definitions] for kind in (TOOLS, PROMPTS))
    return unused(listings.overrides, tools, prompts)
