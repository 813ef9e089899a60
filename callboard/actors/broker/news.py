"""What backends tell the broker's control plane, and how they wait until it has taken that in."""

from typing import Final

import attrs

from callboard.supervisor import Ask

TAKEN_IN: Final = 10.0
"""Seconds in which the broker takes in what a backend lists, before requests go to it. It takes some milliseconds."""


@attrs.frozen
class Listed:
    """A backend has read its lists, and some are others than before. The lists are the backend's; this is a mark."""

    backend: str


@attrs.frozen
class StateChanged:
    """A backend is up, or is not any more."""

    backend: str


@attrs.frozen
class Flush(Ask[None]):
    """Answered when all that was told before is taken in."""
