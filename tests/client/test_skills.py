"""A client lists skills without reading them, and uses only what is as it was listed."""

from pathlib import Path
from typing import Any

import attrs
import pytest

from callboard import Server
from callboard.client import connect
from callboard.codecs.revisions import Revision
from callboard.codecs.skills import BadSkill, SkillFile, read_entry
from callboard.errors import ServerRefused
from callboard.server import Skills

URI = "skill://pdf/SKILL.md"
TEXT = "---\nname: pdf\ndescription: d\n---\n# PDF\n"


@pytest.fixture
def server(tmp_path: Path) -> Server:
    (tmp_path / "pdf").mkdir()
    (tmp_path / "pdf" / "SKILL.md").write_text(TEXT)
    (tmp_path / "pdf" / "logo.bin").write_bytes(b"\xff\x00")
    return Server("s", extensions=[Skills(tmp_path)])


@pytest.mark.parametrize("revision", list(Revision))
async def test_a_skill_is_listed_loaded_and_its_files_are_read(server: Server, revision: Revision) -> None:
    async with connect(server, revision=revision) as client:
        (entry,) = await client.skills()
        for of in (entry, URI):
            skill = await client.skill(of)
            assert skill.text == TEXT
            assert await skill.read("skill://pdf/logo.bin") == b"\xff\x00"
            with pytest.raises(BadSkill, match="not listed"):
                await skill.read("skill://pdf/other")
        with pytest.raises(ServerRefused, match="Unknown skill"):
            await client.skill("skill://other/SKILL.md")


async def test_a_skill_that_is_not_what_was_listed_is_not_used(server: Server) -> None:
    async with connect(server) as client:
        (entry,) = await client.skills()
        files = dict(entry.files or {})
        right = files[URI]
        for wrong, why in (
            (attrs.evolve(right, size=1), "bytes"),
            (attrs.evolve(right, digest=f"sha256:{'0' * 64}"), "digest"),
        ):
            with pytest.raises(BadSkill, match=why):
                await client.skill(attrs.evolve(entry, files={**files, URI: wrong}))
        with pytest.raises(BadSkill, match="front matter"):
            await client.skill(attrs.evolve(entry, front_matter={"name": "pdf", "description": "other"}))


ENTRY: dict[str, Any] = {
    "uri": URI,
    "frontmatter": {"name": "pdf", "description": "d"},
    "resources": [attrs.asdict(SkillFile(URI, f"sha256:{'0' * 64}", 1))],
}


@pytest.mark.parametrize(
    "change",
    [
        {"uri": "skill://other/SKILL.md"},
        {"frontmatter": {"name": "pdf"}},
        {"resources": []},
        {"resources": ENTRY["resources"] * 2},
        {"resources": [*ENTRY["resources"], {**ENTRY["resources"][0], "uri": "skill://pdf/../x"}]},
        {"resources": [*ENTRY["resources"], {**ENTRY["resources"][0], "uri": "file:///etc/passwd"}]},
        {"resources": [{**ENTRY["resources"][0], "digest": "md5:0"}]},
        {"resources": [*ENTRY["resources"], {**ENTRY["resources"][0], "uri": "skill://pdf/%2e%2E/x"}]},
        {"resources": [{**ENTRY["resources"][0], "size": 2**40}]},
        {"resources": [{**ENTRY["resources"][0], "size": True}]},
        {"uri": "skill://a/../pdf/SKILL.md", "resources": "dynamic"},
    ],
)
def test_an_entry_that_breaks_a_rule_is_refused(change: dict[str, Any]) -> None:
    assert read_entry(ENTRY).name == "pdf"
    with pytest.raises(BadSkill):
        read_entry({**ENTRY, **change})


def test_files_of_a_dynamic_skill_must_still_be_inside_of_it() -> None:
    entry = read_entry({**ENTRY, "resources": "dynamic"})
    assert entry.file("skill://pdf/anything") is None
    with pytest.raises(BadSkill, match="not inside"):
        entry.file("skill://other/anything")
    with pytest.raises(BadSkill, match="not inside"):
        entry.file("skill://pdf/a/%2e%2e/%2e%2e/other/SKILL.md")
