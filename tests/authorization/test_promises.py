"""Promises about callers, each with its figure: what is one caller's is never another's. The figures are printed."""

import json
import secrets
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.authorization.authority import Authority
from tests.authorization.stage import TABLES, Guarded, ask_at, challenge_of, guarded, message_of, text_of
from tests.authorization.test_login import running
from tests.figures import LONG, figure
from tests.fork_server import forked
from tests.oauth.house import open_house
from tests.shared import APPS
from tests.transports.server.http.sessions import OpenSession
from tests.transports.server.http.stage import Answer, Json

GUESSES: Final = 1_000_000 if LONG else 5_000

TWO_ISSUERS: Final = (
    TABLES
    + """
[[authorization.issuers]]
issuer = "{second}"
tenant = "claim:org"
trust = ["127.0.0.1"]
"""
)

ENGINES: Final = {"native": (), "asgi": ("--http-engine", "asgi"), "workers": ("--workers", "2")}


def plain(answer: Answer) -> tuple[int, dict[str, str], bytes]:
    """All of it, but for the time."""
    return answer.status, {name: value for name, value in answer.headers.items() if name != "date"}, answer.body


# S2: sessions.


@pytest.mark.parametrize("engine", ENGINES)
async def test_s2_a_session_is_unknown_to_all_but_its_caller(engine: str, tmp_path: Path) -> None:
    second = Authority()
    async with open_house(second.house):
        tables = TWO_ISSUERS.replace("{second}", second.url)
        async with guarded(tmp_path, *ENGINES[engine], tables=tables, tokens=f"alice {'x' * 30} mcp:use\n") as here:
            session = await here.session(here.token())
            others = {
                "another principal": here.token(sub="eve"),
                "another client": here.token(client_id="other"),
                "no client": here.token(client_id=None),
                "another tenant": here.token(org="evil"),
                "another issuer": second.token(time.time(), aud=here.url(), scope="mcp:use", org="acme"),
                "the same name in the token file": "x" * 30,
            }
            tried = 0
            for name, token in others.items():
                for known, unknown in zip(*requests_of(session, here, token), strict=True):
                    found, wanted = await here.send(known), await here.send(unknown)
                    assert (found.status, plain(found)) == (404, plain(wanted)), name
                    tried += 1
            renewed = here.token(jti="2", scope="mcp:use files:read", exp=int(time.time()) + 60)
            session.lines = here.lines(renewed)
            assert json.loads(text_of(await session.call("who")))[0] == "alice"
            figure("promise S2", f"{engine}: {tried} requests of {len(others)} other callers, 0 hits", "0")


