"""Users of a broker log in at a server behind it: the pages, who may follow them, and whose the tokens are (S6)."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import trio
from trio.testing import MockClock

from callboard.codecs.caller import Caller
from callboard.codecs.revisions import LATEST, Revision
from callboard.codecs.revisions.revision import R3, R4
from callboard.errors import Overloaded
from callboard.oauth import login_desk
from callboard.oauth.login_desk import LOGIN_TIME, MAX_PENDING_EACH, LoginDesk, LoginRefused, PendingLogin
from callboard.oauth.sealed_store import BoundedStore, open_store
from callboard.serve.login_pages import LoginPages
from callboard.supervisor import render
from callboard.supervisor.audit import taking_notes
from callboard.testing import Peer, Refusal
from callboard.transports.server.http.guard import guard_of
from tests.broker.front import peer, texts
from tests.oauth.town import visit
from tests.serve.browser import Browser, Scene, Upstream, open_scene

ERAS = pytest.mark.parametrize("revision", [LATEST, R4], ids=["modern client", "legacy client"])
BACKENDS = pytest.mark.parametrize("is_modern", [True, False], ids=["modern server", "legacy server"])
URL_MODE: dict[str, Any] = {"elicitation": {"url": {}}}
ALICE = Caller(principal="alice", tenant="acme", issuer="https://id.example.com", client_id="ide")


@asynccontextmanager
async def user(
    scene: Scene,
    caller: Caller = ALICE,
    revision: Revision = LATEST,
    follow: Callable[[Browser, str], Any] | None = None,
    action: str = "accept",
) -> AsyncIterator[Peer]:
    """A client of *caller*'s, who opens each page that it is sent to in a browser of its own."""
    browser = scene.browser()
    async with trio.open_nursery() as nursery:

        def asked(params: dict[str, Any]) -> dict[str, Any]:
            assert params["mode"] == "url"
            if action == "accept":
                nursery.start_soon(follow or Browser.log_in, browser, params["url"])
            return {"action": action}

        answers = {"elicitation/create": asked}
        async with peer(scene.place.host, revision, principal=caller, capabilities=URL_MODE, answers=answers) as client:
            yield client
        nursery.cancel_scope.cancel()


async def page_of(scene: Scene, caller: Caller = ALICE) -> str:
    """The page that a call of *caller*'s would be sent to."""
    return await scene.login.begin(caller)


# The whole way.


@BACKENDS
@ERAS
async def test_a_call_goes_on_after_the_user_has_logged_in(revision: Revision, *, is_modern: bool) -> None:
    notes: list[tuple[str, Any]] = []
    with taking_notes(lambda event, fields: notes.append((event, fields.get("caller")))):
        async with open_scene(is_modern=is_modern, scopes=("read", "write")) as scene:
            async with user(scene, revision=revision) as client:
                for _ in range(3):
                    assert texts([await client.call("look")]) == ["seen"]
            [token] = scene.giver.tokens
            assert scene.upstream.shown() == [token] * 3
            assert scene.redeemed() == 1
            [sent] = scene.giver.visits("/authorize")
            assert sent.query["redirect_uri"] == f"{scene.desk.origin}/callboard/callback"
            assert sent.query["code_challenge_method"] == "S256"
            assert sent.query["resource"] == scene.upstream.url
            assert sent.query["scope"] == "read write"
            assert len(scene.desk) == 0
    assert [caller.key for event, caller in notes if event == "upstream_token_obtained"] == [ALICE.key]


