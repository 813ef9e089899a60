"""What the broker keeps apart: principals, backends, and secrets from everybody (PROMISES, S3 to S20)."""

import json
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from benchmarks.nemesis_fronts import ABOUT, post, read_response
from callboard.codecs.revisions import Revision
from callboard.codecs.revisions.revision import R4, R5
from callboard.supervisor.snapshot import render
from callboard.testing import Peer, Refusal
from tests.broker.back import Back, form, named, text, tool
from tests.broker.front import backend, brokered, peer
from tests.process import CALLBOARD, Process, started
from tests.served import served
from tests.shared import ROOT

ONE_TEXT = "Invalid or expired requestState"
QUESTION = {"method": "elicitation/create", "params": {"mode": "form", **form()}}
SOAK = ROOT / "tests/soak/backend.py"
CAST = str(ROOT / "tests/broker/apps/cast.py")


async def asked_by(back: Back, client: Peer, name: str, state: str) -> dict[str, Any]:
    """A call that a modern backend answers with a question, and with a state of its own."""
    begun = await client.begin("tools/call", name=name, arguments={})
    line, request = await back.hear()
    await line.say(
        id=request["id"],
        result={"resultType": "input_required", "inputRequests": {"who": QUESTION}, "requestState": state},
    )
    return await client.finish(begun)


def retry(asked: dict[str, Any]) -> dict[str, Any]:
    return {"inputResponses": {"who": named("ada")}, "requestState": asked["requestState"]}


# S3, S11: states belong to a principal, a call and a backend.


async def test_s3_s11_a_state_is_for_its_principal_its_backend_and_one_use(autojump_clock: MockClock) -> None:
    one, other = Back(R5), Back(R5)
    specs = backend(one.ways, "one", prefix="one"), backend(other.ways, "other", prefix="other")
    async with brokered(*specs) as host, peer(host, principal="ada") as ada, peer(host, principal="eve") as eve:
        asked = await asked_by(one, ada, "one__book", "canary-state")
        assert "canary" not in asked["requestState"]
        for client, name in ((eve, "one__book"), (ada, "other__book"), (eve, "other__book"), (ada, "one__other")):
            with pytest.raises(Refusal, match=ONE_TEXT) as refused:
                await client.request("tools/call", name=name, arguments={}, **retry(asked))
            assert refused.value.code == -32602
        assert not other.told("tools/call")  # it never saw what was not its own
        begun = await ada.begin("tools/call", name="one__book", arguments={}, **retry(asked))
        line, request = await one.hear()
        assert request["params"]["requestState"] == "canary-state"
        await line.answer(request, **text("done"))
        await ada.finish(begun)
        with pytest.raises(Refusal, match=ONE_TEXT):
            await ada.request("tools/call", name="one__book", arguments={}, **retry(asked))
        assert len(one.told("tools/call")) == 2


async def test_s11_states_of_two_backends_never_meet_even_if_they_are_the_same(autojump_clock: MockClock) -> None:
    backs = {"one": Back(R5), "other": Back(R5)}
    specs = [backend(back.ways, name, prefix=name) for name, back in backs.items()]
    async with brokered(*specs) as host, peer(host) as client:
        asked = {name: await asked_by(back, client, f"{name}__book", "same") for name, back in backs.items()}
        for name, wrong in (("one", "other"), ("other", "one")):
            with pytest.raises(Refusal, match=ONE_TEXT):
                await client.request("tools/call", name=f"{name}__book", arguments={}, **retry(asked[wrong]))
        assert [len(back.told("tools/call")) for back in backs.values()] == [1, 1]


# S12: nobody sees another's answers.


