"""Who is let in where: the names of a server that is bound to all addresses."""

import socket
from urllib.parse import urlsplit

import pytest
import structlog.testing

from callboard.codecs.http.access import Access
from callboard.codecs.http.refusal import HttpRefusal
from callboard.serve.refused_names import MOST_NAMES, RefusedNames
from tests.serve.test_serve import call, post, said, served

# Bound to all addresses.


@pytest.mark.finding("newcomer-P1")
def test_a_server_on_all_addresses_goes_by_every_one_of_this_machine_s() -> None:
    refused: list[bytes] = []
    ours = ("10.0.0.5", "fd00::5")
    access = Access.of("::", 7419, is_own=ours.__contains__, on_refused=refused.append)
    for host in (
        b"127.0.0.1:7419",
        b"localhost:7419",
        b"[::1]:7419",
        b"[::]:7419",
        b"10.0.0.5:7419",
        b"[fd00::5]:7419",
    ):
        access.check(host, None)
    access.check(b"10.0.0.5:7419", b"http://10.0.0.5:7419")
    wrong = (b"10.0.0.6:7419", b"10.0.0.5:1", b"10.0.0.5", b"evil.example:7419", b"10.0.0.5.evil.example:7419", b"\xff")
    for host in wrong:
        with pytest.raises(HttpRefusal, match="host not allowed"):
            access.check(host, None)
    assert refused == list(wrong)
    for origin in (
        b"http://evil.example",
        b"https://10.0.0.5:7419",
        b"http://10.0.0.6:7419",
        b"http://localhost:7419",
        b"null",
    ):
        with pytest.raises(HttpRefusal, match="origin"):
            access.check(b"10.0.0.5:7419", origin)
    alone = Access.of("10.0.0.5", 7419, is_own=lambda _: True)  # bound to one address it goes by that one
    with pytest.raises(HttpRefusal, match="host not allowed"):
        alone.check(b"127.0.0.1:7419", None)


@pytest.mark.finding("newcomer-P1")
async def test_a_server_on_all_addresses_works_at_the_url_that_it_prints_and_says_whom_it_refuses() -> None:
    with structlog.testing.capture_logs() as logged:
        async with served(http="0.0.0.0:0") as here:
            url = here.url("http")
            port = urlsplit(url).port
            assert url == f"http://127.0.0.1:{port}/mcp"
            assert said((await post(url, call("echo", text="x")))[1]) == "x"
            own = socket.gethostbyname(socket.gethostname())
            assert (await post(url, call("echo", text="x"), host=f"{own}:{port}"))[0] == 200
            for _ in range(3):
                assert (await post(url, call("echo", text="x"), host=f"mcp.example.com:{port}"))[0] == 421
            assert (await post(url, call("echo", text="x"), host=f"192.0.2.1:{port}"))[0] == 421
            assert any("--allow-host" in warning for warning in here.ready.warnings)
    refused = [(line["host"], line["fix"]) for line in logged if line["event"] == "host_refused"]
    names = [f"mcp.example.com:{port}", f"192.0.2.1:{port}"]
    assert refused == [(name, f"--allow-host {name}") for name in names]


@pytest.mark.finding("newcomer-P1")
def test_refused_names_are_logged_once_each_cleaned_and_not_without_bound() -> None:
    names = RefusedNames("0.0.0.0:1")
    with structlog.testing.capture_logs() as logged:
        names.host(b"\x1b]0;evil\x07" + b"x" * 1000)
        for number in range(1000):
            names.host(b"name-%d" % number)
            names.host(b"NAME-%d" % number)
    assert len(logged) == MOST_NAMES
    assert "\x1b" not in logged[0]["host"]
    assert len(logged[0]["host"]) < 200
