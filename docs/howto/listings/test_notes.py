"""Tests of notes.py: with pytest and pytest-trio, in this process, without a network."""

from pathlib import Path

import pytest
from notes import server

from callboard import Revision, connect
from callboard.testing import connect as connect_peer


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTES", str(tmp_path / "notes.db"))


@pytest.mark.trio
async def test_a_note_can_be_found() -> None:
    async with connect(server) as client:
        await client.call("add", text="buy milk")
        found = await client.call("find", word="milk")
        assert found.structured_content == {"result": ["buy milk"]}


@pytest.mark.trio
async def test_a_note_that_is_not_there_cannot_be_removed() -> None:
    async with connect(server) as client:
        result = await client.call("remove", number=7)
        assert result.is_error
        assert [getattr(block, "text", None) for block in result.content] == ["There is no note 7."]


@pytest.mark.trio
@pytest.mark.parametrize("revision", Revision)
async def test_clients_of_every_revision_are_served(revision: Revision) -> None:
    async with connect_peer(server, revision) as client:
        result = await client.call("find", word="milk")
        assert not result.get("isError", False)
