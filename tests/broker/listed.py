"""The lists of a backend as a broker has read them: each definition has passed the guard."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from callboard.codecs.bridge.definitions import KINDS
from callboard.codecs.bridge.guard import Definition, examine, part_twins

_KINDS: Final = {kind.member: kind for kind in KINDS}


def listing(**lists: Sequence[Mapping[str, Any] | bytes]) -> dict[str, list[Definition]]:
    """Definitions by the member of their list; as JSON where the spelling matters."""
    return {member: _examined(member, several) for member, several in lists.items()}


def _examined(member: str, several: Sequence[Mapping[str, Any] | bytes]) -> list[Definition]:
    written = [one if isinstance(one, bytes) else msgspec.json.encode(one) for one in several]
    kept, _ = part_twins([examine(_KINDS[member], data) for data in written])
    return kept
