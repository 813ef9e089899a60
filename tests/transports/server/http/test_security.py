"""Who is let in, whose session it is, and how much one may ask for: against the real listener."""

import secrets

import pytest

from callboard import Rate, Revision
from callboard.codecs.http.access import Access
from callboard.transports.bind import BindAddress as Address
from callboard.transports.limits import Settings
from tests.transports.server.http.house import open_house
from tests.transports.server.http.sessions import OpenSession, initialize
from tests.transports.server.http.stage import Answer, request, serving, settle

INVALID = 'Bearer error="invalid_token", error_description="the token is invalid"'

TOKENS = {"alice-token": "alice", "bob-token": "bob"}


async def authenticate(token: str) -> str | None:
    return TOKENS.get(token)


def bearer(name: str) -> str:
    return f"Authorization: Bearer {name}-token"


@pytest.mark.requirement("M089", "L040")
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "OPTIONS", "PUT"])
@pytest.mark.parametrize(
    "origin",
    ["http://evil.com", "null", "http://localhost.evil.com", "https://localhost:{port}", "http://localhost", ""],
)
async def test_a_foreign_page_is_refused_whatever_it_wants(method: str, origin: str) -> None:
    async with serving(open_house().server, authenticate=authenticate) as place:
        client = await place.connect()
        origin = origin.format(port=place.port)
        # Before the body, and before anybody is asked who he is.
        data = request(method, "/mcp", host=f"127.0.0.1:{place.port}", origin=origin, content_length="1000")
        await client.send(data)
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (403, "close")
        assert "id" not in answer.json
        assert "access-control-allow-origin" not in answer.headers


async def test_a_page_of_the_servers_own_may_speak_and_is_told_so() -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        for origin in (
            f"http://127.0.0.1:{place.port}",
            f"http://localhost:{place.port}",
            f"http://[::1]:{place.port}",
        ):
            await client.send(client.modern("server/discover", f"Origin: {origin}"))
            answer = await client.answer()
            assert answer.status == 200
            assert answer.headers["access-control-allow-origin"] == origin
            assert answer.headers["vary"] == "origin"


async def test_an_origin_that_the_operator_allows_may_speak_and_no_other() -> None:
    access = Access.of("127.0.0.1", 1, hosts=["*"], origins=["https://app.example"])
    async with serving(open_house().server, access=access) as place:
        client = await place.connect()
        for origin, status in (("https://app.example", 200), ("https://app.example:8443", 403)):
            await client.send(client.modern("server/discover", f"Origin: {origin}"))
            assert (await client.answer()).status == status


async def test_an_origin_is_only_ever_written_back_as_it_was_and_never_out_of_its_line() -> None:
    access = Access.of("127.0.0.1", 1, hosts=["*"], origins=["*"])
    async with serving(open_house().server, access=access) as place:
        client = await place.connect()
        for origin, echoed in (("null", "null"), ("<script>", "<script>"), ("a b", "a b"), ("\xff", None)):
            await client.send(client.modern("server/discover", f"Origin: {origin}"))
            answer = await client.answer()  # which reads headers strictly
            assert answer.status == 200
            assert answer.headers.get("access-control-allow-origin") == echoed


async def test_a_page_may_ask_first_what_it_may_send() -> None:
    async with serving(open_house().server, authenticate=authenticate) as place:
        client = await place.connect()
        origin = f"http://localhost:{place.port}"
        asked = {"origin": origin, "access_control_request_method": "POST"}
        await client.send(request("OPTIONS", "/mcp", host=client.host.decode(), **asked))
        answer = await client.answer()
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, origin)
        assert "POST" in answer.headers["access-control-allow-methods"]


@pytest.mark.parametrize(
    "host",
    ["evil.com", "127.0.0.1", "localhost:1", "127.0.0.1:{port}.evil.com", "evil.com:{port}", "a@127.0.0.1:{port}", ""],
)
async def test_a_name_that_was_rebound_is_not_the_servers(host: str) -> None:
    async with serving(open_house().server) as place:
        client = await place.connect()
        await client.send(client.modern("server/discover", headers={"host": host.format(port=place.port)}))
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (421, "close")


