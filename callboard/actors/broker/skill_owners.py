"""Skills that are shown with the name of their server although its other names stay as they are.

A server without a prefix shows its `skill://` URIs as they are, but for skills that another one has, too, and for those
whose URIs begin with the name of another server: such a URI is that server's, or could be taken for its.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Final
from urllib.parse import unquote

import attrs

from callboard.codecs.bridge.apps import ShownUri
from callboard.codecs.bridge.skills import SKILL_SCHEME, skill_address

MAX_FOLDERS: Final = 32
"""Folders above a file that are looked at: no skill is as deep."""

NO_FOLDERS: Final[Mapping[str, frozenset[str]]] = {}


@attrs.frozen
class SkillOwners:
    """The folders of such skills, as URIs at their servers."""

    folders: Mapping[str, frozenset[str]] = NO_FOLDERS

    @classmethod
    def of(cls, listed: Iterable[tuple[str, str]], has_prefix: Callable[[str], bool]) -> "SkillOwners":
        """Made of the URIs of SKILL.md that are shown in another form, each with its server."""
        found: dict[str, set[str]] = {}
        for backend, uri in listed:
            if not has_prefix(backend):
                found.setdefault(backend, set()).add(uri.rpartition("/")[0])
        return cls({backend: frozenset(uris) for backend, uris in found.items()})

    def shown_by(self, backend: str) -> ShownUri | None:
        """How clients know the URIs of *backend*; None if each is shown as it is."""
        folders = self.folders.get(backend)
        return None if folders is None else partial(_shown, backend, folders)


def names_another(backend: str, uri: str, backends: Collection[str]) -> bool:
    """Whether a `skill://` URI of *backend* begins with the name of another server."""
    named = unquote(uri.removeprefix(SKILL_SCHEME).partition("/")[0])
    return named != backend and named in backends


def folders_of(uri: str) -> Iterator[str]:
    """A `skill://` URI and the folders above it, which may be those of a skill."""
    for _ in range(MAX_FOLDERS):
        if not uri.startswith(SKILL_SCHEME) or uri == SKILL_SCHEME:
            return
        yield uri
        uri = uri.rpartition("/")[0]


def _shown(backend: str, folders: Collection[str], uri: str) -> str:
    return skill_address(backend, uri) if any(one in folders for one in folders_of(uri)) else uri
