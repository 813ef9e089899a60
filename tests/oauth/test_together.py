"""Several want tokens at once: requests, processes that share a store, and those who leave in the middle."""

from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

from callboard.client import connect
from callboard.codecs.http.response_parser import AnswerHead
from callboard.codecs.oauth.tokens import Tokens
from callboard.errors import NotAuthorized
from callboard.oauth import FileStore, MemoryStore
from callboard.oauth.store import recall, tokens_of
from callboard.oauth.turn import TURN_TIME, own_turn
from callboard.transports.client.credentials import Credentials, Proof
from tests.oauth.house import Asked, Said
from tests.oauth.town import Town, look, open_town


def refreshes(town: Town) -> int:
    return sum(asked.form["grant_type"] == "refresh_token" for asked in town.giver.visits("/token"))


async def test_twenty_requests_that_find_the_token_old_refresh_it_once() -> None:
    now = 1000.0
    async with open_town() as town:
        town.giver.refreshes = True
        store = MemoryStore()
        async with connect(town.url, auth=town.auth(store, clock=lambda: now)):
            pass
        now += 3600 - 29
        credentials = town.auth(store, clock=lambda: now).credentials(town.url)
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(credentials.prove, b"POST")
        assert refreshes(town) == 1


async def test_those_who_waited_for_a_refresh_that_failed_do_not_each_try_it_again() -> None:
    now = 1000.0
    async with open_town() as town:
        town.giver.refreshes = True
        store = MemoryStore()
        async with connect(town.url, auth=town.auth(store, clock=lambda: now)):
            pass
        now += 3600 - 29
        town.giver.refusals = [Said(503)] * 20
        credentials = town.auth(store, clock=lambda: now).credentials(town.url)
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(credentials.prove, b"POST")
        assert refreshes(town) == 1
        await credentials.prove(b"POST")
        assert refreshes(town) == 2  # who comes later tries anew


async def test_a_user_who_says_no_is_not_asked_once_for_each_request_that_waits() -> None:
    async with open_town() as town:
        town.giver.error = "access_denied"
        credentials = town.auth().credentials(town.url)
        proof, heard = await credentials.prove(b"POST"), list[str]()

        async def ask() -> None:
            with pytest.raises(NotAuthorized) as caught:
                await credentials.renew(b"POST", AnswerHead(401, []), proof)
            heard.append(str(caught.value))

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask)
        assert heard == ["the authorization server refused: access_denied"] * 5
        assert len(town.giver.visits("/authorize")) == 1
        town.giver.error = ""
        assert (await credentials.renew(b"POST", AnswerHead(401, []), proof)).headers  # who comes later may ask again


async def test_who_waited_for_something_else_asks_for_it_although_that_failed() -> None:
    async with open_town(Town(scope="read")) as town:
        store = MemoryStore()
        async with connect(town.url, auth=town.auth(store)):
            pass
        credentials = town.auth(store).credentials(town.url)
        proof, heard = await credentials.prove(b"POST"), list[str]()
        town.giver.error = "access_denied"

        async def ask(scope: str) -> None:
            challenge = f'Bearer error="insufficient_scope", scope="{scope}"'.encode()
            with pytest.raises(NotAuthorized) as caught:
                await credentials.renew(b"POST", AnswerHead(403, [(b"www-authenticate", challenge)]), proof)
            heard.append(str(caught.value))

        async with trio.open_nursery() as nursery:
            for scope in ("write", "erase", "write"):
                nursery.start_soon(ask, scope)
        asked = [asked.query["scope"] for asked in town.giver.visits("/authorize")]
        assert asked[0] == "read"
        assert {"read write", "read erase"} <= set(asked)


async def test_whoever_leaves_in_the_middle_of_a_refresh_loses_no_token(tmp_path: Path) -> None:
    now = 1000.0
    async with open_town() as town:
        town.giver.refreshes = True
        give = town.giver.house.rooms["/token"]
        async with connect(town.url, auth=town.auth(FileStore(tmp_path), clock=lambda: now)) as client:
            now += 3600 - 29
            with trio.CancelScope() as leaving:

                def while_leaving(asked: Asked) -> Said:
                    leaving.cancel()  # the old refresh token is worth nothing from here on
                    return give(asked)

                town.giver.house.rooms["/token"] = while_leaving
                await look(client)
            assert leaving.cancelled_caught
        assert refreshes(town) == 1
        town.giver.house.rooms["/token"] = give
        town.revoked = set(town.giver.tokens)
        async with connect(town.url, auth=town.auth(FileStore(tmp_path), clock=lambda: now)) as client:
            await look(client)
        assert refreshes(town) == 2
        assert len(town.giver.visits("/authorize")) == 1


