"""What goes on after its task is cancelled does so for a stated number of seconds, in virtual time."""

import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from callboard.codecs.oauth.tokens import Tokens
from callboard.oauth import FileStore, store
from callboard.oauth.identity import forget_client
from callboard.oauth.shield import shielded
from callboard.oauth.store import KEEP_TIME
from callboard.oauth.token_endpoint import ANSWER_TIME, TokenEndpoint
from tests.oauth.town import Town

URL = "https://giver.example/token"


async def left_after(work: Callable[[], Awaitable[object]], *, leaves_at: float = 1.0) -> float:
    """How long a task that is cancelled at *leaves_at* is held up by *work*, from its start."""
    started = trio.current_time()
    with trio.move_on_after(leaves_at) as leaving:
        await work()
    assert leaving.cancelled_caught or trio.current_time() - started >= leaves_at
    return trio.current_time() - started


@pytest.mark.parametrize(("takes", "left"), [(3.0, 3.0), (7.0, 7.0), (11.0, 10.0)])
async def test_a_cancelled_task_finishes_within_the_bound_and_not_later(
    takes: float, left: float, autojump_clock: MockClock
) -> None:
    done: list[bool] = []

    async def work() -> None:
        async with shielded(10):
            await trio.sleep(takes)
            done.append(True)

    assert await left_after(work) == left
    assert bool(done) == (takes == left)


async def test_a_task_that_is_not_cancelled_may_take_longer_than_the_bound(autojump_clock: MockClock) -> None:
    async with shielded(10):
        await trio.sleep(100)
    assert trio.current_time() == pytest.approx(100, abs=1e-6)


async def test_a_failure_comes_out_by_its_own_name() -> None:
    with pytest.raises(ValueError, match="wrong"):
        async with shielded(10):
            raise ValueError("wrong")


@attrs.define
class Hung:
    """A store, and a token endpoint, that never answer."""

    async def load(self, name: str) -> bytes | None:
        return await trio.sleep_forever()

    async def save(self, name: str, value: bytes) -> None:
        await trio.sleep_forever()

    async def drop(self, name: str) -> None:
        await trio.sleep_forever()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Any:
        await trio.sleep_forever()


async def test_tokens_are_kept_for_a_bounded_time(autojump_clock: MockClock) -> None:
    town = Town()
    credentials: Any = town.auth(Hung()).credentials(URL)
    tokens = Tokens(access_token=URL, issuer=URL, client_id="c", resource=URL)
    assert await left_after(lambda: credentials._adopt(tokens)) == KEEP_TIME


async def test_a_client_is_forgotten_within_a_bounded_time(autojump_clock: MockClock) -> None:
    server: Any = attrs.make_class("Server", {"issuer": attrs.field(default=URL)})()
    assert await left_after(lambda: forget_client(server, Hung())) == KEEP_TIME


async def test_an_answer_of_the_token_endpoint_is_waited_for_a_bounded_time(autojump_clock: MockClock) -> None:
    found: Any = None
    fetcher: Any = Hung()
    endpoint = TokenEndpoint(found, fetcher)
    assert await left_after(lambda: endpoint.ask(URL, {})) == ANSWER_TIME


async def test_a_disk_that_hangs_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enough = threading.Event()

    def hang(*_: object) -> None:
        enough.wait(30)

    monkeypatch.setattr(store, "_write_file", hang)
    try:
        with trio.fail_after(10), trio.move_on_after(0.05) as leaving:
            await FileStore(tmp_path).save("a", b"b")
    finally:
        enough.set()
    assert leaving.cancelled_caught
