"""A guarded endpoint: what is told to clients without a good token, and the end of what a token opened."""

import gc
import time
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard import Context, Server
from callboard.actors.server import expiry
from callboard.codecs.caller import Caller
from callboard.codecs.oauth.challenge import Challenge, read_challenges
from callboard.codecs.oauth.presented import PresentedToken
from callboard.codecs.oauth.resource import ProtectedResource
from callboard.codecs.revisions import Revision
from callboard.errors import BadToken, InsufficientScope, IssuerUnavailable
from callboard.transports.server.http.guard import Guard
from tests.transports.server.http.sessions import OpenSession
from tests.transports.server.http.stage import Answer, Client, Place, request, serving

ISSUER = "https://login.example.com"
URL = "https://tools.example.com/mcp"
PATHS = ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"]


class Issuer:
    """An `Authenticator` whose tokens say what they are good for."""

    def __init__(self) -> None:
        self.asked: list[PresentedToken] = []
        self.callers: dict[str, Caller] = {}

    def known(self, token: str) -> Caller | None:
        return self.callers.get(token)

    async def verify(self, presented: PresentedToken) -> Caller:
        self.asked.append(presented)
        await trio.lowlevel.checkpoint()
        match presented.token.split("-"):
            case ["ok", *scopes]:
                caller = Caller(principal="ada", issuer=ISSUER, scopes=scopes)
            case ["for", seconds]:
                caller = Caller(principal="ada", issuer=ISSUER, expires=time.time() + int(seconds))
            case ["expired"]:
                raise BadToken("the token has expired", reason="expired")
            case ["bound"]:
                raise BadToken(reason="bound", scheme="DPoP")
            case ["down"]:
                raise IssuerUnavailable
            case _:
                raise BadToken
        self.callers[presented.token] = caller
        return caller


def guard(**more: Any) -> Guard:
    said: Any = {"url": URL, "authorization_servers": (ISSUER,), "scopes": ("mcp:use",), **more}
    return Guard(Issuer(), ProtectedResource(**said))


def challenge(answer: Answer) -> Challenge:
    (found,) = read_challenges([answer.headers["www-authenticate"].encode()])
    return found


def house() -> Server:
    server = Server("guarded")

    @server.tool
    async def who(ctx: Context) -> str:
        """Say who calls."""
        return ctx.principal

    @server.tool
    async def secret(ctx: Context) -> str:
        """Need a scope."""
        raise InsufficientScope(["files:write", "files:read"])

    @server.tool
    async def late(ctx: Context) -> str:
        """Need a scope after the first word."""
        await ctx.report(1)
        raise InsufficientScope(["files:write"])

    return server


async def ask(place: Place, *lines: str, tool: str = "who") -> Answer:
    client = await place.connect()
    await client.send(client.modern("tools/call", *lines, name=tool, arguments={}))
    return await client.answer()


# The metadata.


@pytest.mark.parametrize("path", PATHS)
async def test_the_metadata_is_there_for_anybody_without_a_token(path: str) -> None:
    more = {"name": "Tools", "documentation": "https://docs.example", "extra": {"x-team": "a", "resource": "no"}}
    async with serving(house(), authenticate=guard(**more)) as place:
        client = await place.connect()
        await client.send(request("GET", path, host=client.host.decode(), origin="https://page.example"))
        answer = await client.answer()
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "*")
        assert answer.json == {
            "resource": URL,
            "authorization_servers": [ISSUER],
            "bearer_methods_supported": ["header"],
            "scopes_supported": ["mcp:use"],
            "resource_name": "Tools",
            "resource_documentation": "https://docs.example",
            "x-team": "a",
        }
        await client.send(request("OPTIONS", path, host=client.host.decode(), origin="https://page.example"))
        answer = await client.answer()
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, "*")
        await client.send(request("DELETE", path, host=client.host.decode()))
        assert (await client.answer()).status == 405


async def test_the_metadata_is_also_where_a_proxy_has_the_endpoint() -> None:
    async with serving(house(), authenticate=guard(url="https://a.example/teams/x/mcp")) as place:
        path = PATHS[0] + "/teams/x/mcp"
        for target, status in ((path, 200), (path + "/more", 404), (PATHS[0] + "/other", 404), (PATHS[0] + "x", 404)):
            answer = await place.ask(request("GET", target, host=f"127.0.0.1:{place.port}"))
            assert answer.status == status


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("given", [None, Guard(Issuer())])
async def test_without_an_issuer_there_is_no_metadata(path: str, given: Guard | None) -> None:
    async with serving(house(), authenticate=given) as place:
        assert (await place.ask(request("GET", path, host=f"127.0.0.1:{place.port}"))).status == 404


# Challenges.


async def test_without_a_token_the_challenge_names_the_metadata_and_the_scopes_and_no_error() -> None:
    async with serving(house(), authenticate=guard()) as place:
        for line in ((), ("Authorization: Basic eDp5",), ("Authorization: bear x",)):
            answer = await ask(place, *line)
            where = "https://tools.example.com/.well-known/oauth-protected-resource/mcp"
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == f'Bearer resource_metadata="{where}", scope="mcp:use"'