@pytest.mark.requirement("M090", "L041")
@pytest.mark.parametrize("written", ["8000", ":8000", "localhost:8000", "127.0.0.1:8000", "[::1]:8000"])
def test_a_local_server_listens_on_this_machine_only(written: str) -> None:
    assert Address.parse(written).is_local


@pytest.mark.requirement("M091")
@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("Authorization: Bearer wrong",),
        ("Authorization: Basic alice-token",),
        ("Authorization: alice-token",),
        ("Proxy-Authorization: Bearer alice-token",),
        ("Authorization: Bearer \xff\xfe",),
    ],
)
async def test_who_is_not_known_is_told_how_to_be(lines: tuple[str, ...]) -> None:
    house = open_house()
    async with serving(house.server, authenticate=authenticate) as place:
        client = await place.connect()
        for data in (
            client.modern("tools/call", *lines, name="errand", arguments={"name": "never"}),
            request("GET", "/mcp", *lines, host=client.host.decode(), mcp_session_id="x"),
            request("DELETE", "/mcp", *lines, host=client.host.decode(), mcp_session_id="x"),
        ):
            await client.send(data)
            answer = await client.answer()
            has_token = bool(lines) and lines[0].startswith("Authorization: Bearer")
            assert (answer.status, answer.headers["www-authenticate"]) == (401, INVALID if has_token else "Bearer")
        assert house.started == []


@pytest.mark.parametrize(
    "value", ["Bearer", "Bearer ", "Bearer  alice-token  more", "Bearer a,b", f"Bearer {'a' * 16_385}"]
)
async def test_a_malformed_token_is_a_bad_request(value: str) -> None:
    house = open_house()
    async with serving(house.server, authenticate=authenticate) as place:
        client = await place.connect()
        line = f"Authorization: {value}"
        await client.send(client.modern("tools/call", line, name="errand", arguments={"name": "never"}))
        assert (await client.answer()).status == 400
        assert house.started == []


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_who_is_known_is_known_to_the_handler(scheme: str) -> None:
    async with serving(open_house().server, authenticate=authenticate) as place:
        client = await place.connect()
        for name in ("alice", "bob"):
            line = f"Authorization: {scheme} {name}-token"
            await client.send(client.modern("tools/call", line, name="who", arguments={}))
            assert (await client.answer()).result["content"][0]["text"] == name


async def test_a_token_given_twice_is_none() -> None:
    async with serving(open_house().server, authenticate=authenticate) as place:
        client = await place.connect()
        await client.send(client.modern("server/discover", bearer("alice"), bearer("bob")))
        assert (await client.answer()).status == 400


# Sessions.


@pytest.mark.requirement("L062", "L063")
async def test_session_ids_are_visible_long_and_never_the_same() -> None:
    async with serving(open_house().server) as place:
        ids = [(await OpenSession.open(place, Revision.V2025_11_25)).id for _ in range(50)]
        assert len(set(ids)) == 50
        for session_id in ids:
            assert len(session_id) >= 32  # 6 bits a letter: more than 128
            assert all(0x21 <= ord(letter) <= 0x7E for letter in session_id)


@pytest.mark.requirement("L066")
async def test_a_session_that_is_not_named_is_400() -> None:
    async with serving(open_house().server) as place:
        session = await OpenSession.open(place, Revision.V2025_11_25)
        for data in session.every(mcp_session_id=None):
            assert (await place.ask(data)).status == 400


