"""What each cell of the matrix asserts: one feature, for one pair of revisions, over one transport."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import attrs
import msgspec
import pytest

from callboard.actors.changes import ListChanged, ResourceUpdated
from callboard.client import Client, connect
from callboard.client.routes import Target
from callboard.codecs.revisions import LoggingMessageNotificationParams, Revision
from callboard.codecs.revisions.revision import R1, R3, R5
from callboard.errors import ServerRefused


@attrs.define(eq=False)
class Cell:
    """A client of one revision in front of a broker, and what was heard of it; *front* is how others get there."""

    front: Target
    client_revision: Revision
    backend_revision: Revision
    client: Client
    logs: list[LoggingMessageNotificationParams]
    key: str = attrs.field(factory=lambda: secrets.token_hex(4))

    async def text(self, tool: str, **arguments: Any) -> str:
        result = await self.client.call(tool, **arguments)
        [block] = result.content
        assert result.is_error is not True
        text: str = block.text
        return text

    async def happened(self, key: str, length: int) -> str:
        return await self.text("happened", key=key, length=length)


@asynccontextmanager
async def client_of(
    front: Target, revision: Revision, logs: list[LoggingMessageNotificationParams]
) -> AsyncIterator[Client]:
    """A client that can be asked everything."""
    async with connect(
        front,
        revision=revision,
        elicitation=lambda _: {"name": "yorick"},
        sampling=lambda _: "alas",
        roots=["file:///elsinore"],
        log_level="info",
        on_log=logs.append,
    ) as client:
        if revision is not R5:
            await client.set_log_level("info")
        yield client


async def call(cell: Cell) -> None:
    result = await cell.client.call("say", words="alas")
    [block] = result.content
    said = {"words": "alas", "length": 4}
    assert msgspec.json.decode(block.text) == said  # type: ignore[union-attr]
    is_structured = cell.client_revision >= R3 and cell.backend_revision >= R3
    assert (result.structured_content == said) is is_structured
    [tool] = [tool for tool in await cell.client.tools() if tool.name == "say"]
    assert bool(tool.output_schema) is is_structured
    assert await cell.text("travel", to="Elsinore, Dänemark") == "in Elsinore, Dänemark"


async def progress(cell: Cell) -> None:
    async with cell.client.call("count_up") as calling:
        reports = [(one.progress, one.total, one.message) async for one in calling.progress]
    assert calling.result.is_error is not True
    assert [one[0] for one in reports] == sorted({one[0] for one in reports})
    has_message = cell.client_revision > R1 and cell.backend_revision > R1
    assert reports[-1][:2] == (3, 3)
    assert (reports[-1][2] == "step 3") is has_message


async def cancel(cell: Cell) -> None:
    async with cell.client.call("wait_for_ever", key=cell.key) as calling:
        async for _ in calling.progress:
            calling.cancel()
    assert await cell.happened(cell.key, 1) == "x"


async def elicit(cell: Cell) -> None:
    assert await cell.text("ask_user") == "user yorick"


async def sample(cell: Cell) -> None:
    assert await cell.text("ask_model") == "model alas"


async def roots(cell: Cell) -> None:
    assert await cell.text("ask_roots") == "file:///elsinore"


async def log(cell: Cell) -> None:
    cell.logs.clear()
    assert await cell.text("note_it") == "noted"
    [said] = cell.logs
    assert (said.level, said.logger, said.data) == ("warning", "cast", {"said": "loud"})


async def read(cell: Cell) -> None:
    [resource] = [one for one in await cell.client.resources() if one.uri == "cast://script"]
    assert resource.mime_type == "text/plain"
    for uri, text in (("cast://script", "to be, or not to be"), ("cast://notes/hamlet", "notes of hamlet")):
        [contents] = (await cell.client.read(uri)).contents
        assert (contents.uri, contents.text) == (uri, text)  # type: ignore[union-attr]
    [message] = (await cell.client.prompt("greet", who="hamlet")).messages
    assert message.content.text == "Say hello to hamlet."  # type: ignore[union-attr]


async def subscribe(cell: Cell) -> None:
    """Two clients, one subscription at the backend, which ends with the last of them."""
    uri = f"cast://notes/{cell.key}"
    async with client_of(cell.front, cell.client_revision, []) as other:
        async with other.listen(resources=[uri]) as theirs:
            async with cell.client.listen(resources=[uri]) as ours:
                await cell.text("touch", uri=uri)
                assert await anext(ours) == await anext(theirs) == ResourceUpdated(uri)
            await cell.text("touch", uri=uri)
            assert await anext(theirs) == ResourceUpdated(uri)
            assert not theirs._waiting
        assert not ours._waiting
    assert await cell.happened(uri, 2) == "+-"


async def list_changed(cell: Cell) -> None:
    name = f"extra_{cell.key}"
    async with cell.client.listen(tools=True) as changes:
        await cell.text("hire", name=name)
        assert await anext(changes) == ListChanged("tools")
        assert name in [tool.name for tool in await cell.client.tools()]
        assert await cell.text(name) == f"{name} at your service"
        await cell.text("dismiss", name=name)
        assert await anext(changes) == ListChanged("tools")
        assert name not in [tool.name for tool in await cell.client.tools()]


async def complete(cell: Cell) -> None:
    assert list(await cell.client.complete("greet", "who", "h")) == ["hamlet", "horatio"]


async def error(cell: Cell) -> None:
    failed = await cell.client.call("fail")
    assert failed.is_error is True
    assert failed.content[0].text == "not today"  # type: ignore[union-attr]
    with pytest.raises(ServerRefused) as unknown:
        await cell.client.call("nobody")
    assert unknown.value.error_code == -32602
    with pytest.raises(ServerRefused) as missing:
        await cell.client.read("cast://nowhere")
    assert missing.value.error_code == (-32602 if cell.client_revision is R5 else -32002)


Feature: TypeAlias = Callable[[Cell], Awaitable[None]]

FEATURES: Final[Mapping[str, Feature]] = {
    one.__name__: one
    for one in (
        *(call, progress, cancel, elicit, sample, roots),
        *(log, read, subscribe, list_changed, complete, error),
    )
}

BEGAN: Final[Mapping[str, Revision]] = {"elicit": R3}
"""Features that are not in the first revision: "not in that revision" is every cell with an older one on either leg."""


def is_there(feature: str, client: Revision, backend: Revision) -> bool:
    return min(client, backend) >= BEGAN.get(feature, R1)
