"""A user is asked in the browser, and comes back to a listener that takes one redirect and nothing else."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import trio
from trio.testing import MockClock

from callboard.client import connect
from callboard.errors import CannotConnect, NotAuthorized
from callboard.oauth import AuthorizationCode, Browser, Headless, MemoryStore, OAuth
from callboard.oauth.consent import CONSENT_TIME
from callboard.oauth.loopback import MAX_VISITORS, REQUEST_TIME, Loopback, listen
from tests.oauth.house import Asked, Said
from tests.oauth.town import Town, look, open_town, visit


def ask(url: str, *, host: str | None = None, request: bytes | None = None) -> bytes:
    """What the listener answers, as a browser would hear it. Blocking: browsers are other programs."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    with closing(socket.create_connection((parts.hostname, parts.port or 0), timeout=5)) as connected:
        target = f"{parts.path}?{parts.query}"
        text = f"GET {target} HTTP/1.1\r\nhost: {host or parts.netloc}\r\ncookie: a=b\r\n\r\n".encode()
        connected.sendall(text if request is None else request)
        said = b""
        while piece := connected.recv(65_536):
            said += piece
        return said


async def back_from(url: str, host: str | None = None) -> bytes:
    return await trio.to_thread.run_sync(lambda: ask(url, host=host))


class Person:
    """Whoever sits at the browser, in whose tab things happen one after the other."""

    def __init__(self, does: Callable[[str], list[str]]) -> None:
        self.does = does
        self.urls: list[str] = []
        self.heard: list[bytes] = []

    def open(self, url: str) -> bool:
        self.urls.append(url)
        return True

    async def sit(self) -> None:
        while not self.urls:
            await trio.lowlevel.checkpoint()
        for url in self.does(await visit(self.urls[-1])):
            self.heard.append(await back_from(url))


async def authorized(town: Town, person: Person, **options: object) -> None:
    browser = Browser(open=person.open, **options)  # type: ignore[arg-type]  # as the tests name them
    async with trio.open_nursery() as nursery:
        nursery.start_soon(person.sit)
        async with connect(town.url, auth=OAuth(grant=AuthorizationCode(consent=browser))) as client:
            await look(client)


@pytest.mark.requirement("M390", "L230")
async def test_a_user_gives_leave_in_the_browser_and_is_told_that_that_was_all() -> None:
    async with open_town() as town:
        person = Person(lambda back: [back])
        await authorized(town, person)
        [heard] = person.heard
        assert heard.startswith(b"HTTP/1.1 200")
        assert b"You can close this page" in heard
        assert b"no-store" in heard
        assert b"frame-ancestors 'none'" in heard
        [asked] = town.giver.visits("/authorize")
        back = urlsplit(asked.query["redirect_uri"])
        assert (back.scheme, back.hostname, back.path) == ("http", "127.0.0.1", "/callback")
        assert town.giver.visits("/register")[0].json["redirect_uris"] == [asked.query["redirect_uri"]]


@pytest.mark.requirement("M391", "L238")
async def test_what_does_not_bear_the_state_is_turned_away_and_waited_past() -> None:
    def intrude(back: str) -> list[str]:
        base, query = back.split("?")
        state = parse_qs(query)["state"][0]
        return [
            f"{base}?code=stolen&state=guess",
            f"{base}?code=stolen",
            f"{base}?code=stolen&state={state}&state=guess",
            f"{base}?" + "&".join(f"a{number}=1" for number in range(100)),
            base.replace("/callback", "/elsewhere") + f"?{query}",
            back,
        ]

    async with open_town() as town:
        person = Person(intrude)
        await authorized(town, person)
        assert [heard[9:12] for heard in person.heard] == [b"400", b"400", b"400", b"400", b"404", b"200"]
        assert [asked.form["code"] for asked in town.giver.visits("/token")] == ["one-code-2"]