@pytest.mark.requirement("L067")
async def test_a_session_that_has_ended_or_never_was_is_404_with_one_and_the_same_answer() -> None:
    async with serving(open_house().server) as place:
        session, ended = [await OpenSession.open(place, Revision.V2025_11_25) for _ in range(2)]
        assert (await ended.delete()).status == 204
        guesses = [ended.id, "x", "", session.id[:-1], session.id + "x", session.id.swapcase(), "\xff" * 32, "a" * 5000]
        answers = {
            (kind, answer.status, answer.body)
            for guess in guesses
            for kind, data in enumerate(session.every(mcp_session_id=guess))
            for answer in [await place.ask(data)]
        }
        assert {status for _, status, _ in answers} == {404}
        assert len(answers) == len(session.every())  # one for each kind of request, whatever is named
        assert (await session.call("echo", text="x")).result


async def test_a_session_cannot_be_guessed() -> None:
    async with serving(open_house().server) as place:
        sessions = [await OpenSession.open(place, Revision.V2025_11_25) for _ in range(20)]
        client = await place.connect()
        message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        for _ in range(30):  # many at once: the listener is what is tried here, not the patience of a test
            guesses = [secrets.token_urlsafe(24) for _ in range(100)]
            await client.send(b"".join(client.post(message, mcp_session_id=guess) for guess in guesses))
            for _ in guesses:
                assert (await client.answer()).status == 404
        assert (await sessions[0].call("echo", text="x")).result


async def test_a_session_belongs_to_who_opened_it() -> None:
    async with serving(open_house().server, authenticate=authenticate) as place:
        session = await OpenSession.open(place, Revision.V2025_11_25, bearer("alice"))
        for data, nowhere in zip(session.every(), session.every(mcp_session_id="x"), strict=True):
            unknown = await place.ask(nowhere)
            as_bob = await place.ask(data.replace(b"alice-", b"bob-"))
            assert (as_bob.status, as_bob.body) == (unknown.status, unknown.body) == (404, unknown.body)
            as_nobody = await place.ask(data.replace(bearer("alice").encode() + b"\r\n", b""))
            assert as_nobody.status == 401
        assert (await session.call("who")).result["content"][0]["text"] == "alice"


# How much.


@pytest.mark.parametrize("tool", ["work", "errand"])
async def test_one_principal_may_have_so_much_in_flight_and_others_do_not_notice(tool: str) -> None:
    house = open_house()
    settings = Settings(max_in_flight_each=3, write_time=1)
    async with serving(house.server, settings, authenticate=authenticate) as place:
        busy = [await place.connect() for _ in range(3)]
        for number, client in enumerate(busy):
            arguments = {"name": str(number)}
            await client.send(client.modern("tools/call", bearer("alice"), name=tool, arguments=arguments))
        await house.wait_started("0", "1", "2")
        client = await place.connect()
        for name in ("work", "errand", "echo"):
            arguments = {"text": "x"} if name == "echo" else {"name": "never"}
            await client.send(client.modern("tools/call", bearer("alice"), name=name, arguments=arguments, id=5))
            answer = await client.answer()
            assert (answer.status, answer.code, answer.json["id"]) == (429, -31003, 5)
            assert int(answer.headers["retry-after"]) >= 1
        await client.send(client.modern("tools/call", bearer("bob"), name="who", arguments={}))
        assert (await client.answer()).result
        house.gates["0"].set()
        assert (await busy[0].answer()).result
        await client.send(client.modern("tools/call", bearer("alice"), name="who", arguments={}))
        assert (await client.answer()).result
        await busy[1].aclose()  # who leaves makes room, too
        await house.wait_cut("1")
        await settle()
        for name in ("a", "b"):
            caller = await place.connect()
            await caller.send(caller.modern("tools/call", bearer("alice"), name=tool, arguments={"name": name}))
        await house.wait_started("a", "b")
        assert "never" not in house.started


@pytest.mark.finding("security-11")
async def test_the_sessions_of_one_principal_share_what_it_may_have_in_flight() -> None:
    house = open_house()
    settings = Settings(max_in_flight_each=3, write_time=1)
    async with serving(house.server, settings, authenticate=authenticate) as place:
        first, second = [await OpenSession.open(place, Revision.V2025_06_18, bearer("alice")) for _ in range(2)]
        for number, session in enumerate((first, first, second)):
            await session.begin("work", name=str(number))
        await house.wait_started("0", "1", "2")
        refused = await second.call("work", name="never")
        assert refused.code == -31003
        bob = await OpenSession.open(place, Revision.V2025_06_18, bearer("bob"))
        assert (await bob.call("who")).result["content"][0]["text"] == "bob"
        house.gates["0"].set()
        await settle()
        assert (await second.call("who")).result
        assert "never" not in house.started
        assert place.host.in_flight.held("alice") == 2