async def test_what_could_not_be_kept_is_not_given_up_for_what_is_older() -> None:
    class Full(MemoryStore):
        is_full = False

        async def save(self, name: str, value: bytes) -> None:
            if self.is_full:
                raise NotAuthorized("no space left")
            await super().save(name, value)

    now = 1000.0
    async with open_town() as town:
        town.giver.refreshes = True
        store = Full()
        async with connect(town.url, auth=town.auth(store, clock=lambda: now)) as client:
            Full.is_full = True
            for _ in range(2):
                now += 3600 - 29
                await look(client)
        assert [asked.form.get("refresh_token") for asked in town.giver.visits("/token")] == [
            None,
            "one-refresh-3",
            "one-refresh-4",
        ]
        assert len(town.giver.visits("/authorize")) == 1


async def test_a_token_that_another_process_has_refreshed_is_not_refreshed_again(tmp_path: Path) -> None:
    now = 1000.0
    async with open_town() as town:
        town.giver.refreshes = True

        async with (
            connect(town.url, auth=town.auth(FileStore(tmp_path), clock=lambda: now)) as one,
            connect(town.url, auth=town.auth(FileStore(tmp_path), clock=lambda: now)) as other,
        ):
            now += 3600 - 29
            await look(one)
            await look(other)
        assert refreshes(town) == 1
        assert town.shown[-1] == town.shown[-2] == "Bearer one-token-4"
        assert len(town.giver.visits("/authorize")) == 1


@pytest.mark.parametrize("is_refused", [False, True])
async def test_processes_that_find_the_token_old_at_once_refresh_it_once(tmp_path: Path, *, is_refused: bool) -> None:
    """Those of a process each, as far as the store goes. The second one waits, however long the first one takes."""
    now = 1000.0
    async with open_town() as town:
        town.giver.refreshes = True
        async with connect(town.url, auth=town.auth(FileStore(tmp_path), clock=lambda: now)):
            pass
        all_of_them = [town.auth(FileStore(tmp_path), clock=lambda: now).credentials(town.url) for _ in range(8)]
        proofs = [await one.prove(b"POST") for one in all_of_them]
        if not is_refused:
            now += 3600 - 29
        shown = set[tuple[bytes, bytes]]()

        async def want(credentials: Credentials, proof: Proof) -> None:
            if is_refused:
                proof = await credentials.renew(b"POST", AnswerHead(401, []), proof)
            else:
                proof = await credentials.prove(b"POST")
            shown.update(proof.headers)

        async with trio.open_nursery() as nursery:
            for credentials, proof in zip(all_of_them, proofs, strict=True):
                nursery.start_soon(want, credentials, proof)
        assert refreshes(town) == 1
        assert shown == {(b"authorization", b"Bearer one-token-4")}
        assert len(town.giver.visits("/authorize")) == 1


async def test_a_process_that_hangs_in_the_middle_of_a_refresh_is_not_waited_for_for_ever(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    store, began = FileStore(tmp_path), trio.current_time()
    async with own_turn(store, "a"), own_turn(store, "b"):
        assert trio.current_time() == began
        async with own_turn(store, "a"):
            assert trio.current_time() - began == pytest.approx(TURN_TIME)
    began = trio.current_time()
    async with own_turn(store, "a"):
        assert trio.current_time() == began


async def test_a_folder_that_cannot_be_written_to_keeps_no_process_from_a_refresh(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    async with own_turn(FileStore(tmp_path / "file" / "folder"), "a"):
        pass


async def test_who_comes_second_with_a_refresh_token_keeps_what_the_first_one_got() -> None:
    now = 1000.0
    async with open_town() as town:
        town.giver.refreshes = True
        store = MemoryStore()
        async with connect(town.url, auth=town.auth(store, clock=lambda: now)) as client:
            now += 3600 - 29
            tokens = await recall(store, tokens_of(town.url), Tokens)
            assert tokens is not None
            given = msgspec.json.decode(town.giver.give("").body)
            first = msgspec.json.decode(msgspec.json.encode(tokens), type=dict) | given

            def second(_: Asked) -> Said:
                store._kept[tokens_of(town.url)] = msgspec.json.encode(first)
                return Said.json({"error": "invalid_grant"}, 400)

            town.giver.house.rooms["/token"] = second
            await look(client)
        kept = await recall(store, tokens_of(town.url), Tokens)
        assert kept is not None
        assert (kept.access_token, kept.refresh_token) == (given["access_token"], given["refresh_token"])
        assert town.shown[-1] == f"Bearer {given['access_token']}"
