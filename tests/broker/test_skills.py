"""Skills through a broker: each is known by its server, and every byte and digest is as its server has it."""

import os
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock

from callboard import Server
from callboard.actors.broker.skills import MAX_SKILL_PAGES
from callboard.actors.rules import AccessRules, Rule
from callboard.broker import Broker
from callboard.client import connect
from callboard.codecs.caller import ANONYMOUS
from callboard.codecs.revisions import Revision
from callboard.codecs.skills import MAX_SKILL
from callboard.config import BackendSpec
from callboard.errors import ServerRefused
from callboard.server import Extension, Skills
from callboard.testing import Refusal
from callboard.transports.client.process import Command
from tests.broker.front import backend, brokered, peer, ways_in
from tests.broker.rules_stage import ACME, ALICE, BOB, raw_answer
from tests.serve.test_serve import served

EACH = pytest.mark.parametrize("revision", [Revision("2025-06-18"), Revision("2025-11-25"), Revision("2026-07-28")])
MANIFEST = "---\nname: {name}\ndescription: {told}\n---\nSee [forms](references/FORMS.md).\n"


def skilled(folder: Path, name: str, *skills: str, pages: int = 0) -> Server:
    """A server with skills of these names: each says whose it is."""
    for skill in (*skills, *(f"page-{number}" for number in range(pages))):
        place = folder / name / skill
        (place / "references").mkdir(parents=True)
        (place / "SKILL.md").write_text(MANIFEST.format(name=skill, told=f"Of {name}."))
        (place / "references" / "FORMS.md").write_text(f"forms of {name}\r\n")
        (place / "logo.bin").write_bytes(b"\xff\x00" + name.encode())
    return Server(name, extensions=[Skills(folder / name)])


def specs(folder: Path, **said: Any) -> list[BackendSpec]:
    servers = (skilled(folder, "one", "pdf", "notes"), Server("plain"), skilled(folder, "two", "pdf"))
    return [backend(server, server.info.name, **{"prefix": None, **said}) for server in servers]


@EACH
async def test_skills_of_one_name_are_told_apart_by_their_servers(tmp_path: Path, revision: Revision) -> None:
    async with brokered(*specs(tmp_path)) as host:
        async with peer(host, revision) as client:
            told = client.agreed.get("capabilities") or (await client.request("server/discover"))["capabilities"]
            assert told["extensions"]["io.modelcontextprotocol/skills"] == {"directoryRead": True}
            resources = (await client.request("resources/list"))["resources"]
        async with connect(ways_in(host), revision=revision) as user:
            entries = {entry.uri: entry for entry in await user.skills()}
            assert list(entries) == [
                "skill://one/notes/SKILL.md",
                "skill://one/pdf/SKILL.md",
                "skill://two/pdf/SKILL.md",
            ]
            for uri, name in (("skill://one/pdf/SKILL.md", "one"), ("skill://two/pdf/SKILL.md", "two")):
                skill = await user.skill(entries[uri])  # which checks digest, size and front matter
                assert skill.entry.description == f"Of {name}."
                assert await skill.read(f"skill://{name}/pdf/references/FORMS.md") == f"forms of {name}\r\n".encode()
                assert await skill.read(f"skill://{name}/pdf/logo.bin") == b"\xff\x00" + name.encode()
                assert (await user.skill(uri)).entry == skill.entry
    assert {one["uri"] for one in resources} == set(entries)


async def test_skills_stay_when_a_server_with_tasks_comes_up(tmp_path: Path) -> None:
    """Tasks are an extension that the broker serves itself, too: both have methods of their own."""
    both = skilled(tmp_path, "one", "pdf")

    @both.tool(task="optional")
    async def slow() -> str:
        return "done"

    async with brokered(backend(both, "one")) as host, peer(host, Revision("2026-07-28")) as client:
        extensions = (await client.request("server/discover"))["capabilities"]["extensions"]
        assert {"io.modelcontextprotocol/skills", "io.modelcontextprotocol/tasks"} <= extensions.keys()
        assert [one["uri"] for one in (await client.request("skills/list"))["skills"]] == ["skill://pdf/SKILL.md"]


