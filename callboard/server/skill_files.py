"""Skills on the disk: folders with a SKILL.md, read and hashed, and an index of their directories."""

import mimetypes
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import attrs
import msgspec

from callboard.codecs.revisions import UNSET, Resource
from callboard.codecs.skills import (
    MANIFEST,
    MAX_FILES,
    MAX_SKILL,
    BadSkill,
    SkillEntry,
    SkillFile,
    digest_of,
    front_matter,
    skill_uri,
)
from callboard.errors import RequestFailed
from callboard.server.context import Context
from callboard.server.registry import ResourceEntry
from callboard.server.signature.signature import Signature

MAX_DEPTH: Final = 16
"""Deepest folder below the one that is offered. Nothing sensible comes near it."""

_LARGE: Final = 1024 * 1024
_LARGEST_TEXT: Final = 4 * 1024 * 1024  # what is larger is a blob: a message of more than 8 MiB must be plain

Stamp: TypeAlias = tuple[tuple[str, int, int], ...]
"""Path, time of change and size of each file."""


@attrs.frozen(eq=False, kw_only=True)
class OfferedSkill(ResourceEntry):
    """A skill of this server: its SKILL.md, as a resource, and its entry."""

    skill: SkillEntry


@attrs.frozen(eq=False)
class SkillSet:
    """Skills by the URIs of their SKILL.md, their other files, and what is in each directory."""

    skills: Mapping[str, OfferedSkill] = attrs.field(factory=dict)
    files: Mapping[str, ResourceEntry] = attrs.field(factory=dict)
    directories: Mapping[str, Mapping[str, ResourceEntry | None]] = attrs.field(init=False)
    """By the URI, which ends with a slash: the URIs in it, with their files; None for directories."""

    @directories.default
    def _directories(self) -> Mapping[str, Mapping[str, ResourceEntry | None]]:
        found: dict[str, dict[str, ResourceEntry | None]] = {}
        for uri, entry in {**self.skills, **self.files}.items():
            inner: ResourceEntry | None = entry
            while (above := uri.rpartition("/")[0]) != "skill:/":
                found.setdefault(f"{above}/", {}).setdefault(uri, inner)
                uri, inner = above, None
        return found

    def with_others(self, others: "SkillSet") -> "SkillSet":
        """Both. Raises ValueError for a skill that both have."""
        for uri in self.skills.keys() & others.skills.keys():
            raise ValueError(f"skill {uri!r} already exists")
        return SkillSet({**self.skills, **others.skills}, {**self.files, **others.files})


def read_folder(folder: str | Path, prefix: str = "") -> SkillSet:
    """The skills in *folder*, as `skill://PREFIX/...`. Raises `BadSkill`."""
    root = Path(folder).resolve()
    if not root.is_dir():
        raise BadSkill(f"{folder}: not a folder")
    above = tuple(filter(None, prefix.split("/")))
    skills, others = {}, {}
    for place in _folders(root):
        segments = (*above, *(place.relative_to(root).parts or (place.name,)))
        skill, files = _read_skill(root, place, segments)
        skills[skill.skill.uri] = skill
        others.update(files)
    return SkillSet(skills, others)


def stamp_of(folder: str | Path) -> Stamp:
    """Differs after a change of a file in *folder*."""
    found = []
    for place, _, files in os.walk(folder):
        for name in files:
            path = Path(place) / name
            try:
                stat = path.stat()
            except OSError:
                continue  # it is gone, or about to be replaced
            found.append((str(path), stat.st_mtime_ns, stat.st_size))
    return tuple(sorted(found))


def _folders(root: Path) -> Iterator[Path]:
    """The folders of skills at or below *root*, in order. What is inside of a skill belongs to it."""
    for place, folders, files in os.walk(root):
        if MANIFEST in files:
            folders.clear()
            yield Path(place)
        if len(Path(place).relative_to(root).parts) >= MAX_DEPTH:
            folders.clear()
        folders.sort()