async def test_beyond_what_the_process_can_take_everybody_is_told_to_come_back() -> None:
    house = open_house()
    async with serving(house.server, Settings(max_in_flight=2, write_time=1)) as place:
        first, second, third = [await place.connect() for _ in range(3)]
        await first.send(first.modern("tools/call", name="work", arguments={"name": "a"}))
        await second.send(second.modern("subscriptions/listen", notifications={"toolsListChanged": True}))
        stream = await second.stream_of()
        await stream.message()
        await house.wait_started("a")
        await third.send(third.modern("tools/call", name="work", arguments={"name": "never"}, id="x"))
        answer = await third.answer()
        assert (answer.status, answer.code, answer.json["id"]) == (503, -31003, "x")
        assert "retry-after" in answer.headers
        await second.aclose()
        await settle()
        await third.send(third.modern("tools/call", name="who", arguments={}))
        assert (await third.answer()).result


@pytest.mark.parametrize("revision", [None, Revision.V2025_06_18])
async def test_who_asks_too_often_is_told_to_come_back(revision: Revision | None) -> None:
    house = open_house(rates={"tools/call": Rate(3, per=60)})
    async with serving(house.server, authenticate=authenticate) as place:
        caller = await place.connect()
        if revision is None:

            async def call(name: str) -> Answer:
                await caller.send(caller.modern("tools/call", bearer(name), name="who", arguments={}))
                return await caller.answer()
        else:
            sessions = {name: await OpenSession.open(place, revision, bearer(name)) for name in ("alice", "bob")}

            async def call(name: str) -> Answer:
                return await sessions[name].call("who")

        assert [(await call("alice")).status for _ in range(3)] == [200] * 3
        refused = await call("alice")
        assert (refused.status, refused.code) == (429, -31003)
        assert "retry-after" in refused.headers
        assert (await call("bob")).result


@pytest.mark.finding("security-11", "faults-H2")
async def test_one_principal_cannot_have_all_the_sessions() -> None:
    settings = Settings(max_sessions=8, max_sessions_each=3, write_time=1)
    async with serving(open_house().server, settings, authenticate=authenticate) as place:
        alice = [await OpenSession.open(place, Revision.V2025_06_18, bearer("alice")) for _ in range(3)]
        client = await place.connect()
        await client.send(client.post(initialize(Revision.V2025_06_18), bearer("alice")))
        refused = await client.answer()
        assert (refused.status, refused.code, refused.headers["retry-after"]) == (429, -31003, "1")
        await OpenSession.open(place, Revision.V2025_06_18, bearer("bob"))
        assert (await alice[0].delete()).status == 204
        await OpenSession.open(place, Revision.V2025_06_18, bearer("alice"))
        assert (place.host.sessions.held("alice"), place.host.sessions.total) == (3, 4)


@pytest.mark.finding("security-11")
async def test_one_address_cannot_have_all_the_sessions_and_failed_ones_do_not_count() -> None:
    async with serving(open_house().server, Settings(max_sessions=8, max_sessions_each=1, write_time=1)) as place:
        for _ in range(10):
            client = await place.connect()
            await client.send(client.post(initialize(Revision.V2025_06_18) | {"params": {}}))
            assert (await client.answer()).code == -32602
        await settle()
        assert place.host.sessions.total == 0
        for _ in range(6):
            await OpenSession.open(place, Revision.V2025_06_18)
        client = await place.connect()
        await client.send(client.post(initialize(Revision.V2025_06_18)))
        assert (await client.answer()).status == 429