@EACH
async def test_entries_say_their_server_and_reads_name_what_was_asked_for(tmp_path: Path, revision: Revision) -> None:
    async with brokered(*specs(tmp_path)) as host, peer(host, revision) as client:
        page = await client.request("skills/list")
        assert page["skills"][0]["_meta"] == {"dev.callboard/backend": "one"}
        assert ("ttlMs" in page) == ("cacheScope" in page) == (revision >= "2026-07-28")
        uri = "skill://two/pdf/references/FORMS.md"
        assert (await client.request("resources/read", uri=uri))["contents"][0]["uri"] == uri
        found = await client.request("resources/directory/read", uri="skill://two/pdf", cursor=None)
        assert {one["uri"]: one.get("mimeType") for one in found["resources"]} == {
            "skill://two/pdf/SKILL.md": "text/markdown",
            "skill://two/pdf/logo.bin": "application/octet-stream",
            "skill://two/pdf/references": "inode/directory",
        }
        for method, wrong in (
            ("skills/get", "skill://two/none/SKILL.md"),
            ("skills/get", "skill://none/pdf/SKILL.md"),
            ("skills/get", "skill://plain/pdf/SKILL.md"),
            ("skills/get", "file:///etc/passwd"),
            ("resources/directory/read", "skill://two/pdf/SKILL.md"),
            ("resources/directory/read", "skill://none"),
        ):
            with pytest.raises(Refusal) as refused:
                await client.request(method, uri=wrong)
            assert refused.value.code == -32602


async def test_long_lists_come_page_by_page_and_each_skill_once(tmp_path: Path) -> None:
    servers = [skilled(tmp_path, "one", "pdf", pages=45), Server("none"), skilled(tmp_path, "two", pages=21)]
    async with brokered(*(backend(one, one.info.name, prefix=None) for one in servers)) as host, peer(host) as client:
        found, page = [], await client.request("skills/list", cursor=None)
        while True:
            assert page["skills"]
            found += [one["uri"] for one in page["skills"]]
            if "nextCursor" not in page:
                break
            page = await client.request("skills/list", cursor=page["nextCursor"])
        assert len(found) == len(set(found)) == 46 + 21
        for wrong in ("made up", 7):
            with pytest.raises(Refusal) as refused:
                await client.request("skills/list", cursor=wrong)
            assert refused.value.code == -32602


async def test_names_of_a_servers_own_stay_as_they_are_where_it_is_alone(tmp_path: Path) -> None:
    async with brokered(*specs(tmp_path)) as host:
        assert host.paths is not None
        alone = host.paths.find("two", ANONYMOUS)
        assert alone is not None
        async with connect(ways_in(alone)) as client:
            (entry,) = await client.skills()
            assert entry.uri == "skill://pdf/SKILL.md"
            assert await (await client.skill(entry)).read("skill://pdf/logo.bin") == b"\xff\x00two"
        found = host.paths.find("plain", ANONYMOUS)
        assert found is not None
        async with connect(ways_in(found)) as client:
            with pytest.raises(ServerRefused) as refused:
                await client.skills()
            assert refused.value.error_code == -32601


async def test_without_prefixes_only_what_collides_gets_the_name_of_its_server(tmp_path: Path) -> None:
    async with brokered(*specs(tmp_path, prefix="")) as host, peer(host) as client:
        listed = [one["uri"] for one in (await client.request("resources/list"))["resources"]]
        assert listed == ["skill://notes/SKILL.md", "skill://one/pdf/SKILL.md", "skill://two/pdf/SKILL.md"]
        for uri in listed:
            assert (await client.request("resources/read", uri=uri))["contents"][0]["uri"] == uri
        first = await client.request("skills/list")
        rest = await client.request("skills/list", cursor=first["nextCursor"])
        skills = first["skills"] + rest["skills"]
        assert sorted(one["uri"] for one in skills) == sorted(listed)
        for one in skills:
            assert (await client.request("skills/get", uri=one["uri"]))["skill"]["resources"] == one["resources"]
            for file in one["resources"]:
                (read,) = (await client.request("resources/read", uri=file["uri"]))["contents"]
                assert read["uri"] == file["uri"]
        found = await client.request("resources/directory/read", uri="skill://two/pdf", cursor=None)
        assert "skill://two/pdf/logo.bin" in [one["uri"] for one in found["resources"]]