async def test_the_page_names_server_user_and_scopes_and_cannot_be_framed() -> None:
    async with open_scene(scopes=("read",)) as scene:
        answer = await scene.browser().ask("GET", await page_of(scene))
        body = answer.body.decode()
        assert all(text in body for text in ("back", "alice", "read", scene.giver.house.url))
        assert "<script" not in body
        assert answer.headers["content-security-policy"] == (
            "default-src 'none'; style-src 'unsafe-inline'; "
            f"form-action 'self' {scene.giver.house.url}; frame-ancestors 'none'"
        )
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-content-type-options"] == "nosniff"
        name, *rules = answer.headers["set-cookie"].split("; ")
        assert re.fullmatch(r"callboard-login=[\w-]{43}", name)
        assert rules == ["Path=/", "HttpOnly", "SameSite=Lax", "Max-Age=600"]
        scene.desk.origin = "https://mcp.example.com"
        told = (await scene.browser().ask("GET", await page_of(scene))).headers["set-cookie"]
        assert told.startswith("__Host-callboard-login=")
        assert told.endswith("; Secure")


async def test_a_user_who_says_no_is_not_asked_again() -> None:
    async with open_scene() as scene, user(scene, action="decline") as client:
        with pytest.raises(Refusal, match="the user did not open the page"):
            await client.call("look")
        assert scene.redeemed() == 0


@pytest.mark.parametrize(("revision", "capabilities"), [(LATEST, {}), (R4, {}), (R3, {"elicitation": {}})])
async def test_a_client_that_cannot_be_asked_is_told_the_page(revision: Revision, capabilities: dict[str, Any]) -> None:
    async with (
        open_scene() as scene,
        peer(scene.place.host, revision, principal=ALICE, capabilities=capabilities) as client,
    ):
        with pytest.raises(Refusal) as caught:
            await client.request("tools/call", name="look", arguments={})
        told = caught.value
        assert told.code == (-32042 if revision is R4 else -32603)
        if revision is R4:
            [asked] = told.data["elicitations"]
            assert asked["mode"] == "url"
            url = asked["url"]
        else:
            [url] = re.findall(r"http://\S+", str(told))
        assert (await scene.browser().log_in(url)).status == 200
        result = await client.request("tools/call", name="look", arguments={})
        assert texts([result]) == ["seen"]


async def test_a_caller_without_a_name_gets_no_page() -> None:
    async with open_scene() as scene, peer(scene.place.host, capabilities=URL_MODE) as client:
        with pytest.raises(Refusal, match="needs a caller that is authenticated"):
            await client.request("tools/call", name="look", arguments={})
        assert len(scene.desk) == 0


# Who may follow (S6).


async def test_a_step_that_is_missing_foreign_or_repeated_redeems_no_code() -> None:
    async with open_scene() as scene:
        url = await page_of(scene)
        browser, other = scene.browser(), scene.browser()
        assert (await browser.ask("POST", url)).status == 400  # the page was not seen
        assert (await browser.ask("GET", url)).status == 200
        assert (await other.ask("POST", url)).status == 400  # no cookie
        other.cookie = "callboard-login=" + "A" * 43
        assert (await other.ask("POST", url)).status == 400  # another one
        twice = f"{browser.cookie}; callboard-login=x"
        assert (await Browser(scene.place, twice).ask("POST", url)).status == 400
        assert (await browser.ask("POST", url, origin="https://evil.example.com")).status == 400
        assert (await browser.ask("POST", url, sec_fetch_site="cross-site")).status == 400
        answer = await browser.ask("POST", url, origin=scene.desk.origin)
        assert answer.status == 303
        assert (await browser.ask("POST", url)).status == 400  # once only
        assert (await browser.ask("GET", url)).status == 400
        back = await visit(answer.headers["location"])
        query = urlsplit(back).query
        page = back.partition("?")[0]
        for wrong in ("", "code=c", f"{query}&state=x", query.replace("state=", "state=A"), "code=c&state=" + "A" * 43):
            assert (await browser.ask("GET", f"{page}?{wrong}")).status == 400
        assert scene.redeemed() == 0
        assert (await browser.ask("GET", back)).status == 200
        assert scene.redeemed() == 1
        assert (await browser.ask("GET", back)).status == 400
        assert scene.redeemed() == 1


