"""Strangers name addresses, and none of them leads us where it should not."""

import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from callboard.codecs.http.response_parser import AnswerHead
from callboard.codecs.oauth.addresses import MAX_URL, Reach
from callboard.errors import FetchFailed, UnsafeUrl
from callboard.oauth import OAuth
from callboard.transports.client.fetch import ATTEMPT_TIME, FETCH_TIME, MAX_FETCHED, Fetcher, connect
from tests.certificate import certified
from tests.oauth.house import Asked, House, Said, open_house

FAR = Reach()
NEAR = Reach(loopback=True)
PUBLIC = "93.184.215.14"

UNSAFE_URLS = [
    # Not https.
    *("http://as.example/", "ftp://as.example/", "file:///etc/passwd", "javascript:alert(1)", "data:text/html,x"),
    *("gopher://127.0.0.1:{port}/_x", "ws://as.example/", "//as.example/", "as.example", "", "https:", "https://"),
    *("http://127.0.0.1:{port}/", "http://localhost:{port}/", "HTTP://127.0.0.1:{port}/"),
    # This machine, in all its spellings.
    *(
        "https://127.0.0.1:{port}/",
        "https://localhost:{port}/",
        "https://LOCALHOST:{port}/",
        "https://127.0.0.2:{port}/",
    ),
    *("https://[::1]:{port}/", "https://[0:0:0:0:0:0:0:1]:{port}/", "https://0.0.0.0:{port}/", "https://[::]:{port}/"),
    *("https://127.1:{port}/", "https://127.0.1:{port}/", "https://0x7f.1:{port}/", "https://0x7f000001:{port}/"),
    *("https://2130706433:{port}/", "https://017700000001:{port}/", "https://0177.0.0.1:{port}/", "https://0:{port}/"),
    *(
        "https://127.0.0.1.:{port}/",
        "https://localhost.:{port}/",
        "https://127.0.0.01:{port}/",
        "https://127.0.0.1%00/",
    ),
    *("https://[::ffff:127.0.0.1]:{port}/", "https://[::ffff:7f00:1]:{port}/", "https://[::127.0.0.1]:{port}/"),
    *("https://[64:ff9b::127.0.0.1]:{port}/", "https://[2002:7f00:1::]:{port}/", "https://[::1%25lo]:{port}/"),
    *("https://①②⑦.⓪.⓪.①:{port}/", "https://127。0。0。1:{port}/", "https://loc\u00adalhost:{port}/"),
    # Machines that only we can reach.
    *("https://10.0.0.1/", "https://172.16.0.1/", "https://172.31.255.255/", "https://192.168.0.1/"),
    *(
        "https://169.254.169.254/latest/meta-data/",
        "https://[fe80::1]/",
        "https://[fd00:ec2::254]/",
        "https://[fc00::1]/",
    ),
    *(
        "https://100.64.0.1/",
        "https://100.127.255.255/",
        "https://198.18.0.1/",
        "https://192.0.0.1/",
        "https://192.0.2.1/",
    ),
    *("https://[fec0::1]/", "https://[2001:db8::1]/", "https://[::ffff:10.0.0.1]/", "https://[::ffff:8.8.8.8]/"),
    *(
        "https://[64:ff9b::10.0.0.1]/",
        "https://[64:ff9b:1::1]/",
        "https://[2002:a00:1::]/",
        "https://[2001:0:a00:1::]/",
    ),
    # Nobody, and everybody.
    *("https://224.0.0.1/", "https://239.255.255.250/", "https://[ff02::1]/", "https://255.255.255.255/"),
    *("https://240.0.0.1/", "https://0.0.0.1/"),
    # What two readers could read differently.
    *(
        "https://as.example@127.0.0.1:{port}/",
        "https://127.0.0.1:{port}@as.example/",
        "https://as.example\\@127.0.0.1/",
    ),
    *("https://as.example:0/", "https://as.example:99999/", "https://as.example:x/", "https://as.example/#fragment"),
    *(
        "https://as.example/ HTTP/1.1\r\nHost: x",
        "https://as.example/\tx",
        "https://as.example /",
        "https://a b.example/",
    ),
    *("https://[127.0.0.1]:{port}/", "https://[localhost]:{port}/", "https://[::1", "https://::1:{port}/"),
    *("https://-as.example/", "https://as..example/", "https://.example/", "https://as.example./", "https://a%2eb/"),
    "https://as.example/" + "x" * MAX_URL,
]
"""What is refused before anybody is asked, the DNS included. `{port}` is where the canary listens."""

