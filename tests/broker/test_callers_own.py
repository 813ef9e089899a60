"""What of a caller goes to a backend: what is configured, for that caller's requests, and never its own token."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from callboard.broker import Broker
from callboard.client import connect
from callboard.codecs.caller import Caller, read_caller, write_caller
from callboard.codecs.caller_template import CallerField
from callboard.codecs.revisions import LATEST, Revision
from callboard.codecs.revisions.revision import R4
from callboard.config import Remote
from callboard.config.model import PersonalCommand
from callboard.server import Server
from callboard.testing import Refusal
from callboard.transports.server.websocket.upgrade import WebSocketUpgrade
from tests.broker.callers import Dump, calling, dumping, exchanged, spec, written
from tests.broker.front import brokered, texts
from tests.oauth.house import Asked, Said, open_house
from tests.oauth.town import Giver, basic
from tests.transports.server.http.stage import Place, serving

CANARY = "c4n4ry-token-of-the-caller"
ERAS = pytest.mark.parametrize("revision", [LATEST, R4], ids=["modern client", "legacy client"])
BACKENDS = pytest.mark.parametrize("is_modern", [True, False], ids=["modern server", "legacy server"])


def caller(name: str, token: str | None = None, **said: Any) -> Caller:
    return Caller(principal=name, token=token or f"token-of-{name}", **said)


class Exchanger(Giver):
    """An authorization server that tells which token it gave for which."""

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[str, str] = {}
        self.house.rooms["/token"] = self._exchange

    def _exchange(self, asked: Asked) -> Said:
        said = self._token(asked)
        if said.status == 200 and self.tokens:
            token = list(self.tokens)[-1]
            self.given[token] = asked.form.get("subject_token", "")
        return said

    def exchanges(self) -> list[Asked]:
        return [asked for asked in self.visits("/token") if "subject_token" in asked.form]


# The token of a caller itself.


async def authenticate(token: str) -> Caller | None:
    return caller("alice", token) if token == CANARY else None


@ERAS
@pytest.mark.parametrize("kind", ["http", "legacy http", "stdio", "websocket", "exchange"])
async def test_the_token_of_a_caller_reaches_no_backend(
    kind: str, revision: Revision, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(0)
    giver, dump, file, seen = Exchanger(), Dump(is_modern=kind != "legacy http"), tmp_path / "dump", ""
    said: list[object] = []
    tools = Server("socket")

    @tools.tool
    async def look() -> str:
        return "seen"

    async with open_house(giver.house), open_house(dump.house), serving(tools) as place:
        door = WebSocketUpgrade(place.host, place.endpoint.settings, None)

        async def upgrade(head: Any, *rest: Any) -> Any:
            said.append((head.target, head.headers))
            return await door.serve(head, *rest)

        place.endpoint.on_upgrade = upgrade
        backend = {
            "stdio": spec(dumping(file)),
            "websocket": spec(Remote(url=f"ws://127.0.0.1:{place.port}/mcp")),
            "exchange": exchanged(dump.url, giver.house.url),
        }.get(kind, spec(Remote(url=dump.url), pass_headers=("x-request-id",)))
        broker = cast("Server", Broker([backend]))
        async with serving(broker, authenticate=authenticate) as front:
            await _post(front, revision, "look", {"Authorization": f"Bearer {CANARY}", "X-Request-Id": "r-1"})
        seen = dump.said() + repr(said) + (file.read_text() if file.exists() else "")
    assert len(seen) > 100
    assert CANARY not in seen
    assert CANARY not in caplog.text + "".join(capfd.readouterr())
    assert [asked.form["subject_token"] for asked in giver.exchanges()] == ([CANARY] if kind == "exchange" else [])


def test_a_token_is_told_to_other_workers_and_shown_to_nobody() -> None:
    alice = caller("alice", CANARY)
    assert read_caller(write_caller(alice)).token == CANARY
    assert read_caller(write_caller(Caller(principal="alice"))).token is None
    assert CANARY not in repr(alice) + alice.key


# Token exchange.


@BACKENDS
@ERAS
async def test_a_token_is_exchanged_once_and_the_other_one_is_shown(revision: Revision, *, is_modern: bool) -> None:
    giver, dump = Exchanger(), Dump(is_modern=is_modern)
    async with open_house(giver.house), open_house(dump.house):
        backend = exchanged(dump.url, giver.house.url, audience="there", scopes=("read",))
        with trio.fail_after(20):
            async with brokered(backend) as host, calling(host, caller("alice"), revision) as client:
                for _ in range(3):
                    assert texts([await client.request("tools/call", name="look", arguments={})]) == ["seen"]
        [asked] = giver.exchanges()
        assert basic(asked) == ("me", "hush")
        assert asked.form == {
            "client_id": "me",
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "subject_token": "token-of-alice",
            "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "audience": "there",
            "scope": "read",
        }
        assert {call.header("authorization") for call in dump.calls()} == {f"Bearer {next(iter(giver.given))}"}


@BACKENDS
async def test_each_request_shows_the_token_of_its_own_caller(*, is_modern: bool) -> None:
    giver, dump = Exchanger(), Dump(is_modern=is_modern, needs_token=True)
    names = [f"user-{number}" for number in range(8)]
    dump.good = cast("set[str]", giver.tokens)  # what was given is good, until it is revoked
    async with open_house(giver.house), open_house(dump.house), trio.open_nursery() as nursery:
        dump.issuer = giver.house.url
        async with brokered(exchanged(dump.url, giver.house.url)) as host:

            async def call(name: str) -> None:
                async with calling(host, caller(name)) as client:
                    for number in range(12):
                        await client.request("tools/call", name="look", arguments={"who": name})
                        if number % 4 == 3:  # the server has had enough of this token: another is had
                            for token in [token for token, whose in giver.given.items() if whose == f"token-of-{name}"]:
                                giver.tokens.pop(token, None)

            with trio.fail_after(60):
                async with trio.open_nursery() as callers:
                    for name in names:
                        callers.start_soon(call, name)
        nursery.cancel_scope.cancel()
    shown = [(call.json["params"]["arguments"]["who"], call.header("authorization") or "") for call in dump.calls()]
    assert len(shown) >= 8 * 12
    wrong = [who for who, header in shown if giver.given[header.removeprefix("Bearer ")] != f"token-of-{who}"]
    assert wrong == []
    assert len(giver.exchanges()) >= 3 * len(names)


async def test_two_tokens_of_one_principal_are_not_mixed_up() -> None:
    giver, dump = Exchanger(), Dump()
    async with open_house(giver.house), open_house(dump.house), brokered(exchanged(dump.url, giver.house.url)) as host:
        for token in ("narrow", "broad", "narrow"):
            async with calling(host, caller("alice", token)) as client:
                await client.request("tools/call", name="look", arguments={"who": token})
    shown = {call.json["params"]["arguments"]["who"]: call.header("authorization") or "" for call in dump.calls()}
    assert {giver.given[header.removeprefix("Bearer ")]: who for who, header in shown.items()} == {
        "narrow": "narrow",
        "broad": "broad",
    }


async def test_an_exchange_that_is_refused_fails_that_call_alone(caplog: pytest.LogCaptureFixture) -> None:
    giver, dump, other = Exchanger(), Dump(), Dump()
    async with open_house(giver.house), open_house(dump.house), open_house(other.house):
        plain = spec(Remote(url=other.url), "other", prefix="other")
        async with (
            brokered(exchanged(dump.url, giver.house.url), plain) as host,
            calling(host, caller("alice", CANARY)) as client,
        ):
            giver.refusals = [Said.json({"error": "invalid_target", "error_description": f"not {CANARY}"}, 400)]
            with pytest.raises(Refusal) as refused:
                await client.request("tools/call", name="look", arguments={})
            assert "back: the token endpoint returned an error: invalid_target" in str(refused.value)
            assert CANARY not in f"{refused.value}{refused.value.data}{caplog.text}"
            with pytest.raises(Refusal):  # it is not asked for again and again
                await client.request("tools/call", name="look", arguments={})
            assert len(giver.exchanges()) == 1
            assert texts([await client.request("tools/call", name="other__look", arguments={})]) == ["seen"]
    assert dump.calls() == []


async def test_an_authorization_server_that_gives_the_same_token_back_is_refused() -> None:
    giver, dump = Exchanger(), Dump()
    async with open_house(giver.house), open_house(dump.house), brokered(exchanged(dump.url, giver.house.url)) as host:
        giver.refusals = [Said.json({"access_token": CANARY, "token_type": "Bearer"})]
        async with calling(host, caller("alice", CANARY)) as client:
            with pytest.raises(Refusal, match="back: the authorization server gave no token"):
                await client.request("tools/call", name="look", arguments={})
    assert CANARY not in dump.said()


@pytest.mark.parametrize("whose", [Caller(), Caller(principal="alice")], ids=["nobody", "without a token"])
async def test_a_caller_without_a_token_is_told_so(whose: Caller) -> None:
    giver, dump = Exchanger(), Dump()
    async with open_house(giver.house), open_house(dump.house):
        backend = exchanged(dump.url, giver.house.url)
        async with brokered(backend) as host, calling(host, whose) as client:
            with pytest.raises(Refusal, match="back: needs a"):
                await client.request("tools/call", name="look", arguments={})
    assert dump.calls() == giver.exchanges() == []


def test_a_broker_says_whether_it_needs_the_tokens_of_callers() -> None:
    assert Broker([exchanged("https://a.example/mcp", "https://b.example")]).wants_tokens
    assert not Broker([spec(Remote(url="https://a.example/mcp"))]).wants_tokens


# Templates.

WHO: Mapping[str, Any] = {"X-Who": ("<", CallerField("principal"), ">"), "X-Groups": (CallerField("claim:groups"),)}


@BACKENDS
async def test_headers_name_the_caller(*, is_modern: bool) -> None:
    dump = Dump(is_modern=is_modern)
    async with open_house(dump.house):
        backend = spec(Remote(url=dump.url, headers={"X-All": "1"}, templates=WHO))
        async with brokered(backend) as host:
            for name in ("alice", "bob", "alice"):
                async with calling(host, caller(name, claims={"groups": ["a", name]})) as client:
                    await client.request("tools/call", name="look", arguments={"who": name})
    for call in dump.calls():
        name = call.json["params"]["arguments"]["who"]
        shown = [call.header(header) for header in ("x-who", "x-groups", "x-all")]
        assert shown == [f"<{name}>", f"a,{name}", "1"]
    lists = [asked for asked in dump.house.asked if asked.body and asked.json.get("method") == "tools/list"]
    assert lists
    assert all(asked.header("x-who") is None for asked in lists)


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({}, "the caller has no claim 'groups'"),
        ({"groups": {}}, "the caller has no claim 'groups'"),
        ({"groups": ["a,b"]}, "the caller has no claim 'groups'"),
        ({"groups": "a\r\nX-Admin: 1"}, "has characters"),
        ({"groups": "\u00e4"}, "has characters"),
        ({"groups": "x" * 5000}, "longer than"),
    ],
)
async def test_a_caller_that_cannot_be_named_is_refused(claims: Any, why: str) -> None:
    dump = Dump()
    async with open_house(dump.house):
        backend = spec(Remote(url=dump.url, templates=WHO))
        async with brokered(backend) as host, calling(host, caller("alice", claims=claims)) as client:
            with pytest.raises(Refusal, match=why):
                await client.request("tools/call", name="look", arguments={})
    assert dump.calls() == []


async def test_a_program_has_a_process_for_each_caller(tmp_path: Path) -> None:
    plain = dumping(tmp_path / "dump", ALL="1")
    who: Mapping[str, Any] = {"WHO": (CallerField("claim:email"),)}
    command = PersonalCommand(args=plain.args, env=plain.env, templates=who)
    with trio.fail_after(20):
        async with brokered(spec(command)) as host:
            for name in ("alice", "bob", "alice"):
                async with calling(host, caller(name, claims={"email": f"{name}@example.com"})) as client:
                    said = await client.request("tools/call", name="look", arguments={})
                    assert texts([said]) == [f"{name}@example.com"]
            async with calling(host, caller("carol", claims={"email": "a\0b"})) as client:
                with pytest.raises(Refusal, match="has characters"):
                    await client.request("tools/call", name="look", arguments={})
    started = [one for one in written(tmp_path / "dump") if isinstance(one, list)]
    assert sorted(env.get("WHO", "") for env, _ in started) == ["", "alice@example.com", "bob@example.com"]
    assert all(env["ALL"] == "1" and "example.com" not in repr(args) for env, args in started)


# Headers that are passed on.


@ERAS
async def test_headers_of_a_request_go_on_if_they_are_named(revision: Revision) -> None:
    dump, other = Dump(), Dump()
    async with open_house(dump.house), open_house(other.house):
        named = spec(Remote(url=dump.url), pass_headers=("x-request-id",))
        silent = spec(Remote(url=other.url), "other", prefix="other")
        async with serving(cast("Server", Broker([named, silent]))) as place:
            for tool, number in (("look", "r-1"), ("look", "r-2"), ("other__look", "r-3")):
                await _post(place, revision, tool, {"X-Request-Id": number, "X-Other": "no", "Cookie": CANARY})
    assert [call.header("x-request-id") for call in dump.calls()] == ["r-1", "r-2"]
    assert [call.header("x-request-id") for call in other.calls()] == [None]
    assert "no" not in [call.header("x-other") for call in dump.calls()]
    assert CANARY not in dump.said() + other.said()


async def _post(place: Place, revision: Revision, tool: str, headers: dict[str, str]) -> None:
    async with connect(f"http://127.0.0.1:{place.port}/mcp", headers=headers, revision=revision) as client:
        await client.call(tool)