@pytest.mark.parametrize("share", ["principal", "all"])
@pytest.mark.parametrize("revision", [R4, R5], ids=str)
async def test_s12_many_tenants_see_their_own_bytes_only(
    revision: Revision, share: str, autojump_clock: MockClock
) -> None:
    back, draw, tenants = Back(revision), random.Random(12), [f"tenant-{number}" for number in range(8)]
    heard: dict[str, list[str]] = {tenant: [] for tenant in tenants}
    spec = backend(back.ways, share=share)

    async def ask(tenant: str) -> None:
        async with peer(host, principal=tenant, capabilities={}) as client:
            begun = [
                await client.begin("tools/call", name="book", arguments={"who": f"{tenant}:{number}"})
                for number in range(25)
            ]
            heard[tenant] = [json.dumps(await client.finish(one)) for one in begun]

    async def answer() -> None:
        while True:
            waiting = [await back.hear()]
            with trio.move_on_after(0.01):
                while True:
                    waiting.append(await back.hear())
            draw.shuffle(waiting)
            for line, request in waiting:
                await line.answer(request, **text(request["params"]["arguments"]["who"]))

    async with brokered(spec) as host, trio.open_nursery() as answering:
        answering.start_soon(answer)
        async with trio.open_nursery() as nursery:
            for tenant in tenants:
                nursery.start_soon(ask, tenant)
        answering.cancel_scope.cancel()
    for tenant in tenants:
        assert len(heard[tenant]) == 25
        for others in set(tenants) - {tenant}:
            assert not any(others in words for words in heard[tenant])


@pytest.mark.parametrize(
    ("trusted", "said", "shown"),
    [
        (False, {"cacheScope": "public", "ttlMs": 1000}, ("private", 1000)),
        (True, {"cacheScope": "public", "ttlMs": 1000}, ("public", 1000)),
        (True, {"cacheScope": "tenant", "ttlMs": 1000}, ("private", 1000)),
        (True, {"cacheScope": "private", "ttlMs": -5}, ("private", 0)),
        (True, {"cacheScope": "private", "ttlMs": 10**12}, ("private", 3_600_000)),
        (True, {"cacheScope": "private", "ttlMs": "for ever"}, ("private", 0)),
    ],
)
async def test_s12_what_may_be_kept_and_by_whom_is_not_for_anybody_to_say(
    trusted: bool, said: dict[str, Any], shown: tuple[str, int], autojump_clock: MockClock
) -> None:
    back = Back(R5)
    async with brokered(backend(back.ways, trusted=trusted)) as host, peer(host) as client:
        begun = await client.begin("resources/read", uri="notes://one")
        line, request = await back.hear("resources/read")
        await line.answer(request, contents=[{"uri": "notes://one", "text": "x"}], **said)
        read = await client.finish(begun)
        assert (read["cacheScope"], read["ttlMs"]) == shown


# S17: no backend stands in for another.


async def test_s17_two_of_one_name_are_both_called_by_their_backends(autojump_clock: MockClock) -> None:
    deceiving = [tool("book"), tool("b\u043eok"), tool("bo\u200bok"), tool("\u202ekoob")]
    good, bad = Back(R5), Back(R4, tools=deceiving)
    async with brokered(backend(good.ways, "good"), backend(bad.ways, "bad")) as host, peer(host) as client:
        names = [one["name"] for one in (await client.request("tools/list"))["tools"]]
        assert sorted(names) == ["bad__book", "good__book", "other"]
        for name in ("book", *(one["name"] for one in deceiving[1:])):
            with pytest.raises(Refusal, match="-32602"):
                await client.request("tools/call", name=name, arguments={})
        begun = await client.begin("tools/call", name="good__book", arguments={})
        line, request = await good.hear()
        await line.answer(request, **text("mine"))
        assert (await client.finish(begun))["_meta"]["dev.callboard/backend"] == "good"
        assert not bad.told("tools/call")


# S4, S19, S20: what goes to whom, seen from outside.


@attrs.define(eq=False)
class Wire:
    """A relay that notes all bytes on their way to a server."""

    port: int
    seen: bytearray = attrs.field(factory=bytearray)

    async def serve(self, near: trio.SocketStream) -> None:
        async with near, await trio.open_tcp_stream("127.0.0.1", self.port) as far, trio.open_nursery() as nursery:

            async def carry(source: trio.SocketStream, target: trio.SocketStream, *, noted: bool) -> None:
                try:
                    async for data in source:
                        self.seen += data if noted else b""
                        await target.send_all(data)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    pass
                nursery.cancel_scope.cancel()

            nursery.start_soon(lambda: carry(near, far, noted=True))
            await carry(far, near, noted=False)


