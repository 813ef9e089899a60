"""Skills: folders of instructions that servers offer as resources. Their front matter, names, digests and limits."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote, unquote

import attrs

from callboard.codecs.revisions import JSONObject
from callboard.codecs.yaml_core import read_yaml
from callboard.errors import CallboardError

ID: Final = "io.modelcontextprotocol/skills"
MANIFEST: Final = "SKILL.md"
DIRECTORY: Final = "inode/directory"
DYNAMIC: Final = "dynamic"

MAX_FILES: Final = 512
"""Most files of one skill. The specification's limit."""

MAX_SKILL: Final = 16 * 1024 * 1024
"""Most bytes of all files of one skill. The specification's limit."""

MAX_FRONT_MATTER: Final = 16 * 1024
"""Longest front matter, in bytes. It is a name and a few sentences; to parse more would hold up everything else."""

MAX_NESTING: Final = 32
"""Deepest nesting of the values in front matter. Nothing sensible comes near it."""

_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_FENCE: Final = re.compile(rb"^---[ \t]*\r?$", re.MULTILINE)


class BadSkill(CallboardError):
    """A skill is not what it must be, or not what its server says it is. It is not used."""


@attrs.frozen
class SkillFile:
    """A file of a skill, as its entry lists it."""

    uri: str
    digest: str
    size: int

    def check(self, data: bytes) -> None:
        """Raises `BadSkill` if *data* is not this file."""
        if len(data) != self.size:
            raise BadSkill(f"{self.uri[:200]}: {len(data)} bytes, but the skill lists {self.size}")
        if digest_of(data) != self.digest:
            raise BadSkill(f"{self.uri[:200]}: its digest is not the one that the skill lists")


@attrs.frozen
class SkillEntry:
    """A skill, as `skills/list` has it."""

    uri: str
    front_matter: JSONObject
    files: Mapping[str, SkillFile] | None
    """By URI. None: they are dynamic, and not listed."""

    @property
    def name(self) -> str:
        return str(self.front_matter["name"])

    @property
    def description(self) -> str:
        return str(self.front_matter["description"])

    def file(self, uri: str) -> SkillFile | None:
        """The entry of a file; None if the files are dynamic. Raises `BadSkill` for a file that is not listed."""
        if self.files is None:
            if not uri.startswith(self.uri.removesuffix(MANIFEST)) or _climbs(uri):
                raise BadSkill(f"{uri[:200]}: not inside the skill {self.name}")
            return None
        if uri not in self.files:
            raise BadSkill(f"{uri[:200]}: not listed by the skill {self.name}")
        return self.files[uri]

    def check_manifest(self, data: bytes) -> None:
        """Raises `BadSkill` unless *data* is the SKILL.md of this entry: digest, size and front matter."""
        listed = self.file(self.uri)
        if listed is not None:
            listed.check(data)
        if front_matter(data) != self.front_matter:
            raise BadSkill(f"{self.uri[:200]}: its front matter is not the one that the server lists")

    def shown(self) -> JSONObject:
        """The entry as it is written."""
        files = DYNAMIC if self.files is None else [attrs.asdict(one) for one in self.files.values()]
        return {"uri": self.uri, "frontmatter": self.front_matter, "resources": files}


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def check_name(name: object) -> str:
    """Raises `BadSkill` for a name that is none."""
    if not isinstance(name, str) or len(name) > 64 or _NAME.fullmatch(name) is None:
        raise BadSkill(f"invalid name {str(name)[:100]!r}: expected 1 to 64 of a-z 0-9 -, no doubled or outer hyphens")
    return name


def skill_uri(segments: Sequence[str]) -> str:
    """The URI of a file or folder of a skill, by the segments of its path."""
    return "skill://" + "/".join(quote(one, safe="!$&'()*+,;=:@") for one in segments)


def read_entry(found: object) -> SkillEntry:
    """Read an entry of a server. Raises `BadSkill` if it breaks a rule: nothing of it is to be trusted then."""
    if not isinstance(found, dict) or not isinstance(uri := found.get("uri"), str):
        raise BadSkill("an entry of a skill has no uri")
    told = found.get("frontmatter")
    if not isinstance(told, dict) or not isinstance(told.get("description"), str):
        raise BadSkill(f"{uri[:200]}: no front matter with a description")
    name = check_name(told.get("name"))
    if not uri.endswith(f"/{name}/{MANIFEST}") or _climbs(uri):
        raise BadSkill(f"{uri[:200]}: expected a URI that ends with /{name}/{MANIFEST}")
    listed = found.get("resources")
    if listed == DYNAMIC:
        return SkillEntry(uri, told, None)
    if not isinstance(listed, list) or len(listed) > MAX_FILES:
        raise BadSkill(f"{uri[:200]}: resources must be {DYNAMIC!r}, or at most {MAX_FILES} files")
    files = [_read_file(uri, one) for one in listed]
    by_uri = {one.uri: one for one in files}
    if uri not in by_uri or len(by_uri) < len(files):
        raise BadSkill(f"{uri[:200]}: resources must have every file once, {MANIFEST} included")
    if sum(one.size for one in files) > MAX_SKILL:
        raise BadSkill(f"{uri[:200]}: more than {MAX_SKILL} bytes")
    return SkillEntry(uri, told, by_uri)


def _read_file(skill: str, found: object) -> SkillFile:
    match found:
        case {"uri": str(uri), "digest": str(digest), "size": int(size)} if _is_size(size) and _DIGEST.fullmatch(
            digest
        ):
            if uri.startswith(skill.removesuffix(MANIFEST)) and not _climbs(uri):
                return SkillFile(uri, digest, size)
    raise BadSkill(f"{skill[:200]}: a file without a URI inside the skill, a sha256 digest, or a size")


def _climbs(uri: str) -> bool:
    """Whether a segment of a URI leads upwards, also in the form that a server may decode."""
    return ".." in (text := unquote(uri)) and ".." in text.split("/")


def _is_size(size: int) -> bool:
    return size >= 0 and size is not True and size is not False


def front_matter(data: bytes) -> JSONObject:
    """The YAML between the first two lines of dashes of a SKILL.md. Raises `BadSkill` if it has none that is valid."""
    opening = _FENCE.match(data)
    closing = None if opening is None else _FENCE.search(data, opening.end(), opening.end() + MAX_FRONT_MATTER)
    if opening is None or closing is None:
        raise BadSkill(f"{MANIFEST} must begin with front matter of at most {MAX_FRONT_MATTER} bytes between two ---")
    try:
        text = data[opening.end() : closing.start()].decode()
        value = read_yaml(text, MAX_NESTING)
    except ValueError as error:
        raise BadSkill(f"invalid front matter: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(value, dict) or not isinstance(value.get("description"), str) or not value["description"]:
        raise BadSkill("front matter must have a name and a description")
    check_name(value.get("name"))
    return value