async def test_a_page_that_makes_its_own_name_mean_this_machine_is_turned_away() -> None:
    async with open_town() as town:
        heard: list[bytes] = []

        class Rebinder(Person):
            async def sit(self) -> None:
                while not self.urls:
                    await trio.lowlevel.checkpoint()
                back = await visit(self.urls[-1])
                heard.append(await back_from(back, host="evil.example"))
                heard.append(
                    await trio.to_thread.run_sync(lambda: ask(back, request=b"POST /callback HTTP/1.1\r\n\r\n"))
                )
                heard.append(await trio.to_thread.run_sync(lambda: ask(back, request=b"\x16\x03\x01 nonsense\r\n\r\n")))
                heard.append(await back_from(back))

        await authorized(town, Rebinder(lambda back: [back]))
        assert [said[9:12] for said in heard] == [b"404", b"405", b"501", b"200"]


async def test_visitors_who_say_nothing_have_a_few_seats_and_not_for_long(mock_clock: MockClock) -> None:
    mock_clock.autojump_threshold = 0.1
    heard: list[str] = []
    with await listen("127.0.0.1", [0]) as listener:
        port = listener.getsockname()[1]
        loopback = Loopback(f"127.0.0.1:{port}".encode(), b"/callback", "s")

        async def wait() -> None:
            heard.append(await loopback.wait_redirect(listener))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            silent = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(MAX_VISITORS)]
            began = trio.current_time()
            async with await trio.open_tcp_stream("127.0.0.1", port) as user:
                await user.send_all(b"GET /callback?code=1&state=s HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n\r\n" % port)
                assert (await user.receive_some()).startswith(b"HTTP/1.1 200")
            assert REQUEST_TIME <= trio.current_time() - began < 2 * REQUEST_TIME
            for stream in silent:
                await stream.aclose()
    assert heard == ["code=1&state=s"]


async def test_a_redirect_is_taken_once_and_nobody_listens_afterwards() -> None:
    async with open_town() as town:
        person = Person(lambda back: [back])
        await authorized(town, person)
        back = await visit(person.urls[0])
        with pytest.raises(ConnectionRefusedError):
            await back_from(back)


async def test_a_user_who_never_comes_back_is_not_waited_for_for_ever(autojump_clock: MockClock) -> None:
    async def prepare(redirect_uri: str) -> tuple[str, str]:
        return "https://as.example/authorize", "state"

    async def nowhere(_: str) -> str:
        return str(await trio.sleep_forever())

    began = trio.current_time()
    with pytest.raises(NotAuthorized, match="within 600 s"):
        await Browser(open=lambda _: True).ask(prepare, None)
    with pytest.raises(NotAuthorized, match="within 600 s"):
        await Headless(nowhere).ask(prepare, None)
    assert trio.current_time() - began == 2 * CONSENT_TIME


@pytest.mark.parametrize("says_it_opened", [True, False])
async def test_the_user_is_told_where_to_go_whatever_becomes_of_the_browser(says_it_opened: bool) -> None:
    async with open_town() as town:
        told: list[str] = []
        person = Person(lambda back: [back])

        def tell(url: str) -> None:
            told.append(url)
            person.urls.append(url)

        browser = Browser(open=lambda _: says_it_opened, tell=tell)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(person.sit)
            async with connect(town.url, auth=OAuth(grant=AuthorizationCode(consent=browser))) as client:
                await look(client)
        assert told == person.urls


async def test_the_way_back_that_was_registered_is_used_again_and_another_one_is_registered_if_it_is_taken() -> None:
    async with open_town() as town:
        store = MemoryStore()
        ports: list[int] = []

        async def once() -> None:
            person = Person(lambda back: [back])
            auth = OAuth(grant=AuthorizationCode(consent=Browser(open=person.open)), store=store)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(person.sit)
                async with connect(town.url, auth=auth) as client:
                    await look(client)
            town.revoked = set(town.giver.tokens)
            ports.append(urlsplit(parse_qs(urlsplit(person.urls[0]).query)["redirect_uri"][0]).port or 0)

        await once()
        await once()
        with closing(socket.create_server(("127.0.0.1", ports[0]))):
            await once()
        assert ports[0] == ports[1] != ports[2]
        assert len(town.giver.visits("/register")) == 2