@asynccontextmanager
async def tapped(url: str) -> AsyncIterator[tuple[str, Wire]]:
    """The address of a relay to *url*, and what it sees."""
    wire = Wire(int(url.split(":")[2].partition("/")[0]))
    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, wire.serve, [listener])
        yield f"http://127.0.0.1:{port}/mcp", wire
        nursery.cancel_scope.cancel()


def secret(number: int) -> str:
    return f"c4n4ry-{number:02}-0123456789abcdef"


def names_in(folder: Path) -> set[str]:
    return {file.name for file in (*folder.rglob("*"), *ROOT.iterdir())}


def recorded(journal: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.read_text().splitlines()]


async def speak(url: str, token: str, *calls: dict[str, Any]) -> list[tuple[bytes, dict[str, Any]]]:
    """Make calls over HTTP as a modern client does. Returns heads and bodies."""
    answers = []
    async with await trio.open_tcp_stream("127.0.0.1", int(url.split(":")[2].partition("/")[0])) as stream:
        for number, params in enumerate(calls):
            frame = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {**params, "_meta": ABOUT}}
            request = post(url, json.dumps(frame).encode(), "tools/call", params["name"])
            extra = f"Authorization: Bearer {token}\r\nMcp-Session-Id: stolen\r\nX-Secret: {secret(19)}\r\n"
            head, _, body = request.partition(b"\r\n\r\n")
            await stream.send_all(head + b"\r\n" + extra.encode() + b"\r\n" + body)
            _, headers, found = await read_response(stream)
            answers.append((repr(headers).encode(), json.loads(found or b"{}")))
    return answers


def config_of(folder: Path, http: str) -> dict[str, Any]:
    """Backends that are given secrets, some of which cannot be reached."""
    recorder = ["-I", "-S", str(SOAK), "pipe", str(folder / "journal"), "--record", "; touch $(pwd)/owned", secret(0)]
    soon = {"restart": {"first": 0.01, "most": 0.05, "times": 2}}
    dead = "http://127.0.0.1:9/mcp"
    return {
        "pipe": {"command": sys.executable, "args": recorder, "env": {"OWN": "${S1}"}, "callboard": {"env": ["S2"]}},
        "net": {"url": http, "headers": {"X-Own": "${S3}"}, "callboard": {"headers": {"X-More": "${S4}"}}},
        "gone": {"url": f"{dead}?key={secret(5)}", "headers": {"Authorization": "Bearer ${S6}"}, "callboard": soon},
        "wrong": {"command": "/nonexistent/program", "args": [secret(7)], "env": {"X": "${S8}"}, "callboard": soon},
        "dying": {
            "command": sys.executable,
            "args": ["-c", "raise SystemExit(3)", secret(9)],
            "env": {"Y": "${S10}"},
            "callboard": soon,
        },
        "closed": {
            "url": dead,
            "callboard": {"oauth": {"client_id": "broker", "client_secret_env": "S11"}, **soon},
        },
    }


@asynccontextmanager
async def broker_with_secrets(folder: Path) -> AsyncIterator[tuple[str, Process, Wire]]:
    """A broker in front of all of them, for principals with tokens."""
    tokens = folder / "tokens"
    tokens.write_text(f"ada {secret(17)}\neve {secret(18)}\n")
    tokens.chmod(0o600)
    environment = {f"S{number}": secret(number) for number in range(1, 17)}
    with served(CAST, "--allow-host", "*") as cast:
        async with tapped(cast.http) as (http, wire):
            file = folder / "servers.json"
            file.write_text(json.dumps({"mcpServers": config_of(folder, http)}))
            flags = ("--http", "0", "--token-file", str(tokens), "--json")
            prefix = ("env", *(f"{name}={value}" for name, value in environment.items()))
            async with started(*prefix, *CALLBOARD, "serve", str(file), *flags) as process:
                ready = await process.hear()
                yield next(one["url"] for one in ready["listening"] if one["transport"] == "http"), process, wire
                process.signal()
                assert await process.wait() == 0


