"""What an operator replaces while a server runs: each takes effect within a second, and calls of others go on.

The times are printed (`pytest -s`): from the moment a file is replaced to the first answer that goes by it.
"""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from joserfc.jwk import RSAKey

from tests.authorization.authority import RSA, Authority, public
from tests.authorization.stage import TABLES, Guarded, guarded, replace, text_of, wait_file
from tests.certificate import write_certificate
from tests.figures import BUSY, figure
from tests.transports.server.http.stage import Answer

WANTED: Final = 1.0
"""Seconds until a new file counts."""

BYSTANDER: Final = "0123456789abcdef-bystander"
OLD: Final = "0123456789abcdef-old"
NEW: Final = "0123456789abcdef-new"
ALWAYS: Final = f"bystander {BYSTANDER} mcp:use\n"
NEW_KEY: Final = RSAKey.generate_key(2048, {"kid": "new"})

workers = pytest.mark.parametrize("workers", ["1", "2"])


@asynccontextmanager
async def undisturbed(here: Guarded, times: int = 4) -> AsyncIterator[None]:
    """Calls of another principal run through the block, and end well: modern ones, and those of a session."""
    found: list[str] = []
    sessions = [await here.session(BYSTANDER) for _ in range(2)]

    async def hold(number: int) -> None:
        client = await here.connect()
        arguments = {"file": str(here.folder / f"go-{number}")}
        if number % 2:
            lines = here.lines(BYSTANDER)
            await client.send(client.modern("tools/call", *lines, name="hold", arguments=arguments))
        else:
            session = sessions[number // 2 % 2]
            await client.send(session.post(session.request("tools/call", name="hold", arguments=arguments)))
        found.append(text_of(await client.answer()))

    async with trio.open_nursery() as nursery:
        for number in range(times):
            nursery.start_soon(hold, number)
        for number in range(times):
            await wait_file(here.folder / f"go-{number}.begun")
        yield
        assert found == []
        for number in range(times):
            (here.folder / f"go-{number}").touch()
    assert found == ["held"] * times
    for session in sessions:
        assert (await session.call("who")).status == 200


async def until(ask: Callable[[], Awaitable[object]], *, streak: int = 1) -> float:
    """Ask again and again until the answer is yes, *streak* times in a row: each worker has to say so. The seconds up
    to the first of them."""
    began = trio.current_time()
    first, row = 0.0, 0
    with trio.fail_after(20):
        while row < streak:
            if await ask():
                row += 1
                first = first if row > 1 else trio.current_time() - began
            else:
                row = 0
                await trio.sleep(0.002)  # a user who tries again
    return first


def tell(what: str, workers: str, seconds: float) -> None:
    figure(f"rotation of a {what}", f"{seconds * 1000:.0f} ms, workers {workers}", "1000 ms")
    assert seconds < WANTED * BUSY


def streak(workers: str) -> int:
    return 1 if workers == "1" else 24  # either worker answers: 24 of one kind by chance is one in 8 million


@workers
async def test_a_token_file(workers: str, tmp_path: Path) -> None:
    async with guarded(tmp_path, "--workers", workers, tokens=f"{ALWAYS}ada {OLD} mcp:use\n") as here:
        assert text_of(await here.call("who", OLD))
        async with undisturbed(here):
            replace(here.tokens, f"{ALWAYS}ada {NEW} mcp:use\n")

            async def is_new() -> bool:
                return (await here.call("who", NEW)).status == 200 and (await here.call("who", OLD)).status == 401

            tell("token file", workers, await until(is_new, streak=streak(workers)))


@workers
async def test_a_certificate(workers: str, tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, "localhost")
    old = ssl.create_default_context(cafile=certificate)
    options = ("--workers", workers, "--tls-cert", str(certificate), "--tls-key", str(key))
    async with guarded(tmp_path, *options, tokens=ALWAYS, tls=old, http="localhost:0") as here, undisturbed(here):
        fresh = tmp_path / "fresh"
        fresh.mkdir()
        for file, made in zip((certificate, key), write_certificate(fresh, "localhost"), strict=True):
            made.replace(file)
        here.tls = ssl.create_default_context(cafile=certificate)

        async def is_new() -> bool:
            try:
                return (await here.call("who", BYSTANDER)).status == 200
            except trio.BrokenResourceError:
                return False

        tell("certificate", workers, await until(is_new, streak=streak(workers)))


@workers
async def test_a_key_of_the_issuer(workers: str, tmp_path: Path) -> None:
    """The issuer signs with a new key: its first token has the keys fetched again, and the old one is good no more once
    the issuer does not show it."""
    authority = Authority()
    async with guarded(tmp_path, "--workers", workers, tokens=ALWAYS, authority=authority) as here:
        old = here.token()
        for _ in range(streak(workers)):
            assert text_of(await here.call("who", old))
        before = authority.visits("/jwks")
        async with undisturbed(here):
            authority.keys = [public(NEW_KEY)]
            new = here.token(NEW_KEY)
            began = trio.current_time()
            assert text_of(await here.call("who", new))  # the very first
            seconds = trio.current_time() - began
            for _ in range(streak(workers)):
                assert text_of(await here.call("who", new))

            async def is_gone() -> bool:
                return (await here.call("who", old)).status == 401

            await until(is_gone, streak=streak(workers))
        tell("JWKS key", workers, seconds)
        assert authority.visits("/jwks") - before <= int(workers)


@workers
async def test_the_signing_key_of_a_file(workers: str, tmp_path: Path) -> None:
    """The keys stand in the file: who holds the old one is out."""
    tables = TABLES + "jwks = {keys = [{key}]}\n"

    def with_key(key: Any) -> str:
        said = ", ".join(f'{name} = "{value}"' for name, value in public(key).items() if isinstance(value, str))
        return tables.replace("{key}", f"{{{said}}}")

    async with guarded(tmp_path, "--workers", workers, tokens=ALWAYS, tables=with_key(RSA)) as here:
        old, new = here.token(), here.token(NEW_KEY)
        assert text_of(await here.call("who", old))
        async with undisturbed(here):
            replace(here.file, with_key(NEW_KEY).replace("{issuer}", here.authority.url))

            async def is_new() -> bool:
                return (await here.call("who", new)).status == 200 and (await here.call("who", old)).status == 401

            tell("signing key", workers, await until(is_new, streak=streak(workers)))
        assert here.authority.house.asked == []


@workers
async def test_a_rule_file(workers: str, tmp_path: Path) -> None:
    rule = '[[authorization.rules]]\ntools = ["secret"]\nonly = {tenant = "other"}\n'
    async with guarded(tmp_path, "--workers", workers, tokens=ALWAYS) as here:
        token = here.token()
        session = await here.session(token)
        assert text_of(await session.call("secret")) == "seen"
        async with undisturbed(here):
            replace(here.file, (TABLES + rule).replace("{issuer}", here.authority.url))

            async def is_hidden() -> bool:
                answer = await here.call("secret", token)
                return answer.status != 200 or "error" in answer.json

            async def is_hidden_in_session() -> bool:
                return "error" in (await session.call("secret")).json

            tell("rule file", workers, await until(is_hidden, streak=streak(workers)))
            await until(is_hidden_in_session)
            replace(here.file, TABLES.replace("{issuer}", here.authority.url))

            async def is_back() -> bool:
                return not await is_hidden()

            tell("rule file (back)", workers, await until(is_back, streak=streak(workers)))


@workers
async def test_a_revoked_principal(workers: str, tmp_path: Path) -> None:
    """Its calls, sessions and streams end; those of others do not."""
    async with guarded(tmp_path, "--workers", workers, tokens=f"{ALWAYS}eve {OLD} mcp:use\n") as here:
        session = await here.session(OLD)
        running = await here.connect()
        arguments = {"file": str(tmp_path / "never")}
        call = session.request("tools/call", name="hold", arguments=arguments)
        await running.send(session.post(call))
        await wait_file(tmp_path / "never.begun")
        stream = await session.listen()
        async with undisturbed(here):
            began = trio.current_time()
            replace(here.tokens, ALWAYS)
            await stream.rest()
            ended = trio.current_time() - began

            async def is_out() -> bool:
                return (await here.call("who", OLD)).status == 401

            tell("revoked principal", workers, max(ended, await until(is_out, streak=streak(workers))))
            assert await _refused(session.call("who")) == 401
            answer = await running.answer()
            assert "result" not in answer.body.decode()


async def _refused(answer: Awaitable[Answer]) -> int:
    return (await answer).status