async def test_a_code_that_comes_in_another_browser_is_not_redeemed() -> None:
    async with open_scene() as scene:
        browser = scene.browser()
        back = await visit(await browser.agree(await page_of(scene)))
        assert (await scene.browser().ask("GET", back)).status == 400
        assert (await browser.ask("GET", back)).status == 400  # the state is used
        assert scene.redeemed() == 0


async def test_a_redirect_of_another_issuer_or_without_one_is_refused() -> None:
    async with open_scene() as scene:
        for iss in ("https://evil.example.com", ""):
            scene.giver.iss = iss
            answer = await scene.browser().log_in(await page_of(scene))
            assert answer.status == 400
        assert scene.redeemed() == 0


async def test_a_refusal_of_the_authorization_server_is_said_and_noted() -> None:
    notes: list[str] = []
    with taking_notes(lambda event, _: notes.append(event)):
        async with open_scene() as scene:
            scene.giver.error = "access_denied"
            answer = await scene.browser().log_in(await page_of(scene))
            assert answer.status == 400
            assert b"access_denied" in answer.body
    assert "upstream_token_failed" in notes


async def test_nothing_in_a_request_chooses_where_the_browser_goes() -> None:
    async with open_scene() as scene:
        url, browser = await page_of(scene), scene.browser()
        evil = "https://evil.example.com/"
        assert (await browser.ask("GET", f"{url}?redirect_uri={evil}")).status == 200
        head = {"referer": evil, "x_forwarded_host": "evil.example.com"}
        answer = await browser.ask("POST", f"{url}?redirect_uri={evil}&next={evil}", **head)
        location = answer.headers["location"]
        assert location.startswith(f"{scene.giver.house.url}/authorize?")
        assert "evil" not in location
        sent = parse_qs(urlsplit(location).query)
        assert sent["redirect_uri"] == [f"{scene.desk.origin}/callboard/callback"]
        assert len(sent["state"][0]) == 43
        assert sent["state"][0] not in url


@pytest.mark.parametrize(("method", "path"), [("DELETE", "login"), ("POST", "callback"), ("PUT", "callback")])
async def test_other_methods_and_paths_are_refused(method: str, path: str) -> None:
    async with open_scene() as scene:
        url = await page_of(scene) if path == "login" else "/callboard/callback"
        assert (await scene.browser().ask(method, url)).status == 405
        for other in ("/callboard/", "/callboard/login/", "/callboard/login/x", "/callboard/callback/x"):
            assert (await scene.browser().ask("GET", other)).status == 404


# Whose the tokens are.


@BACKENDS
async def test_users_at_once_never_get_the_tokens_of_each_other(*, is_modern: bool) -> None:
    count, codes = 20, dict[str, str]()
    async with open_scene(is_modern=is_modern) as scene:
        names = [f"user-{number}" for number in range(count)]

        async def call(name: str) -> None:
            async def follow(browser: Browser, url: str) -> None:
                at = await browser.agree(url)
                back = await visit(at)
                codes[parse_qs(urlsplit(back).query)["code"][0]] = name
                assert (await browser.ask("GET", back)).status == 200

            async with user(scene, Caller(principal=name), follow=follow) as client:
                for _ in range(3):
                    result = await client.request("tools/call", name="look", arguments={"who": name})
                    while result.get("resultType") == "input_required":
                        answers = client.answered(result)
                        result = await client.request("tools/call", name="look", arguments={"who": name}, **answers)

        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(call, name)
        forms = [asked.form for asked in scene.giver.visits("/token")]
        given = dict(zip(scene.giver.tokens, (codes[form["code"]] for form in forms), strict=True))
        assert len(given) == count
        calls = scene.upstream.calls()
        assert len(calls) == 3 * count
        for seen in calls:
            token = (seen.header("authorization") or "").removeprefix("Bearer ")
            assert given[token] == seen.json["params"]["arguments"]["who"]


