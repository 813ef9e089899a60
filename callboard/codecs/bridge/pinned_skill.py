"""What a skill is pinned by: the digest of its entry, and the files that it lists."""

import re
from collections.abc import Sequence
from typing import Final

import attrs
import msgspec
from msgspec import Raw

from callboard.codecs.bridge.definitions import digest_of, unmarked
from callboard.codecs.bridge.names import MAX_READABLE
from callboard.codecs.bridge.skills import MAX_VALUES
from callboard.codecs.json_scan import check_modelled
from callboard.codecs.members import Members, read_members
from callboard.codecs.skills import MANIFEST, BadSkill, SkillEntry, SkillFile, read_entry
from callboard.codecs.skills import digest_of as digest_of_file
from callboard.errors import PeerError

MAX_ENTRY: Final = 256 * 1024
"""Largest entry of a pinned skill, in bytes: 512 files with long names have half of that. It is kept."""

_MANIFEST_URI: Final = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*://[!-~]*/{re.escape(MANIFEST)}")
_rows: Final = msgspec.json.Decoder(list[Raw]).decode
_NO_META: Final = b"{}"


class _Row(msgspec.Struct):
    uri: str
    digest: str = ""
    size: int = 0


_files: Final = msgspec.json.Decoder(list[_Row]).decode
_row: Final = msgspec.json.Decoder(_Row).decode


@attrs.frozen
class PinnedSkill:
    """An entry of a pinned server. Its files are kept as bytes: taken apart, they take ten times as much."""

    uri: str
    digest: str
    resources: bytes

    @property
    def folder(self) -> str:
        return self.uri.removesuffix(f"/{MANIFEST}")

    @property
    def size(self) -> int:
        """Bytes that it takes up."""
        return len(self.resources) + len(self.uri)

    def file(self, uri: str) -> SkillFile | None:
        """The file that the entry lists; None if they are dynamic. Raises `BadSkill` for one that it does not list."""
        return self._entry.file(uri)

    def paths(self) -> frozenset[str] | None:
        """The URIs of its files and folders; None if the files are dynamic."""
        files = self._entry.files
        if files is None:
            return None
        found = {self.folder, *files}
        for uri in files:
            while (uri := uri.rpartition("/")[0]) not in found:
                found.add(uri)
        return frozenset(found)

    @property
    def _entry(self) -> SkillEntry:
        name = {"name": self.folder.rpartition("/")[2]}
        if self.resources[:1] != b"[":
            return SkillEntry(self.uri, name, None)
        files = {row.uri: SkillFile(row.uri, row.digest, row.size) for row in _files(self.resources)}
        return SkillEntry(self.uri, name, files)


def is_skill(key: str) -> bool:
    """Whether it is a skill that is pinned by this name, and no tool."""
    return _MANIFEST_URI.fullmatch(key) is not None


def read_pinned(entry: Raw | bytes) -> PinnedSkill:
    """An entry with its digest: over all that the server says of the skill. The order of its files does not count.

    Raises `BadSkill` or `PeerError` for one that breaks a rule, or that two parsers could read differently.
    """
    if len(entry) > MAX_ENTRY:
        raise BadSkill(f"an entry is larger than {MAX_ENTRY} bytes")
    check_modelled({"skill": entry}, most=MAX_VALUES)
    try:
        found = read_entry(msgspec.json.decode(entry))
    except (msgspec.MsgspecError, RecursionError):
        raise BadSkill("an entry cannot be read") from None
    if len(found.uri) > MAX_READABLE or not is_skill(found.uri):
        raise BadSkill(f"{found.uri[:200]}: is no URI of a skill that can be pinned")
    members = read_members(entry)
    said: dict[str, Raw] = {**members, "resources": _sorted(members["resources"])}
    if "_meta" in said and bytes(unmarked(said["_meta"])) == _NO_META:
        del said["_meta"]
    return PinnedSkill(found.uri, digest_of(said), bytes(members["resources"]))


def read_each(entries: Sequence[Raw]) -> list[PinnedSkill | None]:
    """The same of many; None for one that cannot be pinned, and for a URI that stands for two different skills."""
    found = [_read_or_none(entry) for entry in entries]
    digests: dict[str, str] = {}
    twins = {one.uri for one in found if one is not None and digests.setdefault(one.uri, one.digest) != one.digest}
    return [None if one is None or one.uri in twins else one for one in found]


def entries_of(result: Members) -> list[Raw]:
    """The entries of a page, each as bytes of its own; none if it is not one."""
    found = result.get("skills")
    if found is None:
        return []
    try:
        check_modelled({"skills": found}, most=MAX_VALUES)
        return [Raw(bytes(one)) for one in _rows(found)]
    except (PeerError, msgspec.MsgspecError):
        return []


def _read_or_none(entry: Raw) -> PinnedSkill | None:
    try:
        return read_pinned(entry)
    except (BadSkill, PeerError):
        return None


def digest_of_read(result: Members, uri: str, file: SkillFile | None) -> str | None:
    """The digest of what was read of a skill, if that is not the *file* at *uri*; None if it is."""
    try:
        (content,) = _rows(result["contents"])
        data = _bytes_of(read_members(content), uri)
        if file is not None:
            file.check(data)
    except BadSkill:
        return digest_of_file(data)
    except (PeerError, msgspec.MsgspecError, ValueError):
        return digest_of_file(bytes(result["contents"]))
    return None


def _bytes_of(content: Members, uri: str) -> bytes:
    """The bytes of a file. Raises ValueError or `msgspec.MsgspecError` for one with another URI, or with both a text
    and a blob: which of them counts is not known."""
    if msgspec.json.decode(content.get("uri", b'""'), type=str) != uri or ("text" in content) == ("blob" in content):
        raise ValueError("not one file")
    if "text" in content:
        return msgspec.json.decode(content["text"], type=str).encode()
    return msgspec.json.decode(content["blob"], type=bytes)


def _sorted(rows: Raw) -> Raw:
    """Files by their URIs; as they are if they are dynamic. Each row stays the bytes it is: a key that stands twice
    must be noticed."""
    if bytes(memoryview(rows)[:1]) != b"[":
        return rows
    return Raw(b"[%b]" % b",".join(bytes(row) for row in sorted(_rows(rows), key=lambda row: _row(row).uri)))
