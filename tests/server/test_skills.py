"""A server offers a folder of skills: listed, read, with digests, and nothing outside of the folder."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import trio
from trio.testing import wait_all_tasks_blocked

from callboard import Server
from callboard.actors.rules import AccessRules, Rule
from callboard.codecs.revisions import Revision
from callboard.codecs.skills import MAX_FILES, BadSkill
from callboard.server import Skills
from callboard.testing import Refusal, connect
from tests.broker.front import peer
from tests.broker.rules_stage import ACME, ALICE, BOB, raw_answer

PDF = "---\nname: pdf\ndescription: Works with PDF files.\nmetadata:\n  since: 2026-01-02\n  draft: yes\n---\n# PDF\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "skills"
    write(root / "pdf" / "SKILL.md", PDF)
    write(root / "pdf" / "references" / "FORMS.md", "forms")
    (root / "pdf" / "logo.bin").write_bytes(b"\xff\x00")
    write(root / "team" / "notes" / "SKILL.md", "---\nname: notes\ndescription: d\n---\n")
    return root


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def listed(path: Path, uri: str) -> dict[str, Any]:
    data = path.read_bytes()
    return {"uri": uri, "digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)}


@pytest.mark.parametrize("revision", list(Revision))
async def test_skills_are_declared_listed_and_read(revision: Revision, folder: Path) -> None:
    async with connect(Server("s", extensions=[Skills(folder)]), revision) as client:
        told = client.agreed.get("capabilities") or (await client.request("server/discover"))["capabilities"]
        assert told["extensions"] == {"io.modelcontextprotocol/skills": {"directoryRead": True}}
        assert "resources" in told
        found = await client.request("skills/list")
        pdf, notes = found["skills"]
        one = await client.request("skills/get", uri="skill://pdf/SKILL.md")
        manifest = await client.request("resources/read", uri="skill://pdf/SKILL.md")
        forms = await client.request("resources/read", uri="skill://pdf/references/FORMS.md")
        logo = await client.request("resources/read", uri="skill://pdf/logo.bin")
        resources = (await client.request("resources/list"))["resources"]
    assert pdf == one["skill"]
    assert pdf["frontmatter"] == {
        "name": "pdf",
        "description": "Works with PDF files.",
        "metadata": {"since": "2026-01-02", "draft": "yes"},
    }
    assert pdf["resources"] == [
        listed(folder / "pdf" / "SKILL.md", "skill://pdf/SKILL.md"),
        listed(folder / "pdf" / "logo.bin", "skill://pdf/logo.bin"),
        listed(folder / "pdf" / "references" / "FORMS.md", "skill://pdf/references/FORMS.md"),
    ]
    assert notes["uri"] == "skill://team/notes/SKILL.md"
    for result in (found, one):
        assert ("ttlMs" in result, "cacheScope" in result) == (revision.dialect.typed_results,) * 2
    assert manifest["contents"][0]["text"] == PDF
    assert manifest["contents"][0]["mimeType"] == "text/markdown"
    assert forms["contents"][0]["text"] == "forms"
    assert logo["contents"][0]["blob"] == "/wA="
    assert [(row["uri"], row["name"], row["description"]) for row in resources] == [
        ("skill://pdf/SKILL.md", "pdf", "Works with PDF files."),
        ("skill://team/notes/SKILL.md", "notes", "d"),
    ]


async def test_directories_are_read_and_files_are_none(folder: Path) -> None:
    server = Server("s")
    server.skills(folder, prefix="acme")
    async with connect(server) as client:
        top = await client.request("resources/directory/read", uri="skill://acme/pdf")
        assert [(row["uri"], row["mimeType"]) for row in top["resources"]] == [
            ("skill://acme/pdf/SKILL.md", "text/markdown"),
            ("skill://acme/pdf/logo.bin", "application/octet-stream"),
            ("skill://acme/pdf/references", "inode/directory"),
        ]
        below = await client.request("resources/directory/read", uri="skill://acme/pdf/references/")
        assert [row["name"] for row in below["resources"]] == ["FORMS.md"]
        for uri in ("skill://acme/pdf/SKILL.md", "skill://acme/pdf/none", "skill://acme/pdf/../pdf"):
            with pytest.raises(Refusal, match="-32602"):
                await client.request("resources/directory/read", uri=uri)


async def test_long_lists_and_directories_come_in_pages(tmp_path: Path) -> None:
    rows: list[tuple[str, str, dict[str, Any], int]] = [
        ("skills/list", "skills", {}, 45),
        ("resources/directory/read", "resources", {"uri": "skill://s0/"}, 151),
    ]
    for number in range(45):
        write(tmp_path / f"s{number}" / "SKILL.md", f"---\nname: s{number}\ndescription: d\n---\n")
    for number in range(150):
        write(tmp_path / "s0" / f"{number}.txt", "")
    async with connect(Server("s", extensions=[Skills(tmp_path)])) as client:
        for method, key, uri, count in rows:
            page = await client.request(method, cursor=None, **uri)
            found = [row["uri"] for row in page[key]]
            while "nextCursor" in page:
                page = await client.request(method, cursor=page["nextCursor"], **uri)
                found += [row["uri"] for row in page[key]]
            assert len(found) == len(set(found)) == count
            with pytest.raises(Refusal, match="-32602"):
                await client.request(method, cursor="x", **uri)


async def test_what_is_no_skill_and_what_is_outside_is_refused(folder: Path) -> None:
    (folder.parent / "secret").write_text("secret")
    async with connect(Server("s", extensions=[Skills(folder)])) as client:
        for uri in ("skill://pdf", "skill://pdf/logo.bin", "skill://none/SKILL.md"):
            with pytest.raises(Refusal, match="-32602"):
                await client.request("skills/get", uri=uri)
        wrong: list[dict[str, Any]] = [{}, {"uri": 1}]
        for params in wrong:
            with pytest.raises(Refusal, match="-32602"):
                await client.request("skills/get", **params)
        for uri in ("skill://pdf/../../secret", "skill://pdf/%2e%2e/%2e%2e/secret", "skill://pdf/..%2f..%2fsecret"):
            with pytest.raises(Refusal, match=r"-32602"):
                await client.request("resources/read", uri=uri)


async def test_a_file_that_has_changed_since_is_not_told(folder: Path) -> None:
    async with connect(Server("s", extensions=[Skills(folder)])) as client:
        (folder / "pdf" / "references" / "FORMS.md").write_text("other")
        with pytest.raises(Refusal, match="has changed"):
            await client.request("resources/read", uri="skill://pdf/references/FORMS.md")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("# no front matter", "begin with front matter"),
        ("---\nname: other\ndescription: d\n---\n", "folder"),
        ("---\nname: x--y\ndescription: d\n---\n", "hyphens"),
        ("---\nname: pdf\n---\n", "description"),
        ("---\nname: pdf\nname: pdf\ndescription: d\n---\n", "twice"),
        ("---\nname: pdf\ndescription: d\na: &a [1]\nb: *a\n---\n", "aliases"),
        ("---\nname: pdf\ndescription: d\na: " + "[" * 5000 + "\n---\n", "nested"),
        ("---\nname: pdf\ndescription: !!python/name:os.system d\n---\n", "tag"),
        ("---\nname: pdf\ndescription: d\na: !!python/object/apply:os.system [ls]\n---\n", "tag"),
        ("---\nname: pdf\ndescription: d\na: !!set {a}\n---\n", "tag"),
        ("---\nname: pdf\ndescription: d\na: 1e999\n---\n", "too large"),
        ("---\nname: pdf\ndescription: d\na: 0x" + "f" * 9_000 + "\n---\n", "too large"),
        ('---\nname: pdf\ndescription: "\\ud800"\n---\n', "surrogates"),
        ('---\nname: pdf\ndescription: d\n"\\ud800": 1\n---\n', "surrogates"),
        ("---\nname: pdf\ndescription: " + "d" * 20_000 + "\n---\n", "at most"),
    ],
)
def test_a_skill_that_breaks_a_rule_is_refused(folder: Path, text: str, why: str) -> None:
    write(folder / "pdf" / "SKILL.md", text)
    with pytest.raises(BadSkill, match=why):
        Skills(folder)


def test_links_out_of_the_folder_and_too_many_files_are_refused(folder: Path) -> None:
    link = folder / "pdf" / "link"
    link.symlink_to("/etc/hostname")
    with pytest.raises(BadSkill, match="leads out"):
        Skills(folder)
    link.unlink()
    link.symlink_to("/etc")
    with pytest.raises(BadSkill, match="symbolic link"):
        Skills(folder)
    link.unlink()
    link.symlink_to(link)
    with pytest.raises(BadSkill, match="nowhere"):
        Skills(folder)
    link.unlink()
    odd = Path(os.fsdecode(os.fsencode(folder) + b"/pdf/\xff"))
    write(odd, "")
    with pytest.raises(BadSkill, match="name that is no text"):
        Skills(folder)
    odd.unlink()
    for number in range(MAX_FILES):
        write(folder / "pdf" / f"{number}", "")
    with pytest.raises(BadSkill, match="at most"):
        Skills(folder)


def test_two_skills_of_one_uri_are_refused(folder: Path) -> None:
    server = Server("s", extensions=[Skills(folder)])
    with pytest.raises(ValueError, match="already exists"):
        server.skills(folder)
    server.skills(folder, prefix="other")


async def test_a_folder_with_one_bad_skill_adds_none(folder: Path, tmp_path: Path) -> None:
    skills = Skills(folder)
    write(tmp_path / "more" / "good" / "SKILL.md", "---\nname: good\ndescription: d\n---\n")
    write(tmp_path / "more" / "zbad" / "SKILL.md", "---\nname: other\ndescription: d\n---\n")
    server = Server("s", extensions=[skills])
    with pytest.raises(BadSkill):
        skills.add(tmp_path / "more")
    with pytest.raises(ValueError, match="already exists"):
        skills.add(folder)
    async with connect(server) as client:
        found = [one["uri"] for one in (await client.request("skills/list"))["skills"]]
        assert found == ["skill://pdf/SKILL.md", "skill://team/notes/SKILL.md"]
        assert len((await client.request("resources/list"))["resources"]) == 2


async def test_skills_are_read_anew_when_they_are_asked_to(folder: Path) -> None:
    skills = Skills(folder)
    async with connect(Server("s", extensions=[skills]), Revision("2025-11-25")) as client:
        assert await skills.reload() is False
        write(folder / "pdf" / "references" / "FORMS.md", "other forms")
        (folder / "pdf" / "logo.bin").unlink()
        write(folder / "new" / "SKILL.md", "---\nname: new\ndescription: d\n---\n")
        assert await skills.reload() is True
        found = {one["uri"]: one for one in (await client.request("skills/list"))["skills"]}
        assert set(found) == {"skill://new/SKILL.md", "skill://pdf/SKILL.md", "skill://team/notes/SKILL.md"}
        assert found["skill://pdf/SKILL.md"]["resources"][1] == listed(
            folder / "pdf" / "references" / "FORMS.md", "skill://pdf/references/FORMS.md"
        )
        forms = await client.request("resources/read", uri="skill://pdf/references/FORMS.md")
        assert forms["contents"][0]["text"] == "other forms"
        with pytest.raises(Refusal):
            await client.request("resources/read", uri="skill://pdf/logo.bin")
        assert client.notifications("notifications/resources/list_changed")
        write(folder / "new" / "SKILL.md", "nothing of the kind")
        with pytest.raises(BadSkill):
            await skills.reload()
        assert len((await client.request("skills/list"))["skills"]) == 3


class Watched(Skills):
    """Tells the test that it could not be read."""

    failed = trio.Event()

    async def reload(self) -> bool:
        try:
            return await super().reload()
        except BadSkill:
            self.failed.set()
            raise


async def test_clients_are_told_when_a_watched_folder_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.server.skills.WATCH", 0.01)
    skills = Watched(folder, watch=True)
    with trio.fail_after(20):
        async with connect(Server("s", extensions=[skills]), Revision("2025-11-25")) as client:
            await client.request("ping")
            for number in range(2):
                write(folder / f"new-{number}" / "SKILL.md", f"---\nname: new-{number}\ndescription: d\n---\n")
                told = await client.hear()
                assert told["method"] == "notifications/resources/list_changed"
                assert len((await client.request("skills/list"))["skills"]) == 3 + number
            with structlog.testing.capture_logs() as logs:
                write(folder / "new-0" / "SKILL.md", "broken for now")
                skills.failed = trio.Event()
                await skills.failed.wait()
                await wait_all_tasks_blocked()
            assert [line["event"] for line in logs] == ["skills_not_reloaded"]
            assert len((await client.request("skills/list"))["skills"]) == 4


async def test_rules_decide_who_sees_a_skill_its_files_and_its_directories(folder: Path) -> None:
    server = Server("s", extensions=[Skills(folder)])
    async with server.host() as host:
        host.rules = AccessRules([Rule(resources=["skill://pdf/*"], only=ACME)])
        async with peer(host, principal=ALICE) as client:
            assert len((await client.request("skills/list"))["skills"]) == 2
            assert await client.request("resources/directory/read", uri="skill://pdf/references")
        async with peer(host, principal=BOB) as client:
            (entry,) = (await client.request("skills/list"))["skills"]
            assert entry["uri"] == "skill://team/notes/SKILL.md"
            for method, uri in (
                ("skills/get", "skill://pdf/SKILL.md"),
                ("resources/read", "skill://pdf/logo.bin"),
                ("resources/directory/read", "skill://pdf"),
                ("resources/directory/read", "skill://pdf/references"),
            ):
                hidden = await raw_answer(client, method, {"uri": uri})
                unknown = await raw_answer(client, method, {"uri": uri.replace("pdf", "pxf")})
                assert b'"error"' in hidden
                assert hidden.replace(b"pdf", b"pxf") == unknown