def requests_of(session: OpenSession, here: Guarded, token: str) -> tuple[list[bytes], list[bytes]]:
    """Requests for this session, and the same for one that there is not, with a token of its own."""
    before, session.lines = session.lines, here.lines(token)
    known = session.every()
    session.id, own = secrets.token_urlsafe(len(session.id) * 3 // 4)[: len(session.id)], session.id
    unknown = session.every()
    session.id, session.lines = own, before
    return known, unknown


async def test_s2_session_ids_cannot_be_guessed(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        sessions = [await here.session(here.token()) for _ in range(50)]
        hits = guessed = 0

        async def guess(count: int) -> None:
            nonlocal hits, guessed
            client = await here.connect()
            for number in range(count):
                session = sessions[number % len(sessions)]
                size = len(session.id)
                if number % 2:
                    other = secrets.token_urlsafe(size)[:size]
                else:  # all but a few characters are right
                    at = number // 2 % (size - 4)
                    other = session.id[:at] + secrets.token_urlsafe(4)[:4] + session.id[at + 4 :]
                ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
                await client.send(session.post(ping, mcp_session_id=other))
                answer = await client.answer()
                hits += answer.status != 404 and other != session.id
                guessed += 1
                if answer.headers.get("connection") == "close":
                    client = await here.connect()

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(guess, GUESSES // 4)
        figure("promise S2", f"{hits} of {guessed} guesses hit one of 50 sessions", "0")
        assert hits == 0


# S3: what a modern client holds.


@pytest.mark.parametrize("engine", ENGINES)
async def test_s3_a_state_handle_is_good_for_its_caller_alone(engine: str, tmp_path: Path) -> None:
    async with guarded(tmp_path, *ENGINES[engine]) as here:
        mine = here.token()
        others = [here.token(sub="eve"), here.token(client_id="other"), here.token(org="evil")]
        client, tried = await here.connect(), 0
        for _ in range(8):
            asked = message_of(await here.call("sign_up", mine))["result"]
            (key,) = asked["inputRequests"]
            replies = {key: {"action": "accept", "content": {"name": "Ada"}}}
            again = {
                "name": "sign_up",
                "arguments": {},
                "requestState": asked["requestState"],
                "inputResponses": replies,
            }
            for token in others:
                answer = await here.modern("tools/call", token=token, **again)
                assert message_of(answer)["error"]["code"] == -32602
                tried += 1
            answer = await here.modern("tools/call", "Mcp-Session-Id: abc", token=here.token(jti="2"), **again)
            assert text_of(answer) == "Ada"
            assert "mcp-session-id" not in answer.headers
        await client.aclose()
        figure("promise S3", f"{engine}: {tried} handles of other callers, 0 accepted", "0")


# S5: scopes.


async def test_s5_a_challenge_names_the_scopes_of_the_operation_and_no_others(tmp_path: Path) -> None:
    rules = """
[[authorization.rules]]
tools = ["who"]
needs = ["people:read"]
[[authorization.rules]]
tools = ["secret"]
needs = ["payroll:read"]
[authorization.implies]
"files:all" = ["files:read", "files:write"]
"""
    async with guarded(tmp_path, tables=TABLES + rules) as here:
        for tool, scope in (
            ("who", "mcp:use people:read"),
            ("secret", "mcp:use payroll:read"),
            ("write", "files:read files:write mcp:use"),
        ):
            answer = await here.call(tool, here.token())
            said = challenge_of(answer).parameters
            assert (answer.status, said["error"]) == (403, "insufficient_scope")
            assert " ".join(sorted(said["scope"].split())) == scope
        assert text_of(await here.call("write", here.token(scope="mcp:use files:all"))) == "written"
        figure("promise S5", "3 operations, each challenge names its own scopes and no other", "")


# S12: tenants behind one broker.

TENANTS: Final = ("red", "green", "blue", "gold")
USERS: Final = ("one", "two")
SHARES: Final = {"alone": "principal", "team": "tenant", "modern": "all"}


def token_of(tenant: str, user: str) -> str:
    return f"0123456789abcdef-{tenant}-{user}"


def canary_of(tenant: str, user: str, number: int) -> str:
    return f"canary.{tenant}.{user}.{number}"


@pytest.fixture(scope="module", params=["1", "2"], ids=["one process", "two workers"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a broker: a legacy backend for each principal, one for each tenant, a modern one for all."""
    folder = tmp_path_factory.mktemp("broker")
    program, *arguments = (*forked(), "run", str(APPS / "memory.py"))
    servers = {}
    for name, share in SHARES.items():
        era = {} if share == "all" else {"revision": "2025-11-25"}
        own = {"share": share, "trusted": True, "max_connections": 32, **era}
        servers[name] = {"command": program, "args": arguments, "callboard": own}
    config, tokens = folder / "servers.json", folder / "tokens"
    config.write_text(json.dumps({"mcpServers": servers}))
    tokens.touch(0o600)
    people = [(tenant, user) for tenant in TENANTS for user in USERS]
    tokens.write_text("".join(f"{user} {token_of(tenant, user)} tenant={tenant}\n" for tenant, user in people))
    options = ["--http", "127.0.0.1:0", "--token-file", str(tokens), "--workers", request.param, "--json"]
    with running([*forked(), "serve", str(config), *options]) as said:
        yield next(one["url"] for one in said["listening"] if one["transport"] == "http")


@attrs.frozen
class Move:
    """One request of one user."""

    tenant: str
    user: str
    server: str
    kind: str
    turns: int


moves = st.builds(
    Move,
    st.sampled_from(TENANTS),
    st.sampled_from(USERS),
    st.sampled_from(tuple(SHARES)),
    st.sampled_from(("echo", "remember", "recall", "mine", "all", "list")),
    st.integers(0, 20),
)
counted: dict[str, int] = {}


@settings(max_examples=400 if LONG else 15)
@given(plan=st.lists(moves, min_size=8, max_size=60))
async def test_s12_no_tenant_reads_a_byte_of_another(broker: str, plan: list[Move]) -> None:
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for number, move in enumerate(plan):
                nursery.start_soon(check_move, broker, move, number)
    counted[broker] = counted.get(broker, 0) + len(plan)


async def check_move(url: str, move: Move, number: int) -> None:
    token, own = token_of(move.tenant, move.user), canary_of(move.tenant, move.user, number)
    name, text = f"{move.server}__{move.kind}", {"text": own}
    if move.server == "modern" and move.kind in ("remember", "recall", "mine"):
        name = "modern__echo"  # its process is one for all, by its operator's word
    if move.kind == "list":
        answer = await ask_at(url, "tools/list", token=token)
    elif name.endswith(("__all", "__mine")):
        answer = await ask_at(url, "resources/read", token=token, uri=f"memory://{move.kind}")
    elif name.endswith("__echo"):
        answer = await ask_at(url, "tools/call", token=token, name=name, arguments={**text, "turns": move.turns})
    else:
        arguments = text if move.kind == "remember" else {}
        answer = await ask_at(url, "tools/call", token=token, name=name, arguments=arguments)
    said = answer.body.decode()
    # Three backends have the same resources, and the first of them to come up is read.
    is_shared = move.server == "team" or move.kind == "mine"
    allowed = [f"canary.{move.tenant}.{user}." for user in USERS if user == move.user or is_shared]
    foreign = [word for word in said.split("canary.")[1:] if not f"canary.{word}".startswith(tuple(allowed))]
    assert foreign == [], (move, said)
    if name.endswith(("__echo", "__remember")):
        assert answer.status == 200, answer
        assert own in said
    if '"cacheScope":"public"' in said.replace(" ", ""):
        assert "canary" not in said


def test_s12_the_figure() -> None:
    for requests in counted.values():
        figure(
            "promise S12", f"{len(TENANTS)} tenants, {len(USERS)} users each, {requests} requests: 0 foreign bytes", "0"
        )


# S24: what is forbidden looks unknown.

HIDING: Final = '\n[[authorization.rules]]\ntools = ["secret"]\nonly = {tenant = "other"}\n'
ROUNDS: Final = 500


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_s24_a_forbidden_tool_is_as_an_unknown_one_in_bytes_and_time(era: str, tmp_path: Path) -> None:
    async with guarded(tmp_path, tables=TABLES + HIDING) as here:
        token = here.token()
        session, client = await here.session(token), await here.connect()

        def request(name: str) -> bytes:
            if era == "modern":
                return client.modern("tools/call", *here.lines(token), name=name, arguments={})
            return session.post(session.request("tools/call", id=1, name=name, arguments={}))

        way = client if era == "modern" else session.client
        took: dict[str, list[float]] = {"secret": [], "sacred": []}
        bodies: dict[str, set[bytes]] = {"secret": set(), "sacred": set()}
        for number in range(2 * ROUNDS):
            names = ("secret", "sacred") if number % 2 else ("sacred", "secret")
            for name in names:
                data = request(name)
                began = time.perf_counter()
                await way.send(data)
                answer = await way.answer()
                took[name].append(time.perf_counter() - began)
                bodies[name].add(unnamed(answer, name))
        assert bodies["secret"] == bodies["sacred"]
        hidden, unknown = (statistics.median(took[name][ROUNDS // 2 :]) for name in took)
        figure(
            "promise S24",
            f"{era}: forbidden/unknown median {hidden / unknown:.3f} ({hidden * 1e6:.0f} us)",
            "0.8 to 1.25",
        )
        assert 0.8 < hidden / unknown < 1.25


def unnamed(answer: Answer, name: str) -> bytes:
    said: Json = json.loads(answer.body)
    said.pop("id", None)
    headers = {key: value for key, value in answer.headers.items() if key not in ("date", "mcp-session-id")}
    return f"{answer.status} {headers} {json.dumps(said)}".replace(name, "NAME").encode()
