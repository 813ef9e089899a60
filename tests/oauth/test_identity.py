"""Who a client is, at which authorization server: what one of them knows is nothing to another."""

from pathlib import Path

import pytest
import trio

from callboard.client import connect
from callboard.errors import NotAuthorized
from callboard.oauth import AuthorizationCode, FileStore, Headless, MemoryStore, RegisteredClient
from callboard.oauth.consent import Prepare
from tests.oauth.house import Said
from tests.oauth.town import Town, basic, look, open_town, refused, visit

# Another authorization server.


@pytest.mark.requirement("M368", "M369", "M379", "M380")
async def test_a_new_authorization_server_gets_a_new_registration_and_sees_nothing_of_the_old() -> None:
    async with open_town(Town(scope="read")) as town:
        town.giver.refreshes = True
        async with connect(town.url, auth=town.auth()) as client:
            await look(client)
            town.revoked, town.issuers = set(town.giver.tokens), [town.other.house.url]
            await look(client)
        assert len(town.other.visits("/register")) == 1
        assert len(town.giver.visits("/token")) == 1
        seen = b"".join(asked.head.target + asked.body for asked in town.other.house.asked)
        assert b"one-" not in seen


@pytest.mark.requirement("M378", "M379")
async def test_what_was_kept_of_another_authorization_server_is_not_shown_to_the_new_one(tmp_path: Path) -> None:
    async with open_town() as town:
        town.giver.refreshes = True
        async with connect(town.url, auth=town.auth(FileStore(tmp_path))) as client:
            await look(client)
        town.revoked, town.issuers = set(town.giver.tokens), [town.other.house.url]
        async with connect(town.url, auth=town.auth(FileStore(tmp_path))) as client:
            await look(client)
        assert len(town.giver.visits("/token")) == 1
        seen = b"".join(asked.head.target + asked.body for asked in town.other.house.asked)
        assert b"one-" not in seen


@pytest.mark.requirement("M369", "M379")
async def test_a_refresh_token_is_not_shown_to_another_authorization_server_where_the_client_has_the_same_name() -> (
    None
):
    async with open_town() as town:
        town.giver.refreshes = True
        town.giver.changes = town.other.changes = {"client_id_metadata_document_supported": True}
        auth = town.auth(document="https://client.example/me.json")
        async with connect(town.url, auth=auth) as client:
            town.revoked, town.issuers = set(town.giver.tokens), [town.other.house.url]
            await look(client)
        assert [asked.form["grant_type"] for asked in town.other.visits("/token")] == ["authorization_code"]
        assert len(town.giver.visits("/token")) == 1


async def test_a_refresh_token_that_another_client_was_given_is_not_used() -> None:
    async with open_town() as town:
        town.giver.refreshes = True
        store = MemoryStore()
        async with connect(town.url, auth=town.auth(store)) as client:
            await look(client)
        town.revoked = set(town.giver.tokens)
        async with connect(town.url, auth=town.auth(store, registered=RegisteredClient(client_id="me"))) as client:
            await look(client)
        assert [asked.form["grant_type"] for asked in town.giver.visits("/token")] == ["authorization_code"] * 2


async def test_of_several_authorization_servers_the_one_that_knows_us_is_asked() -> None:
    async with open_town() as town:
        town.issuers = [town.other.house.url, town.giver.house.url]
        registered = RegisteredClient(client_id="me", issuer=town.giver.house.url)
        async with connect(town.url, auth=town.auth(registered=registered)) as client:
            await look(client)
        assert town.other.house.asked == []


# Who we are.


@pytest.mark.requirement("M332", "M382")
async def test_a_registered_client_is_not_registered_again() -> None:
    async with open_town() as town:
        registered = RegisteredClient(client_id="me & co", client_secret="hush: 100%")  # noqa: S106  # made up
        async with connect(town.url, auth=town.auth(registered=registered)) as client:
            await look(client)
        assert town.giver.visits("/register") == []
        [redeemed] = town.giver.visits("/token")
        assert basic(redeemed) == ("me & co", "hush: 100%")
        assert "client_secret" not in redeemed.form


@pytest.mark.requirement("M381")
async def test_a_registered_client_stays_with_the_first_authorization_server_that_it_was_used_at() -> None:
    async with open_town() as town:
        store = MemoryStore()
        registered = RegisteredClient(client_id="me", client_secret="hush")  # noqa: S106  # made up
        async with connect(town.url, auth=town.auth(store, registered=registered)) as client:
            await look(client)
            town.revoked, town.issuers = set(town.giver.tokens), [town.other.house.url]
            with pytest.raises(NotAuthorized, match="'me' is registered at"):
                await look(client)
        assert [asked.path for asked in town.other.house.asked] == ["/.well-known/oauth-authorization-server"]