def _read_skill(root: Path, place: Path, segments: tuple[str, ...]) -> tuple[OfferedSkill, dict[str, ResourceEntry]]:
    """The skill in the folder *place*, and its other files. Raises `BadSkill`."""
    found: dict[str, tuple[Path, SkillFile]] = {}
    left = MAX_SKILL
    for path in _files_of(place):
        if not _is_inside(path, root):
            raise BadSkill(f"{_printable(path)}: leads out of the folder, or nowhere, or has a name that is no text")
        if not path.is_file():
            raise BadSkill(f"{path}: not a file")
        with path.open("rb") as file:
            data = file.read(left + 1)
        left -= len(data)
        if left < 0 or len(found) == MAX_FILES:
            raise BadSkill(f"{place}: a skill has at most {MAX_FILES} files and {MAX_SKILL} bytes")
        uri = skill_uri((*segments, *path.relative_to(place).parts))
        found[uri] = path, SkillFile(uri, digest_of(data), len(data))
    manifest = skill_uri((*segments, MANIFEST))
    try:
        told = front_matter((place / MANIFEST).read_bytes())
    except BadSkill as error:
        raise BadSkill(f"{place / MANIFEST}: {error}") from None
    if told["name"] != place.name:
        raise BadSkill(f"{place / MANIFEST}: the name is {told['name']!r}, but the folder is {place.name!r}")
    entry = SkillEntry(manifest, told, {uri: one for uri, (_, one) in found.items()})
    path, listed = found.pop(manifest)
    read = _reader(path, listed)
    shown = Resource(
        uri=manifest, name=entry.name, description=entry.description, mime_type="text/markdown", size=listed.size
    )
    skill = OfferedSkill(function=read, signature=_signature(read), shown=shown, skill=entry)
    return skill, {uri: _other(path, one) for uri, (path, one) in found.items()}


def _is_inside(path: Path, root: Path) -> bool:
    """Whether a file is at or below *root* when links are followed, and has a name that a URI can hold."""
    try:
        str(path).encode()
        return path.resolve().is_relative_to(root)
    except (UnicodeEncodeError, OSError, RuntimeError):  # not UTF-8, or links that lead in a circle
        return False


def _printable(path: Path) -> str:
    return str(path).encode(errors="replace").decode()


def _files_of(place: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(place):
        for name in folders:
            if (Path(folder) / name).is_symlink():
                raise BadSkill(f"{Path(folder) / name}: a folder of a skill must not be a symbolic link")
        folders.sort()
        yield from (Path(folder) / name for name in sorted(files))


def _other(path: Path, listed: SkillFile) -> ResourceEntry:
    read = _reader(path, listed)
    guessed = mimetypes.guess_type(path.name)[0]
    kind = "text/markdown" if path.suffix == ".md" else UNSET if guessed is None else guessed
    shown = Resource(uri=listed.uri, name=path.name, mime_type=kind, size=listed.size)
    return ResourceEntry(function=read, signature=_signature(read), shown=shown)


def _signature(read: Callable[[], str | bytes]) -> Signature:
    return Signature.of(read, context_type=Context, name="read", output_schema=False)


def _reader(path: Path, listed: SkillFile) -> Callable[[], str | bytes]:
    """Reads a file anew each time. What is not what was hashed is not told: it might be anything by now."""

    def read() -> str | bytes:
        try:
            with path.open("rb") as file:
                data = file.read(listed.size + 1)
            listed.check(data)
        except (OSError, BadSkill):
            raise RequestFailed("the file has changed since the server has started") from None
        return _as_text(data)

    return read


def _as_text(data: bytes) -> str | bytes:
    """A text as such, unless it is very large, or large and JSON would make it longer than Base64 does."""
    if len(data) > _LARGEST_TEXT:
        return data
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    return data if len(data) > _LARGE and len(msgspec.json.encode(text)) > len(data) * 4 // 3 else text