UNSAFE_ADDRESSES = [
    *("127.0.0.1", "::1", "10.1.2.3", "172.20.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "::"),  # noqa: S104  # refused
    *("::ffff:127.0.0.1", "::ffff:93.184.215.14", "fe80::1", "fd12::1", "224.0.0.1", "ff02::1", "240.0.0.1"),
    *("2002:7f00:1::", "64:ff9b::7f00:1", "fe80::1%eth0", "not an address", ""),
]
"""What the DNS may say that a name is, and it may not be."""


async def never_resolve(host: str, port: int) -> Sequence[str]:
    raise AssertionError(f"{host} was looked up")


async def never_connect(address: str, port: int) -> socket.socket:
    raise AssertionError(f"{address} was connected to")


def says(*answers: Sequence[str]) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    """A DNS that gives one answer after the other, and fails when it is asked once more."""
    left = list(answers)

    async def resolve(host: str, port: int) -> Sequence[str]:
        return left.pop(0)

    return resolve


def test_the_table_is_long_enough() -> None:
    assert len(set(UNSAFE_URLS)) + len(set(UNSAFE_ADDRESSES)) >= 100
    assert len(set(UNSAFE_URLS)) >= 60


@pytest.mark.requirement("M403", "M404")
async def test_no_unsafe_url_is_looked_up_or_connected_to() -> None:
    """With the real resolver and the real sockets, and a canary at the address that most of them mean."""
    async with open_house(House()) as canary:
        port = canary.url.rpartition(":")[2]
        for url in UNSAFE_URLS:
            for fetcher in (Fetcher(FAR), Fetcher(FAR, never_resolve, never_connect)):
                with pytest.raises(UnsafeUrl):
                    await fetcher.get(url.replace("{port}", port))
                with pytest.raises(UnsafeUrl):
                    await fetcher.post(url.replace("{port}", port), b"secret", {})
        assert canary.connections == 0


@pytest.mark.parametrize("address", UNSAFE_ADDRESSES)
async def test_a_name_is_not_connected_to_if_any_of_its_addresses_is_unsafe(address: str) -> None:
    for addresses in ([address], [PUBLIC, address], [address, PUBLIC]):
        with pytest.raises(UnsafeUrl):
            await Fetcher(FAR, says(addresses), never_connect).get("https://as.example/")


async def test_a_name_is_looked_up_once_and_what_was_checked_is_what_is_connected_to() -> None:
    connected: list[str] = []

    async def refuse(address: str, port: int) -> socket.socket:
        connected.append(address)
        raise OSError("refused")

    # The second look would say that it is this machine: rebinding. There is none.
    fetcher = Fetcher(FAR, says([PUBLIC, "2606:2800:21f:cb07:6820:80da:af6b:8b2c"], ["127.0.0.1"]), refuse)
    with pytest.raises(FetchFailed):
        await fetcher.get("https://rebinding.example/")
    assert connected == [PUBLIC, "2606:2800:21f:cb07:6820:80da:af6b:8b2c"]


async def test_a_canary_is_never_reached_by_what_metadata_names() -> None:
    """The whole way: every address that a server names in its metadata, in each place where it can name one."""

    async def changing(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]  # whatever it was a moment ago

    async with open_house(House()) as canary:
        port = canary.url.rpartition(":")[2]
        named = [f"https://canary.example:{port}/x", *(url.replace("{port}", port) for url in UNSAFE_URLS if url)]
        for url in named:
            for fetcher in (Fetcher(FAR, changing), Fetcher(FAR, says(["127.0.0.1"]))):
                with pytest.raises((UnsafeUrl, FetchFailed)):
                    await fetcher.get(url)
        assert canary.connections == 0


async def test_a_server_on_this_machine_may_name_this_machine_and_nothing_else_that_is_near() -> None:
    async with open_house(House({"/x": lambda _: Said(200, b"fine")})) as house:
        assert (await Fetcher(NEAR).get(f"{house.url}/x")).body == b"fine"
        assert (await Fetcher(NEAR).get(f"{house.url.replace('127.0.0.1', 'localhost')}/x")).body == b"fine"
    for url in ("https://10.0.0.1/", "http://192.168.0.1/", "http://as.example/", "https://169.254.169.254/"):
        with pytest.raises(UnsafeUrl):
            await Fetcher(NEAR, never_resolve, never_connect).get(url)
    with pytest.raises(UnsafeUrl):
        await Fetcher(NEAR, says(["10.0.0.1"]), never_connect).get("https://as.example/")


@pytest.mark.parametrize(
    ("server", "is_near"),
    [
        ("http://127.0.0.1:8000/mcp", True),
        ("http://localhost/mcp", True),
        ("https://[::1]/mcp", True),
        ("https://mcp.example/mcp", False),
        ("https://localhost.evil.example/mcp", False),
        ("https://10.0.0.1/mcp", False),
    ],
)
def test_how_far_addresses_may_lead_is_said_by_where_the_server_is(server: str, is_near: bool) -> None:
    assert Reach.of_server(server).loopback == is_near


async def test_a_host_that_is_trusted_may_be_anywhere_and_a_number_that_was_typed_is_trusted() -> None:
    reached: list[str] = []

    async def refuse(address: str, port: int) -> socket.socket:
        reached.append(address)
        raise OSError("refused")

    reach = Reach.of_server("https://10.0.0.1/mcp", ["as.corp.example"])
    for url, addresses in (("https://as.corp.example/", ["10.0.0.7"]), ("https://10.0.0.1/", ["10.0.0.1"])):
        with pytest.raises(FetchFailed):
            await Fetcher(reach, says(addresses), refuse).get(url)
    with pytest.raises(UnsafeUrl):
        await Fetcher(reach, says(["10.0.0.7"]), refuse).get("https://other.corp.example/")
    with pytest.raises(UnsafeUrl):
        await Fetcher(reach, never_resolve, refuse).get("http://as.corp.example/")
    assert reached == ["10.0.0.7", "10.0.0.1"]


async def test_a_redirect_is_an_answer_and_not_followed() -> None:
    async with open_house(House()) as canary:
        house = House({"/x": lambda _: Said(302, b"", {"location": canary.url})})
        async with open_house(house):
            assert (await Fetcher(NEAR).get(f"{house.url}/x")).status == 302
        assert canary.connections == 0


async def test_no_more_is_read_than_is_needed() -> None:
    for size, is_fine in ((MAX_FETCHED, True), (MAX_FETCHED + 1, False)):

        def answer(_: Asked, size: int = size) -> Said:
            return Said(200, b"x" * size)

        async with open_house(House({"/x": answer})) as house:
            if is_fine:
                assert len((await Fetcher(NEAR).get(f"{house.url}/x")).body) == size
            else:
                with pytest.raises(FetchFailed, match="larger than 65536"):
                    await Fetcher(NEAR).get(f"{house.url}/x")


@pytest.mark.parametrize("hangs", ["the DNS", "the connection", "the answer"])
async def test_nobody_is_waited_for_for_long(hangs: str, autojump_clock: MockClock) -> None:
    ours, theirs = socket.socketpair()

    async def resolve(host: str, port: int) -> Sequence[str]:
        if hangs == "the DNS":
            await trio.sleep_forever()
        return ["127.0.0.1"]

    async def dial(address: str, port: int) -> socket.socket:
        if hangs == "the connection":
            await trio.sleep_forever()
        ours.setblocking(False)
        return ours

    with ours, theirs:
        began = trio.current_time()
        with pytest.raises(FetchFailed, match="timed out after 5 s"):
            await Fetcher(NEAR, resolve, dial).get("http://127.0.0.1/")
        assert trio.current_time() - began == FETCH_TIME


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort", b"nonsense\r\n\r\n"])
async def test_an_answer_that_is_none_is_named(said: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.sendall(said)
        theirs.shutdown(socket.SHUT_WR)

        async def dial(address: str, port: int) -> socket.socket:
            return ours

        with pytest.raises(FetchFailed, match=r"127\.0\.0\.1: "):
            await Fetcher(NEAR, says(["127.0.0.1"]), dial).get("http://127.0.0.1/")


async def test_a_port_where_nobody_listens_is_named() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        with pytest.raises(FetchFailed, match="refused"):
            await Fetcher(NEAR).get(f"http://127.0.0.1:{probe.getsockname()[1]}/")


async def test_a_name_that_does_not_exist_is_named() -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(-2, "Name or service not known")

    with pytest.raises(FetchFailed, match=r"as\.example: Name or service not known"):
        await Fetcher(FAR, resolve, never_connect).get("https://as.example/")


async def test_whoever_answers_by_tls_must_be_who_was_asked(tmp_path: Path) -> None:
    """The connection goes to the address that was checked; the certificate is for the name that was asked for."""
    server, client = certified(tmp_path, "as.example")

    async def serve(stream: trio.SSLStream[trio.SocketStream]) -> None:
        try:
            if await stream.receive_some():
                await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine")
        except trio.BrokenResourceError:
            pass

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_ssl_over_tcp, serve, 0, server)
            port = listeners[0].transport_listener.socket.getsockname()[1]
            reach = Reach(loopback=True)
            good = Fetcher(reach, says(["127.0.0.1"]), connect, client)
            assert (await good.get(f"https://as.example:{port}/")).body == b"fine"
            with pytest.raises(FetchFailed, match="TLS"):
                await Fetcher(reach, says(["127.0.0.1"]), connect, client).get(f"https://other.example:{port}/")
            with pytest.raises(FetchFailed, match="TLS"):
                await Fetcher(reach, says(["127.0.0.1"]), connect).get(f"https://as.example:{port}/")
            nursery.cancel_scope.cancel()


@pytest.mark.requirement("M403")
async def test_what_a_server_far_away_says_with_a_401_never_leads_to_this_machine() -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    credentials = OAuth(resolve=resolve).credentials("https://mcp.example/mcp")
    async with open_house(House()) as canary:
        port = canary.url.rpartition(":")[2]
        for url in (f"https://canary.example:{port}/x", canary.url, f"https://127.0.0.1:{port}/"):
            challenge = f'Bearer resource_metadata="{url}"'.encode()
            refusal = AnswerHead(401, [(b"www-authenticate", challenge)])
            used = await credentials.prove(b"POST")
            assert credentials.helps(refusal, used)
            with pytest.raises(UnsafeUrl):
                await credentials.renew(b"POST", refusal, used)
        assert canary.connections == 0


async def test_an_address_that_leads_nowhere_does_not_take_the_time_of_the_others(autojump_clock: MockClock) -> None:
    tried: list[str] = []

    async def dial(address: str, port: int) -> socket.socket:
        tried.append(address)
        if address != PUBLIC:
            await trio.sleep_forever()
        raise OSError(111, "refused in the end")

    began = trio.current_time()
    with pytest.raises(FetchFailed, match="refused in the end"):
        await Fetcher(FAR, says(["2606:2800:21f::1", "2606:2800:21f::2", PUBLIC]), dial).get("https://as.example/")
    assert tried == ["2606:2800:21f::1", "2606:2800:21f::2", PUBLIC]
    assert trio.current_time() - began == 2 * ATTEMPT_TIME
