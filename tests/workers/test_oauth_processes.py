"""A backend with OAuth behind several workers: its tokens are refreshed once in the node."""

from pathlib import Path

import pytest
import trio

from callboard.client import connect
from callboard.oauth import FileStore
from tests.oauth.town import open_town
from tests.process import PATIENCE
from tests.workers.crowd import Crowd, crowd

CALLS = 24


@pytest.mark.parametrize("settings", ["", "local = true"])
async def test_a_token_that_all_workers_find_refused_is_refreshed_once(
    settings: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the keeper; or, with *local*, by one of the workers, for which the others wait."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    async with open_town(within=PATIENCE) as town:
        town.giver.refreshes = True
        async with connect(town.url, auth=town.auth(FileStore.at_home())):
            pass  # as by `callboard login`
        file = tmp_path / "callboard.toml"
        file.write_text(
            f'[mcpServers.guarded]\nurl = "{town.url}"\n'
            f'[mcpServers.guarded.callboard]\n{settings}\noauth = {{ grant = "authorization_code" }}\n'
        )
        async with crowd(command="serve", app=file) as many:
            assert len(many.workers()) == 2
            await _call(many)
            town.revoked = set(town.giver.tokens)
            before = len(town.giver.visits("/token"))
            async with trio.open_nursery() as nursery:
                for _ in range(CALLS):
                    nursery.start_soon(_call, many)
            asked = [asked.form["grant_type"] for asked in town.giver.visits("/token")[before:]]
            assert asked == ["refresh_token"]
            assert len(town.giver.visits("/authorize")) == 1


async def _call(many: Crowd) -> None:
    answer = await many.modern("tools/call", name="guarded__look", arguments={})
    assert answer.result["content"] == [{"type": "text", "text": "seen"}], answer
