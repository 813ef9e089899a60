"""A client comes by its tokens: asked for, kept, refreshed, and asked for anew."""

from pathlib import Path

import pytest
import trio

from callboard.client import connect
from callboard.errors import NotAuthorized
from callboard.oauth import BearerToken, FileStore, MemoryStore, OAuth
from callboard.oauth.authorizer import MAX_AUTHORIZATIONS, REFUSAL_MEMORY
from callboard.server import Server
from callboard.transports.client.credentials import Credentials
from tests.oauth.house import Asked, Said
from tests.oauth.town import Giver, Town, look, open_town, refused


@pytest.mark.requirement(
    "M330", "L205", "M343", "L215", "M345", "L217", "M346", "L218", "M347", "L219", "M386", "L231", "M387", "L232"
)
async def test_a_server_that_wants_a_token_gets_one() -> None:
    async with open_town() as town, connect(town.url, auth=town.auth()) as client:
        await look(client)
    assert town.shown[0] is None
    assert set(town.shown[1:]) == {"Bearer one-token-3"}
    [registered] = town.giver.visits("/register")
    assert registered.json["application_type"] == "native"
    assert registered.json["grant_types"] == ["authorization_code", "refresh_token"]
    [asked] = town.giver.visits("/authorize")
    assert asked.query["code_challenge_method"] == "S256"
    [redeemed] = town.giver.visits("/token")
    assert asked.query["resource"] == redeemed.form["resource"] == town.url
    assert "scope" not in asked.query
    assert all(b"token" not in request.head.query for request in town.house.asked)


async def test_twenty_requests_at_once_ask_for_leave_once() -> None:
    async with open_town() as town, connect(town.url, auth=town.auth()) as client:
        town.revoked = set(town.giver.tokens)
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(look, client)
    assert len(town.giver.visits("/authorize")) == 2


async def test_the_next_run_uses_what_the_last_one_kept(tmp_path: Path) -> None:
    async with open_town() as town:
        for _ in range(2):
            async with connect(town.url, auth=town.auth(FileStore(tmp_path))) as client:
                await look(client)
        assert len(town.giver.visits("/authorize")) == 1
        assert town.shown.count(None) == 1


async def test_what_is_forgotten_is_asked_for_anew_and_a_websocket_s_is_the_same(tmp_path: Path) -> None:
    async with open_town() as town:
        for _ in range(2):
            auth = town.auth(FileStore(tmp_path))
            async with connect(town.url, auth=auth) as client:
                await look(client)
            await auth.forget(town.url.replace("http://", "ws://"))
            await auth.forget(town.url)  # there is nothing any more
        assert len(town.giver.visits("/authorize")) == 2


async def test_a_token_is_refreshed_before_it_ends() -> None:
    now = 1000.0
    async with open_town(Town()) as town:
        town.giver.refreshes = True
        async with connect(town.url, auth=town.auth(clock=lambda: now)) as client:
            await look(client)
            now += 3600 - 29
            await look(client)
        assert town.shown[-1] == "Bearer one-token-4"
        assert len(town.giver.visits("/authorize")) == 1
        grants = [asked.form["grant_type"] for asked in town.giver.visits("/token")]
        assert grants == ["authorization_code", "refresh_token"]
        assert town.giver.visits("/token")[1].form["resource"] == town.url


async def test_a_token_that_is_refused_is_refreshed_and_the_next_refresh_token_is_kept() -> None:
    async with open_town() as town:
        town.giver.refreshes = True
        async with connect(town.url, auth=town.auth()) as client:
            for _ in range(3):
                town.revoked = set(town.giver.tokens)
                await look(client)
        assert len(town.giver.visits("/authorize")) == 1
        used = [asked.form.get("refresh_token") for asked in town.giver.visits("/token")]
        assert used == [None, "one-refresh-3", "one-refresh-4", "one-refresh-5"]


async def test_a_refresh_that_is_refused_leads_back_to_the_user() -> None:
    async with open_town() as town:
        town.giver.refreshes = True
        async with connect(town.url, auth=town.auth()) as client:
            town.revoked = set(town.giver.tokens)
            town.giver.refreshers.clear()
            await look(client)
        assert len(town.giver.visits("/authorize")) == 2


async def test_a_token_endpoint_that_is_down_is_named_and_no_token_is_lost() -> None:
    now = 1000.0
    async with open_town() as town:
        town.giver.refreshes = True
        async with connect(town.url, auth=town.auth(clock=lambda: now)) as client:
            now += 3600 - 29
            town.giver.refusals = [Said(503, b"<h1>later</h1>")]
            await look(client)  # what there is still does
            await look(client)
        assert [asked.form["grant_type"] for asked in town.giver.visits("/token")][1:] == ["refresh_token"] * 2
        assert len(town.giver.visits("/authorize")) == 1


@pytest.mark.requirement("M355")
async def test_an_ended_token_without_a_refresh_token_is_not_shown_again() -> None:
    now = 1000.0
    async with open_town() as town, connect(town.url, auth=town.auth(clock=lambda: now)) as client:
        await look(client)
        now += 3600
        await look(client)
        assert town.shown.count("Bearer one-token-3") == 2
        assert town.shown[-2] is None
        assert len(town.giver.visits("/authorize")) == 2


@pytest.mark.requirement("M334", "M335", "M336", "L210", "L211")
async def test_scopes_are_those_of_the_challenge_before_those_of_the_metadata() -> None:
    for scope, supported, expected in (
        ("read", ["read", "write"], "read"),
        ("", ["read", "write"], "read write"),
        ("", None, None),
    ):
        async with open_town(Town(scope=scope, changes={"scopes_supported": supported})) as town:
            async with connect(town.url, auth=town.auth()) as client:
                await look(client)
            [asked] = town.giver.visits("/authorize")
            assert asked.query.get("scope") == expected