@pytest.mark.parametrize(
    ("token", "scheme", "description"),
    [
        ("wrong", "bearer", "the token is invalid"),
        ("expired", "bearer", "the token has expired"),
        ("bound", "dpop", "the token is invalid"),
    ],
)
async def test_a_bad_token_is_named_so(token: str, scheme: str, description: str) -> None:
    async with serving(house(), authenticate=guard(dpop_algorithms=("ES256",))) as place:
        answer = await ask(place, f"Authorization: Bearer {token}")
        said = challenge(answer)
        assert (answer.status, said.scheme, said.error) == (401, scheme, "invalid_token")
        assert said.parameters["error_description"] == description
        assert said.resource_metadata
        assert said.scope == "mcp:use"
        assert said.parameters.get("algs") == (None if scheme == "bearer" else "ES256")


async def test_while_the_issuer_is_down_the_client_keeps_its_login() -> None:
    async with serving(house(), authenticate=guard()) as place:
        answer = await ask(place, "Authorization: Bearer down")
        assert (answer.status, "www-authenticate" in answer.headers) == (503, False)
        assert answer.headers["retry-after"]


async def test_a_token_in_the_query_is_ignored() -> None:
    async with serving(house(), authenticate=guard()) as place:
        client = await place.connect()
        data = client.modern("tools/call", name="who", arguments={}).replace(b"/mcp ", b"/mcp?access_token=ok ")
        await client.send(data)
        assert (await client.answer()).status == 401


async def test_a_good_token_is_looked_at_once() -> None:
    given = guard()
    async with serving(house(), authenticate=given) as place:
        for _ in range(3):
            assert (await ask(place, "Authorization: Bearer ok-a")).status == 200
        assert isinstance(given.authenticator, Issuer)
        assert len(given.authenticator.asked) == 1
        assert given.authenticator.asked[0].url == URL


# Scopes.


async def test_missing_scopes_are_a_403_that_names_them_all() -> None:
    async with serving(house(), authenticate=guard()) as place:
        answer = await ask(place, "Authorization: Bearer ok", tool="secret")
        said = challenge(answer)
        assert (answer.status, said.error, said.scope) == (403, "insufficient_scope", "files:read files:write")
        assert said.resource_metadata == "https://tools.example.com/.well-known/oauth-protected-resource/mcp"
        assert answer.json["id"] is not None
        assert answer.json["error"]["data"] == {"requiredScopes": ["files:read", "files:write"]}


@pytest.mark.parametrize("revision", [Revision.V2025_03_26, Revision.V2025_06_18, Revision.V2025_11_25])
async def test_a_legacy_session_gets_the_403_too(revision: Revision) -> None:
    async with serving(house(), authenticate=guard()) as place:
        session = await OpenSession.open(place, revision, "Authorization: Bearer ok")
        answer = await session.call("secret")
        assert (answer.status, challenge(answer).scope) == (403, "files:read files:write")


async def test_what_has_begun_to_stream_says_it_in_the_error() -> None:
    async with serving(house(), authenticate=guard()) as place:
        client = await place.connect()
        meta: Any = {"meta": {"progressToken": 1}}
        await client.send(client.modern("tools/call", "Authorization: Bearer ok", name="late", arguments={}, **meta))
        said = await (await client.stream_of()).rest()
        assert said[-1]["error"]["data"] == {"requiredScopes": ["files:write"]}


# The end of a token.


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leeway that fits into the patience of a test."""
    monkeypatch.setattr(expiry, "EXPIRY_LEEWAY", 1.0)


def listening(client: Client, token: str) -> bytes:
    wanted: Any = {"notifications": {"toolsListChanged": True}}
    return client.modern("subscriptions/listen", f"Authorization: Bearer {token}", **wanted)


@pytest.mark.usefixtures("soon")
async def test_a_subscription_ends_with_its_token(autojump_clock: MockClock) -> None:
    async with serving(house(), authenticate=guard()) as place:
        client = await place.connect()
        begun = trio.current_time()
        await client.send(listening(client, "for-3"))
        events = await client.stream_of()
        assert (await events.message())["method"] == "notifications/subscriptions/acknowledged"
        assert await events.rest() == []
        assert 3 <= trio.current_time() - begun <= 6
        await client.send(listening(client, "ok"))  # which does not expire
        events = await client.stream_of()
        await events.message()
        with trio.move_on_after(5) as patience:
            await events.rest()
        assert patience.cancelled_caught


@pytest.mark.usefixtures("soon")
async def test_the_stream_of_a_session_ends_with_its_latest_token(autojump_clock: MockClock) -> None:
    async with serving(house(), authenticate=guard()) as place:
        session = await OpenSession.open(place, Revision.V2025_11_25, "Authorization: Bearer for-2")
        reader = await place.connect()
        await reader.send(session.get())
        events = await reader.stream_of()
        begun = trio.current_time()
        again = attrs.evolve(session, lines=("Authorization: Bearer for-6",))
        assert (await again.call("who")).status == 200
        await events.rest()
        assert 5 <= trio.current_time() - begun <= 11
        assert (await again.call("who")).status == 200  # the session goes on


@pytest.mark.usefixtures("soon")
async def test_what_ended_before_its_token_is_not_kept(autojump_clock: MockClock) -> None:
    async with serving(house(), authenticate=guard()) as place:
        for _ in range(3):
            client = await place.connect()
            await client.send(listening(client, "for-1000"))
            events = await client.stream_of()
            await events.message()
            await client.aclose()
            await wait_all_tasks_blocked(0.02)
            del client, events
        gc.collect()
        assert place.host.expiry.facts() == {"open": 0, "ended": 0}
