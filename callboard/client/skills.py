"""Skills of a server: listed without reading them, loaded on demand, and used only if they are what was listed."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import attrs
import msgspec
import trio
from msgspec import UNSET

from callboard.actors.client.conversation import Conversation, Patience
from callboard.client.cache import MAX_LIST, MAX_PAGES
from callboard.codecs.envelope import ErrorResponse
from callboard.codecs.revisions import ReadResourceRequestParams, ReadResourceResult, TextResourceContents
from callboard.codecs.skills import MAX_SKILL, BadSkill, SkillEntry, read_entry
from callboard.errors import BadAnswer, ServerRefused
from callboard.supervisor import get_logger

log = get_logger("callboard.client")

MAX_SKILLS: Final = 10_000
"""Most skills of one server: no model chooses among more."""


@attrs.frozen(eq=False)
class LoadedSkill:
    """A skill whose SKILL.md was read, and is what its entry says."""

    entry: SkillEntry
    text: str
    _conversation: Conversation = attrs.field(repr=False)
    _patience: Patience = attrs.field(repr=False)

    async def read(self, uri: str) -> bytes:
        """Read a file of the skill. Raises `BadSkill` for one that is not listed, or is not what was listed."""
        listed = self.entry.file(uri)
        data = await _read(self._conversation, uri, self._patience)
        if uri == self.entry.uri:
            await _check_manifest(self.entry, data)
        elif listed is not None:
            listed.check(data)
        return data


async def listed_skills(conversation: Conversation, patience: Patience) -> Sequence[SkillEntry]:
    """All skills, page by page. An entry that breaks a rule is left out, and logged."""
    found: list[SkillEntry] = []
    cursor: str | None = None
    size = 0
    for _ in range(MAX_PAGES):
        asked = {} if cursor is None else {"cursor": cursor}
        page, length = await _ask(conversation, "skills/list", asked, patience)
        size += length
        entries, cursor = page.get("skills"), page.get("nextCursor")
        if not isinstance(entries, list) or not isinstance(cursor, str | None):
            raise BadAnswer("skills/list: expected a list of skills, and a text as cursor")
        for entry in entries:
            try:
                found.append(read_entry(entry))
            except BadSkill as error:
                log.warning("skill_left_out", why=str(error))
        if size > MAX_LIST or len(found) > MAX_SKILLS:
            raise BadAnswer(f"skills/list: more than {MAX_SKILLS} skills, or {MAX_LIST} bytes")
        if cursor is None:
            return found
    raise BadAnswer(f"skills/list: more than {MAX_PAGES} pages")


async def load_skill(conversation: Conversation, of: SkillEntry | str, patience: Patience) -> LoadedSkill:
    """Read a SKILL.md and see that it is the one of the entry. Raises `BadSkill`."""
    if isinstance(of, str):
        found, _ = await _ask(conversation, "skills/get", {"uri": of}, patience)
        entry = read_entry(found.get("skill"))
        if entry.uri != of:
            raise BadSkill(f"{of[:200]}: the server answered with another skill")
    else:
        entry = of
    data = await _read(conversation, entry.uri, patience)
    await _check_manifest(entry, data)
    try:
        return LoadedSkill(entry, data.decode(), conversation, patience)
    except UnicodeDecodeError:
        raise BadSkill(f"{entry.uri[:200]}: not a text") from None


async def _check_manifest(entry: SkillEntry, data: bytes) -> None:
    """In a thread: front matter that is made for it takes a quarter of a second to read."""
    await trio.to_thread.run_sync(entry.check_manifest, data)


async def _ask(
    conversation: Conversation, method: str, params: Mapping[str, str], patience: Patience
) -> tuple[dict[str, Any], int]:
    """The result of a method of the extension, and how many bytes it has."""
    answer = await conversation.send(method, {**params, "_meta": dict(conversation.said())}, patience=patience)
    if isinstance(answer, ErrorResponse):
        raise ServerRefused(answer.code, answer.message, None if answer.data is UNSET else answer.data)
    size = sum(len(bytes(value)) for value in answer.result.values())
    return {key: msgspec.json.decode(value) for key, value in answer.result.items()}, size


async def _read(conversation: Conversation, uri: str, patience: Patience) -> bytes:
    params = ReadResourceRequestParams(uri=uri)
    result = cast("ReadResourceResult", await conversation.request("resources/read", params, patience=patience))
    contents = [one for one in result.contents if one.uri == uri]
    if len(contents) != 1:
        raise BadSkill(f"{uri[:200]}: the server answered with something else")
    one = contents[0]
    if isinstance(one, TextResourceContents):
        data = one.text.encode("utf-8", "surrogatepass")
    else:
        try:
            data = base64.b64decode(one.blob, validate=True)
        except binascii.Error:
            raise BadSkill(f"{uri[:200]}: invalid Base64") from None
    if len(data) > MAX_SKILL:
        raise BadSkill(f"{uri[:200]}: more than {MAX_SKILL} bytes")
    return data