async def test_s4_s19_s20_secrets_go_where_they_are_meant_to_go_and_nowhere_else(tmp_path: Path) -> None:
    async with broker_with_secrets(tmp_path) as (url, process, wire):
        calls = [
            {"name": "pipe__echo", "arguments": {"key": "k", "password": secret(12)}},
            {"name": "pipe__fault", "arguments": {"how": "exit", "password": secret(13)}},
            {"name": "pipe__echo", "arguments": {"key": secret(14)}},
            {"name": "net__say", "arguments": {"words": secret(15)}},
            {"name": "net__fail", "arguments": {}},
            *({"name": f"{name}__x", "arguments": {"p": secret(16)}} for name in ("gone", "wrong", "dying", "closed")),
        ]
        with trio.fail_after(20):
            answers = await speak(url, secret(17), *calls)
            refused = await speak(url, "not-a-token-at-all", calls[0])
            [(head, _)] = refused
        assert b"www-authenticate" in head
    assert process.words.count("backend_lost") >= 4  # there was something to say
    facts = recorded(tmp_path / "journal")
    given = next(fact for fact in facts if "environment" in fact)
    told = "\n".join(fact["heard"] for fact in facts if "heard" in fact)
    # What each backend was meant to get, it got; of the rest nothing.
    assert (given["environment"]["OWN"], given["environment"]["S2"]) == (secret(1), secret(2))
    assert "; touch $(pwd)/owned" in given["command"]
    assert given["group"] == next(fact["started"] for fact in facts if "started" in fact)
    assert "owned" not in names_in(tmp_path)
    seen = {
        "the pipe's environment": (json.dumps(given["environment"]), {1, 2}),
        "the pipe's arguments": (json.dumps(given["command"]), {0}),
        "the pipe": (told, {12, 13, 14}),
        "the wire": (bytes(wire.seen).decode("latin-1"), {3, 4, 15}),
        "the log": (process.words, set()),
        "what the client was told": (json.dumps([body for _, body in answers[4:]]), set()),
        "headers that the client was told": (repr([head for head, _ in answers]), set()),
    }
    for where, (words, meant) in seen.items():
        assert {number for number in range(20) if secret(number) in words} <= meant, where
        assert "mcp-session-id" not in words.lower(), where
    assert "stolen" not in told + bytes(wire.seen).decode("latin-1") + repr(answers)
    assert {number for number in range(20) if secret(number) in seen["the wire"][0]} == {3, 4, 15}, answers
    assert all(secret(number) in told for number in (12, 13)), answers  # it may have died before the third


@pytest.mark.parametrize("revision", [R4, R5], ids=str)
async def test_s20_neither_the_tree_nor_dead_letters_tell_what_was_said(
    revision: Revision, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    back, canary = Back(revision), secret(0)
    trees = []
    async with brokered(backend(back.ways, timeout=1)) as host, peer(host, principal="ada") as client:
        begun = await client.begin("tools/call", name="book", arguments={"password": canary})
        line, request = await back.hear()
        trees.append(render(host.root.tree()))
        with pytest.raises(Refusal) as refused:
            await client.finish(begun)
        await line.answer(request, **text(canary))  # too late
        await line.say(id=7, result={"secret": canary})
        await line.connection.send(b'{"secret": "%s"' % canary.encode())
        begun = await client.begin("tools/call", name="book", arguments={"password": canary})
        line, request = await back.hear()
        line.hang_up()
        with pytest.raises(Refusal) as lost:
            await client.finish(begun)
        await wait_all_tasks_blocked()
        trees += [render(host.root.tree()), repr(host.root.dead_letters.recent), repr(host.root.dead_letters.counts)]
    said = capsys.readouterr()
    told = [str(one.value) + json.dumps(one.value.data) for one in (refused, lost)]
    assert canary not in "\n".join([*trees, *told, said.out, said.err])