async def test_nobody_but_this_machine_is_listened_to() -> None:
    async def prepare(redirect_uri: str) -> tuple[str, str]:
        raise AssertionError("it came so far")

    for host in ("0.0.0.0", "::", "192.168.0.1", "example.com"):  # noqa: S104  # refused
        with pytest.raises(NotAuthorized, match="not a loopback address"):
            await Browser(host=host).ask(prepare, None)


@pytest.mark.parametrize("uri", ["http://example.com/back", "myapp://back", "https://example.com/#x", "/back", ""])
@pytest.mark.requirement("M385", "L229")
async def test_a_code_comes_back_by_https_or_inside_this_machine(uri: str) -> None:
    async def prepare(redirect_uri: str) -> tuple[str, str]:
        raise AssertionError("it came so far")

    with pytest.raises(NotAuthorized, match="expected https or a loopback address"):
        await Headless(visit, uri).ask(prepare, None)


async def test_a_function_may_give_the_whole_redirect_or_its_query() -> None:
    async def prepare(redirect_uri: str) -> tuple[str, str]:
        return "https://as.example/authorize", "s"

    given = ["https://me.example/back?code=1&state=s", "code=1&state=s", "?code=1&state=s"]

    async def answer(_: str) -> str:
        return given.pop()

    while given:
        assert await Headless(answer).ask(prepare, None) == "code=1&state=s"


async def test_a_user_takes_his_time_and_the_request_waits(mock_clock: MockClock) -> None:
    """The clock of the request stands still while he is asked: its own time is 60 seconds, and he takes 500."""
    async with open_town(within=5000) as town:
        takes = [500.0, 500.0]

        async def slowly(url: str) -> str:
            mock_clock.jump(takes.pop())
            return await visit(url)

        grant = AuthorizationCode(consent=Headless(slowly))
        async with connect(town.url, auth=OAuth(grant=grant)) as client:
            town.revoked = set(town.giver.tokens)
            await look(client)
        assert takes == []


@pytest.mark.requirement("M409")
def test_no_shell_reads_the_url_that_a_browser_is_opened_with(tmp_path: Path) -> None:
    """By the real module, which starts what the user has named as his browser: here a program that tells."""
    told, touched = tmp_path / "told", tmp_path / "touched"
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$#" "$1" > {told}\n')
    program.chmod(0o700)
    url = f"https://as.example/authorize?a=$(touch${{IFS}}{touched})&b=`touch${{IFS}}{touched}`;touch${{IFS}}{touched}"
    source = "import sys; from callboard.oauth.consent import Browser; Browser().open(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", source, url], env={**os.environ, "BROWSER": f"{program} %s"}, check=True, timeout=30
    )
    assert told.read_text().splitlines() == ["1", url]
    assert not touched.exists()


async def test_a_user_takes_his_time_also_before_a_stream_of_2024_11_05_is_opened(mock_clock: MockClock) -> None:
    async with open_town(within=5000) as town:

        async def slowly(url: str) -> str:
            mock_clock.jump(500)
            return await visit(url)

        def sse(asked: Asked) -> Said:
            if asked.header("authorization") is None:
                return Said(401)
            return Said(200, b"event: endpoint\ndata: /post\n\n", {"content-type": "text/event-stream"})

        town.house.rooms |= {"/sse": sse, "/post": lambda _: Said(418, b"so far")}
        town.changes = {"resource": town.house.url}
        town.house.rooms["/.well-known/oauth-protected-resource"] = town.house.rooms[
            "/.well-known/oauth-protected-resource/mcp"
        ]
        with pytest.raises(CannotConnect, match=r"so far|ended the stream"):  # whichever is heard first: it does both
            async with connect(f"{town.house.url}/sse", auth=OAuth(grant=AuthorizationCode(consent=Headless(slowly)))):
                pass
        assert town.house.asked[-1].header("authorization") is not None