async def test_no_server_takes_over_the_skills_of_another_by_its_name(tmp_path: Path) -> None:
    """`thief` has no prefix, and a skill below the name of `one`, where those of `one` are shown."""
    skilled(tmp_path, "thief", "pdf")
    thief = backend(Server("thief", extensions=[Skills(tmp_path / "thief", prefix="one")]), "thief", prefix="")
    one = backend(skilled(tmp_path, "one", "pdf"), "one", prefix=None)
    for servers in ([one, thief], [thief, one]):
        async with brokered(*servers) as host, connect(ways_in(host)) as client:
            uris = {entry.description: entry.uri for entry in await client.skills()}
            assert uris == {"Of one.": "skill://one/pdf/SKILL.md", "Of thief.": "skill://thief/one/pdf/SKILL.md"}
            for told, uri in uris.items():
                skill = await client.skill(uri)
                assert skill.entry.description == told
                logo = await skill.read(uri.replace("SKILL.md", "logo.bin"))
                assert told == f"Of {logo[2:].decode()}."


async def test_a_server_that_does_not_answer_costs_its_own_skills_alone(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    deaf = Extension("io.modelcontextprotocol/skills")

    @deaf.method("skills/list")
    async def skills() -> dict[str, Any]:
        await trio.sleep(10_000)
        return {}

    silent = backend(Server("silent", extensions=[deaf]), "silent", prefix=None, timeout=5.0)
    async with brokered(silent, *specs(tmp_path)) as host, connect(ways_in(host)) as client:
        assert len(await client.skills()) == 3


@pytest.mark.parametrize("following", ["again", "x" * 100_000, "{number}"], ids=["repeated", "long", "endless"])
async def test_a_server_that_never_ends_its_list_keeps_no_client_from_the_next(tmp_path: Path, following: str) -> None:
    liar, numbers = Extension("io.modelcontextprotocol/skills"), count()

    @liar.method("skills/list")
    async def skills(cursor: str = "") -> dict[str, Any]:
        return {"skills": [], "nextCursor": following.format(number=next(numbers))}

    server = Server("liar", extensions=[liar])
    async with brokered(backend(server, "liar"), *specs(tmp_path)) as host, connect(ways_in(host)) as client:
        assert len(await client.skills()) == 3
    assert next(numbers) <= MAX_SKILL_PAGES


@pytest.mark.parametrize("prefix", [None, ""], ids=["prefixes", "no prefixes"])
async def test_a_uri_of_two_servers_names_candidates_that_can_be_read(tmp_path: Path, prefix: str | None) -> None:
    async with brokered(*specs(tmp_path, prefix=prefix)) as host, peer(host) as client:
        for path in ("pdf/SKILL.md", "pdf/logo.bin") if prefix is None else ("pdf/SKILL.md",):
            with pytest.raises(Refusal) as refused:
                await client.request("resources/read", uri=f"skill://{path}")
            assert refused.value.data is not None
            candidates = refused.value.data["candidates"]
            assert candidates == [f"skill://one/{path}", f"skill://two/{path}"]
            for uri in candidates:
                (read,) = (await client.request("resources/read", uri=uri))["contents"]
                assert read["uri"] == uri


async def test_an_entry_that_breaks_a_rule_is_left_out(tmp_path: Path) -> None:
    liar = Extension("io.modelcontextprotocol/skills")

    @liar.method("skills/list")
    async def skills() -> dict[str, Any]:
        told = {"name": "pdf", "description": "d"}
        right = {"uri": "skill://pdf/SKILL.md", "frontmatter": told, "resources": "dynamic"}
        elsewhere = [{"uri": "skill://other/x", "digest": "sha256:" + "0" * 64, "size": 1}]
        wrong = [{**right, "uri": "skill://x/SKILL.md"}, {**right, "resources": elsewhere}, 7, None]
        foreign = [{**right, "uri": f"{start}/pdf/SKILL.md"} for start in ("docs://x", "file:///etc", "ui://good")]
        return {"skills": [right, *wrong, *foreign, {**right, "resources": []}, right]}

    server = Server("liar", extensions=[liar])
    for name, prefix, uri in (("one", None, "skill://one/pdf/SKILL.md"), ("two", "", "skill://pdf/SKILL.md")):
        with structlog.testing.capture_logs() as logs:
            async with brokered(backend(server, name, prefix=prefix)) as host, peer(host) as client:
                (entry,) = (await client.request("skills/list"))["skills"]
        assert (entry["uri"], entry["resources"]) == (uri, "dynamic")
        [said] = [one for one in logs if one["event"] == "skills_left_out"]
        assert (said["backend"], said["count"], "skill://x" in said["failure"]) == (name, 9, True)


async def test_an_entry_of_a_scheme_that_finds_no_server_is_given_to_no_client(tmp_path: Path) -> None:
    liar = Extension("io.modelcontextprotocol/skills")

    @liar.method("skills/get")
    async def skill(uri: str) -> dict[str, Any]:
        told = {"name": "pdf", "description": "d"}
        return {"skill": {"uri": "file:///etc/pdf/SKILL.md", "frontmatter": told, "resources": "dynamic"}}

    server = Server("liar", extensions=[liar])
    async with brokered(backend(server, "liar", prefix="")) as host, peer(host) as client:
        for uri in ("file:///etc/pdf/SKILL.md", "skill://pdf/SKILL.md"):
            with pytest.raises(Refusal):
                await client.request("skills/get", uri=uri)


@EACH
async def test_rules_hide_skills_as_if_there_were_none(tmp_path: Path, revision: Revision) -> None:
    hides = Rule(resources=["skill://pdf/*"], only=ACME)
    async with brokered(*specs(tmp_path)) as host:
        host.rules = AccessRules([hides])
        async with peer(host, revision, principal=ALICE) as client:
            assert len((await client.request("skills/list"))["skills"]) == 2
        async with peer(host, revision, principal=BOB) as client:
            found, page = [], await client.request("skills/list", cursor=None)
            while True:
                found += [one["uri"] for one in page["skills"]]
                if "nextCursor" not in page:
                    break
                page = await client.request("skills/list", cursor=page["nextCursor"])
            assert found == ["skill://one/notes/SKILL.md"]
            for method, uri in (
                ("skills/get", "skill://two/pdf/SKILL.md"),
                ("resources/read", "skill://two/pdf/logo.bin"),
                ("resources/directory/read", "skill://two/pdf"),
            ):
                hidden = await raw_answer(client, method, {"uri": uri})
                unknown = await raw_answer(client, method, {"uri": uri.replace("pdf", "pxf")})
                assert b'"error"' in hidden
                assert hidden.replace(b"pdf", b"pxf") == unknown


@pytest.mark.parametrize("side", ["hosted", "brokered"])
@pytest.mark.parametrize("transport", ["http", "ws", "stdio"])
async def test_the_largest_file_of_a_skill_passes_with_every_byte(tmp_path: Path, side: str, transport: str) -> None:
    place = tmp_path / "skills" / "large"
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text("---\nname: large\ndescription: d\n---\n")
    data = os.urandom(1 << 20) * 15 + os.urandom((1 << 20) - 4096)
    (place / "data.bin").write_bytes(data)
    (tmp_path / "large.py").write_text(
        f"from callboard import Server\nserver = Server('large')\nserver.skills({str(tmp_path / 'skills')!r})\n"
    )
    assert len(data) < MAX_SKILL < len(data) + 8192
    run = (sys.executable, "-m", "callboard", "run", str(tmp_path / "large.py"))
    with trio.fail_after(60):
        if side == "hosted" and transport == "stdio":
            async with connect(run) as client:
                await check(client, data, "skill://large")
            return
        server: Any = Server("large")
        server.skills(tmp_path / "skills")
        prefix = "skill://large"
        if side == "brokered":
            target: Any = Command(args=run) if transport == "stdio" else server
            prefix = "skill://back/large"
            if transport == "stdio":
                server = Broker([backend(target, prefix=None)])
            else:
                async with served(server, http="127.0.0.1:0", ws="127.0.0.1:0") as behind:
                    broker: Any = Broker([backend(behind.url(transport), prefix=None)])
                    async with served(broker, http="127.0.0.1:0") as at, connect(at.url("http")) as client:
                        await check(client, data, prefix)
                return
        way = "http" if transport == "stdio" else transport
        async with served(server, http="127.0.0.1:0", ws="127.0.0.1:0") as at, connect(at.url(way)) as client:
            await check(client, data, prefix)


async def check(client: Any, data: bytes, prefix: str) -> None:
    (entry,) = await client.skills()
    assert entry.uri == f"{prefix}/SKILL.md"
    assert await (await client.skill(entry)).read(f"{prefix}/data.bin") == data