@pytest.mark.requirement("M332", "M382")
async def test_a_document_goes_before_registration_where_it_is_understood() -> None:
    async with open_town() as town:
        town.giver.changes = {"client_id_metadata_document_supported": True}
        url = "https://client.example/me.json"
        async with connect(town.url, auth=town.auth(document=url)) as client:
            await look(client)
        assert town.giver.visits("/register") == []
        assert town.giver.visits("/authorize")[0].query["client_id"] == url
        assert town.giver.visits("/token")[0].form["client_id"] == url


@pytest.mark.parametrize("method", ["none", "client_secret_basic", "client_secret_post"])
async def test_a_client_is_known_at_the_token_endpoint_as_the_server_wants_it(method: str) -> None:
    async with open_town() as town:
        town.giver.changes = {"token_endpoint_auth_methods_supported": [method]}
        town.giver.registration = {"client_secret": "hush"} if method != "none" else {}
        async with connect(town.url, auth=town.auth()) as client:
            await look(client)
        assert town.giver.visits("/register")[0].json["token_endpoint_auth_method"] == method
        [redeemed] = town.giver.visits("/token")
        assert (basic(redeemed) is not None) == (method == "client_secret_basic")
        assert redeemed.form.get("client_secret") == ("hush" if method == "client_secret_post" else None)


@pytest.mark.requirement("M382")
async def test_a_server_that_registers_nobody_is_named() -> None:
    async with open_town() as town:
        town.giver.changes = {"registration_endpoint": None}
        assert "register a client there" in await refused(town, town.auth())


@pytest.mark.requirement("M377")
async def test_a_registration_that_is_refused_says_for_which_way_back() -> None:
    async with open_town() as town:
        town.giver.registration = {"error": "invalid_redirect_uri"}
        said = await refused(town, town.auth())
        assert "refused to register 'http://localhost:3000/callback': invalid_redirect_uri" in said
        assert town.giver.visits("/authorize") == []


async def test_a_client_that_is_forgotten_is_registered_anew() -> None:
    async with open_town() as town:
        auth = town.auth(MemoryStore())
        town.giver.refusals = [Said.json({"error": "invalid_client"}, 401)]
        assert "invalid_client" in await refused(town, auth)
        async with connect(town.url, auth=auth) as client:
            await look(client)
        assert len(town.giver.visits("/register")) == 2


async def test_a_client_that_a_refresh_shows_to_be_forgotten_is_registered_anew_before_a_user_is_sent_away() -> None:
    async with open_town() as town:
        town.giver.refreshes = True
        async with connect(town.url, auth=town.auth()) as client:
            town.revoked = set(town.giver.tokens)
            town.giver.refusals = [Said.json({"error": "invalid_client"}, 401)]
            await look(client)
        assert [asked.query["client_id"] for asked in town.giver.visits("/authorize")] == [
            "one-client-1",
            "one-client-4",
        ]


@pytest.mark.parametrize("gives_up", [False, True])
async def test_a_registration_with_which_no_user_came_back_is_not_used_again(gives_up: bool) -> None:
    """An authorization server that has forgotten a client shows that to the user, and sends nobody back."""
    async with open_town() as town:
        store, forgotten = MemoryStore(), "one-client-1"
        async with connect(town.url, auth=town.auth(store)) as client:
            await look(client)
        town.revoked = set(town.giver.tokens)

        async def go(url: str) -> str:
            if f"client_id={forgotten}&" not in url:
                return await visit(url)
            if gives_up:
                leaving.cancel()
                await trio.sleep_forever()
            raise NotAuthorized("nobody came back")

        auth = town.auth(store, grant=AuthorizationCode(consent=Headless(go)))
        with trio.CancelScope() as leaving:
            assert await refused(town, auth) == "nobody came back"
        assert leaving.cancelled_caught == gives_up
        async with connect(town.url, auth=auth) as client:
            await look(client)
        assert len(town.giver.visits("/register")) == 2


async def test_a_registration_is_kept_if_nobody_was_sent_away() -> None:
    class Nobody:
        async def ask(self, prepare: Prepare, registered: str | None) -> str:
            raise NotAuthorized("there is nobody to be asked")

    async with open_town() as town:
        store = MemoryStore()
        async with connect(town.url, auth=town.auth(store)) as client:
            await look(client)
        town.revoked = set(town.giver.tokens)
        assert "nobody" in await refused(town, town.auth(store, grant=AuthorizationCode(consent=Nobody())))
        async with connect(town.url, auth=town.auth(store)) as client:
            await look(client)
        assert len(town.giver.visits("/register")) == 1