async def test_tokens_are_refreshed_once_and_forgotten_when_that_is_refused() -> None:
    async with open_scene(refreshes=True) as scene, user(scene) as client:
        await client.call("look")
        [first] = scene.giver.tokens
        del scene.giver.tokens[first]  # it is not good any more

        async def call() -> None:
            async with user(scene) as another:
                await another.call("look")

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(call)
        refreshes = [one for one in scene.giver.visits("/token") if one.form["grant_type"] == "refresh_token"]
        assert len(refreshes) == 1
        assert scene.redeemed() == 1
        scene.giver.tokens.clear()
        scene.giver.refreshers.clear()
        with pytest.raises(Refusal, match="needs a login"):
            await client.call("look")
        await client.call("look")  # which asks for a login
        assert scene.redeemed() == 2


async def test_a_new_token_that_the_server_refuses_is_forgotten() -> None:
    async with open_scene(refreshes=True) as scene, user(scene) as client:
        scene.upstream.good = set()
        for redeemed in (1, 2):
            with pytest.raises(Refusal, match="needs a login"):
                await client.call("look")
            assert scene.redeemed() == redeemed
        assert len(scene.upstream.calls()) == 4  # each token, and what it was refreshed to


async def test_lists_that_need_a_token_need_a_login_of_the_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(Upstream, "lists_need_token", True)
    async with open_scene() as scene:
        [status] = scene.broker.behind().missing
        assert "its lists need a login of the operator's: run callboard login" in status.why


# Bounds.


async def test_logins_that_have_begun_are_few_and_end_after_a_while(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_desk, "MAX_PENDING", 20)
    desk = LoginDesk("http://127.0.0.1", BoundedStore())

    def begin(key: str) -> str:
        login: Any = {"found": None, "client": None, "reach": None, "redeem": None}
        return desk.begin(PendingLogin(key=key, backend="back", scopes=(), **login)).rpartition("/")[2]

    states = [begin("alice") for _ in range(MAX_PENDING_EACH + 1)]
    assert len(desk) == MAX_PENDING_EACH
    with pytest.raises(LoginRefused):
        desk.show(states[0])  # the oldest made room
    desk.show(states[1])
    await trio.sleep(LOGIN_TIME - 1)
    for number in range(20 - MAX_PENDING_EACH):
        begin(f"user-{number}")
    with pytest.raises(Overloaded):
        begin("one too many")
    await trio.sleep(1)
    with pytest.raises(LoginRefused):
        desk.show(states[1])
    begin("and now")
    assert len(desk) == 20 - MAX_PENDING_EACH + 1


# Tokens at rest.


async def test_tokens_are_kept_encrypted_and_nowhere_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(0)
    folder, key, said = tmp_path / "tokens", b"k" * 32, ""
    async with open_scene(store=open_store(folder, [key]), refreshes=True) as scene:
        for number in range(10):
            async with user(scene, Caller(principal=f"user-{number}")) as client:
                said += repr(await client.call("look"))
        canaries = [*scene.giver.tokens, *scene.giver.refreshers]
        said += repr(scene.desk) + render(scene.place.host.root.tree())
        assert len(canaries) == 20
        files = [path for path in folder.iterdir() if path.is_file()]
        assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
        said += "".join(path.name + path.read_bytes().decode("latin-1") for path in files)
        said += caplog.text + "".join(capfd.readouterr())
        assert len(files) == 11  # and the client that was registered
        assert not [canary for canary in canaries if canary in said]
        # Another process goes on with them.
        again = LoginDesk(scene.desk.origin, open_store(folder, [b"n" * 32, key]))
        scene.login.desk = again
        scene.login._kept.clear()
        async with user(scene, Caller(principal="user-3")) as client:
            await client.call("look")
        assert scene.redeemed() == 10


async def test_pages_are_none_of_the_endpoint_and_need_no_token() -> None:
    async with open_scene() as scene:
        url = await page_of(scene)

        async def nobody(_: str) -> None:
            return None

        scene.place.endpoint.guard = guard_of(nobody)
        assert (await scene.browser().ask("GET", url)).status == 200
        assert (await scene.browser().ask("GET", "/mcp")).status == 401
        assert not LoginPages(scene.desk).has(b"/mcp")