async def test_offline_access_is_asked_for_where_it_is_offered() -> None:
    for offered, expected in ((["read", "offline_access"], "read offline_access"), (["read"], "read"), (None, "read")):
        async with open_town(Town(scope="read")) as town:
            town.giver.changes = {"scopes_supported": offered}
            async with connect(town.url, auth=town.auth()) as client:
                await look(client)
            [asked] = town.giver.visits("/authorize")
            assert asked.query.get("scope") == expected


@pytest.mark.requirement("M360", "L239")
async def test_a_call_that_needs_more_is_stepped_up_with_all_that_was_asked_for_before() -> None:
    async with open_town(Town(scope="read", needs={"tools/call": "write"})) as town:
        async with connect(town.url, auth=town.auth()) as client:
            await client.tools()
            await look(client)
            await look(client)
        assert [asked.query["scope"] for asked in town.giver.visits("/authorize")] == ["read", "read write"]


@pytest.mark.requirement("M361", "L239")
async def test_a_step_up_that_does_not_help_is_not_tried_again_for_a_while() -> None:
    now = 1000.0
    async with open_town(Town(scope="read", needs={"tools/call": "write"})) as town:
        town.giver.gives = "read"
        async with connect(town.url, auth=town.auth(clock=lambda: now)) as client:
            for _ in range(3):
                with pytest.raises(NotAuthorized, match="scopes 'write'"):
                    await look(client)
            assert len(town.giver.visits("/authorize")) == 2
            await client.tools()
            now += REFUSAL_MEMORY
            with pytest.raises(NotAuthorized):
                await look(client)
        assert len(town.giver.visits("/authorize")) == 3


@pytest.mark.requirement("M361")
async def test_a_server_that_is_never_content_is_given_up_after_few_authorizations() -> None:
    async with open_town() as town:
        wanted = iter(f"more-{number}" for number in range(100))

        def never(asked: Asked) -> Said:
            if asked.header("authorization") is None:
                return Said(401)
            return Said(403, b"", {"www-authenticate": f'Bearer error="insufficient_scope", scope="{next(wanted)}"'})

        town.house.rooms["/mcp"] = never
        assert "3 times" in await refused(town, town.auth())
        assert len(town.giver.visits("/authorize")) == MAX_AUTHORIZATIONS == 3


async def test_a_server_that_refuses_the_token_of_its_own_authorization_server_is_given_up_at_once() -> None:
    async with open_town() as town:
        town.house.rooms["/mcp"] = lambda _: Said(401)
        assert "just issued" in await refused(town, town.auth())
        assert len(town.giver.visits("/authorize")) == 1


async def test_a_403_that_is_not_about_scopes_asks_nobody() -> None:
    async with open_town() as town, connect(town.url, auth=town.auth()) as client:
        town.house.rooms["/mcp"] = lambda _: Said(403, b"no", {"www-authenticate": "Bearer"})
        with pytest.raises(Exception, match="HTTP 403: no"):
            await look(client)
        assert len(town.giver.visits("/authorize")) == 1


async def test_a_401_for_another_kind_of_credentials_asks_nobody() -> None:
    async with open_town() as town:
        town.house.rooms["/mcp"] = lambda _: Said(401, b"who?", {"www-authenticate": 'Basic realm="x"'})
        with pytest.raises(Exception, match="HTTP 401"):
            async with connect(town.url, auth=town.auth()):
                pass
        assert town.giver.house.asked == []


# Tokens from elsewhere.


async def test_a_token_that_came_about_elsewhere_is_shown_as_it_is() -> None:
    async with open_town() as town:
        town.giver.tokens["mine"] = ()
        async with connect(town.url, auth=BearerToken("mine")) as client:
            await look(client)
        assert set(town.shown) == {"Bearer mine"}


@pytest.mark.parametrize("auth", [OAuth(), BearerToken("mine")])
@pytest.mark.requirement("M383", "L235")
async def test_no_token_is_sent_where_it_could_be_overheard(auth: OAuth | BearerToken) -> None:
    with pytest.raises(NotAuthorized, match="clear text"):
        async with connect("http://mcp.example/mcp", auth=auth):
            pass


@pytest.mark.requirement("M351", "L224")
async def test_a_token_is_shown_only_to_the_server_that_it_was_issued_for() -> None:
    store = MemoryStore()
    async with open_town(Town()) as one, open_town(Town(giver=Giver(name="three"))) as other:
        for town in (one, other, one):
            async with connect(town.url, auth=town.auth(store)) as client:
                await look(client)
        assert len(one.giver.visits("/authorize")) == len(other.giver.visits("/authorize")) == 1
        assert all(shown is None or shown.startswith("Bearer three-") for shown in other.shown)
        assert all(shown is None or shown.startswith("Bearer one-") for shown in one.shown)


@pytest.mark.requirement("M331", "L207")
async def test_an_authorization_server_of_openid_connect_is_found_too() -> None:
    async with open_town() as town:
        rooms = town.giver.house.rooms
        rooms["/.well-known/openid-configuration"] = rooms.pop("/.well-known/oauth-authorization-server")
        async with connect(town.url, auth=town.auth()) as client:
            await look(client)


@pytest.mark.requirement("M363")
async def test_a_server_that_is_not_reached_over_http_is_shown_nothing() -> None:
    class Exploding:
        def credentials(self, url: str) -> Credentials:
            raise AssertionError("than requested")

    async with connect(Server("here"), auth=Exploding()) as client:
        await client.tools()
