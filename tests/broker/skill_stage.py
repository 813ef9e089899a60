"""A pinned server whose skills are as a test says at any time, and a broker in front of it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import pytest
import trio
from msgspec import Raw

from callboard import Server
from callboard.actors.server.host import Host
from callboard.actors.server.parking import Parking
from callboard.broker import Broker
from callboard.broker.pins import POLL, Pins
from callboard.codecs.bridge.pinned_skill import PinnedSkill, read_pinned
from callboard.codecs.skills import digest_of
from callboard.config import BackendSpec
from callboard.errors import DEFINITION_CHANGED, ServerRefused
from callboard.server import Extension
from callboard.testing import Peer, Refusal
from tests.broker.front import STUCK, backend, peer

PDF: Final = "skill://pdf/SKILL.md"
NEW: Final = "skill://new/SKILL.md"


def entry(name: str = "pdf", told: str = "Fills forms.", **files: bytes) -> dict[str, Any]:
    folder = f"skill://{name}"
    listed = {f"{folder}/SKILL.md": manifest(name, told), **{f"{folder}/{file}": data for file, data in files.items()}}
    rows = [{"uri": uri, "digest": digest_of(data), "size": len(data)} for uri, data in listed.items()]
    return {"uri": f"{folder}/SKILL.md", "frontmatter": {"name": name, "description": told}, "resources": rows}


def manifest(name: str, told: str) -> bytes:
    return f"---\nname: {name}\ndescription: {told}\n---\nDo as you are told.\n".encode()


def pinned(value: Any) -> PinnedSkill:
    return read_pinned(Raw(value if isinstance(value, bytes) else json.dumps(value).encode()))


@attrs.define(eq=False)
class Played:
    """A server whose skills, and what is read of them, are as the test says at any time."""

    entries: list[Any] = attrs.field(factory=lambda: [entry(a=b"a"), entry("notes")])
    unlisted: list[Any] = attrs.field(factory=list)
    files: dict[str, bytes] = attrs.field(factory=dict)
    asked: list[str] = attrs.field(factory=list)
    page_size: int = 1
    is_endless: bool = False
    fails: bool = False

    def server(self) -> Server:
        skills = Extension("io.modelcontextprotocol/skills", {"directoryRead": True})
        server = Server("played", extensions=[skills])

        @skills.method("skills/list")
        async def listed(cursor: str = "0") -> dict[str, Any]:
            self.asked.append("list")
            if self.fails:
                raise ServerRefused(-32603, "no list today")
            at = int(cursor)
            end = at + self.page_size
            following = str(end) if self.is_endless or end < len(self.entries) else None
            return {"skills": self.entries[at:end], **({} if following is None else {"nextCursor": following})}

        @skills.method("skills/get")
        async def got(uri: str) -> dict[str, Any]:
            return {"skill": next(one for one in (*self.unlisted, *self.entries) if one["uri"] == uri)}

        @skills.method("resources/directory/read")
        async def folder(uri: str) -> dict[str, Any]:
            return {"resources": [{"uri": one, "name": one} for one in self.files if one.startswith(uri)]}

        @server.resource("skill://{+path}")
        async def read(path: str) -> str | bytes:
            self.asked.append(path)
            return self.files[f"skill://{path}"]

        @server.tool
        async def add(a: int, b: int) -> int:
            return a + b

        return server


@asynccontextmanager
async def brokered(pins: Pins, *specs: BackendSpec, **said: Any) -> AsyncIterator[Host]:
    broker = Broker(specs, approve=pins.approve, **said)
    broker.pins = pins
    with trio.fail_after(STUCK):
        async with broker.host(parking=Parking("broker")) as host:
            yield host


@asynccontextmanager
async def pinned_client(pins: Pins, played: Played) -> AsyncIterator[Peer]:
    async with brokered(pins, backend(played.server(), pin=True)) as host, peer(host) as client:
        yield client


async def listed(client: Peer) -> list[str]:
    found, page = [], await client.request("skills/list")
    while True:
        found += [one["frontmatter"]["name"] for one in page["skills"]]
        if "nextCursor" not in page:
            return found
        page = await client.request("skills/list", cursor=page["nextCursor"])


async def refused(client: Peer, method: str, uri: str) -> dict[str, Any]:
    """What is told of both digests."""
    with pytest.raises(Refusal) as caught:
        await client.request(method, uri=uri)
    assert caught.value.code == DEFINITION_CHANGED, caught.value
    data = json.loads(json.dumps(caught.value.data))
    return {key: data[key] for key in ("pinned", "found")}


class QuickPins(Pins):
    """Read and written at once: while a thread is at it, virtual time would pass."""

    async def save_aside(self) -> None:
        self.save()

    async def look_aside(self) -> bool:
        return self.look_again()


async def approve(pins: Pins, uri: str) -> None:
    """As another process does, once the broker has written what waits; and the broker has noticed."""
    await trio.sleep(2 * POLL)
    operator = Pins.beside(pins.file.with_name("servers.toml"))
    operator.settle(*operator.waiting("back", uri))
    operator.save(are_ours=True)
    await trio.sleep(2 * POLL)
