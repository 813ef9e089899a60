"""Tokens that were had in exchange: used for a while, had once at a time, and not kept without bound."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from callboard.codecs.oauth.addresses import Reach
from callboard.errors import NotAuthorized
from callboard.oauth import ClientCredentials
from callboard.oauth import token_exchange as exchanging
from callboard.oauth.token_exchange import TokenExchange, wanted_of
from callboard.transports.client.fetch import Fetcher
from tests.oauth.house import Said
from tests.oauth.town import Town, open_town


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def exchange_at(town: Town, clock: Clock) -> TokenExchange:
    client = ClientCredentials(client_id="me", client_secret="hush")  # noqa: S106  # made up
    wanted = wanted_of(town.url, None, None, (), None)
    return TokenExchange(client, town.giver.house.url, Fetcher(Reach(loopback=True)), wanted, clock=clock)


@pytest.mark.parametrize(("life", "used"), [(3600, 300.0), (100, 90.0), (None, 300.0)])
async def test_a_token_is_used_until_it_ends_or_for_five_minutes(life: float | None, used: float) -> None:
    async with open_town() as town:
        town.giver.life, clock = life, Clock()
        exchange = exchange_at(town, clock)
        first = await exchange.header_for("a")
        clock.now += used - 1
        assert await exchange.header_for("a") == first
        clock.now += 1
        assert await exchange.header_for("a") != first
        assert len(town.giver.visits("/token")) == 2
        assert town.giver.visits("/token")[0].form["resource"] == town.url


async def test_many_requests_of_one_caller_exchange_its_token_once() -> None:
    async with open_town() as town:
        exchange, found = exchange_at(town, Clock()), []

        async def have() -> None:
            found.append(await exchange.header_for("a"))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(have)
        assert len(found) == 20
        assert len(set(found)) == len(town.giver.visits("/token")) == 1


async def test_others_go_on_if_the_one_that_asks_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_town() as town:
        exchange, found, first = exchange_at(town, Clock()), [], trio.CancelScope()
        is_asked = trio.Event()

        async def never(_: object, __: str) -> None:
            is_asked.set()
            await trio.sleep_forever()

        async def ask_in_vain() -> None:
            with first:
                found.append(await exchange.header_for("a"))

        async def ask() -> None:
            found.append(await exchange.header_for("a"))

        async with trio.open_nursery() as nursery:
            with monkeypatch.context() as patched:
                patched.setattr(TokenExchange, "_ask", never)
                nursery.start_soon(ask_in_vain)
                await is_asked.wait()
            nursery.start_soon(ask)
            await wait_all_tasks_blocked()
            first.cancel()
        assert first.cancelled_caught
        assert len(found) == len(town.giver.visits("/token")) == 1


async def test_a_refusal_is_remembered_for_a_moment() -> None:
    async with open_town() as town:
        clock = Clock()
        exchange = exchange_at(town, clock)
        town.giver.refusals = [Said.json({"error": "invalid_grant"}, 400)]
        for _ in range(3):
            with pytest.raises(NotAuthorized, match="invalid_grant"):
                await exchange.header_for("of-alice")
        assert len(town.giver.visits("/token")) == 1
        clock.now += exchanging.REFUSED_TIME
        assert (await exchange.header_for("of-alice")).startswith(b"Bearer ")


async def test_the_token_that_was_not_used_for_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanging, "MAX_EXCHANGED", 2)
    async with open_town() as town:
        exchange = exchange_at(town, Clock())
        for token in ("a", "b", "a", "c", "a"):
            await exchange.header_for(token)
        assert len(exchange) == 2
        assert [asked.form["subject_token"] for asked in town.giver.visits("/token")] == ["a", "b", "c"]


async def test_a_token_of_another_type_than_requested_is_refused() -> None:
    async with open_town() as town:
        exchange = exchange_at(town, Clock())
        exchange.wanted = {"requested_token_type": "urn:one"}
        said = {"access_token": "x", "token_type": "Bearer", "issued_token_type": "urn:two"}
        town.giver.refusals = [Said.json(said)]
        with pytest.raises(NotAuthorized, match="another type"):
            await exchange.header_for("a")
