"""Secrets of callers and operators stand in no output, and tokens of callers reach no backend: each with its figure."""

import base64
import hashlib
import json
import secrets
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import pytest
import trio
from joserfc.jwk import ECKey, OctKey

from callboard.codecs.oauth.signed import thumbprint
from tests.authorization.authority import STRANGER, Authority, public, sign
from tests.authorization.stage import TABLES, Guarded, ask_at, guarded, text_of
from tests.figures import figure
from tests.fork_server import forked
from tests.process import started
from tests.shared import APPS
from tests.transports.server.http.stage import Answer, request

HOLDER: Final = ECKey.generate_key("P-256")

MORE_ISSUERS: Final = """
[[authorization.issuers]]
issuer = "https://shared.example"
secret_env = "TEST_SHARED"
audiences = ["us"]

[[authorization.issuers]]
issuer = "https://opaque.example"
audiences = ["us"]
trust = ["127.0.0.1"]
introspection = {endpoint = "{issuer}/introspect", client_id = "me", client_secret_env = "TEST_CLIENT"}

[[authorization.rules]]
tools = ["secret"]
only = {claim = "groups", has = "hr"}

[quotas]
principal = {count = 1000, per = 1}
"""


@attrs.define(eq=False)
class Canaries:
    """Secrets, and where each was put."""

    made: dict[str, str] = attrs.field(factory=dict)

    def new(self, where: str) -> str:
        self.made[where] = f"canary{secrets.token_hex(12)}"
        return self.made[where]

    def token(self, where: str, token: str) -> str:
        """A token is one, and so is each part of it but the first: that is the same for many."""
        self.made |= {f"{where}, part {number}": part for number, part in enumerate(token.split(".")) if number}
        return token

    def hits(self, text: str) -> list[str]:
        """What is found in *text*: as it is, or in base64."""
        found = [where for where, word in self.made.items() if word in text]
        for where, word in self.made.items():
            for shift in range(3):  # the middle of its base64, wherever it begins
                coded = base64.b64encode(b"x" * shift + word.encode())[4:-4].decode()
                if coded in text or coded.replace("+", "-").replace("/", "_") in text:
                    found.append(f"{where}, in base64")
        return found


async def test_s20_no_secret_is_in_any_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    canaries, audit = Canaries(), tmp_path / "audit.jsonl"
    static, admin, state = (canaries.new(name) for name in ("token file", "admin token", "state key"))
    admins, keys = tmp_path / "admins", tmp_path / "keys"
    for file, text in ((admins, f"root {admin}\n"), (keys, f"{secrets.token_hex(32)}\n")):
        file.touch(0o600)
        file.write_text(text)
    canaries.made["state key"] = keys.read_text().strip() or state
    monkeypatch.setenv("TEST_SHARED", hs := canaries.new("shared secret") * 2)
    monkeypatch.setenv("TEST_CLIENT", canaries.new("introspection secret"))
    options = ("--admin", "127.0.0.1:0", "--admin-token-file", str(admins), "--access-log", "--audit", str(audit))
    more = (
        "--audit-arguments",
        "digest",
        "--state-key-file",
        str(keys),
        "--debug",
        "--ws",
        "127.0.0.1:0",
        "--legacy-sse",
    )
    authority = Authority()
    async with guarded(
        tmp_path, *options, *more, tables=TABLES + MORE_ISSUERS, tokens=f"ada {static} mcp:use\n", authority=authority
    ) as here:
        said = await visit(here, canaries, hs, static)
        at = here.url("admin")
        paths = ("/", "/metrics", "/api/snapshot", "/api/stderr", "/readyz")
        shown = [await admin_page(at, path, admin) for path in paths]
        for command in (["status", at, "--json"], ["status", at]):
            done = await trio.run_process(
                [*forked(), *command, "--token-file", str(admins)],
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
            shown.append((done.stdout + done.stderr).decode())
        assert "scoped" in shown[-2]
    written = {
        "log": here.process.words,
        "audit": audit.read_text(),
        "pages": "\n".join(shown),
        "answers": "\n".join(said),
    }
    assert "token_refused" in written["log"]
    assert "authentication_refused" in written["audit"]
    assert {name: canaries.hits(text) for name, text in written.items()} == {name: [] for name in written}
    assert canaries.hits(f"a {static} b") == ["token file"]
    assert canaries.hits(base64.b64encode(f"user {static} more".encode()).decode()) == ["token file, in base64"]
    size = sum(len(text) for text in written.values())
    figure("promise S20", f"{len(canaries.made)} secrets in {size} characters of output: 0 hits", "0")
    assert len(canaries.made) > 20


async def visit(here: Guarded, canaries: Canaries, hs: str, static: str) -> list[str]:
    """Come with secrets of all kinds, good and bad. Returns all that was answered."""
    answers: list[Answer] = []
    claims: dict[str, Any] = {
        "email": canaries.new("claim"),
        "jti": canaries.new("jti"),
        "nested": {"a": [canaries.new("nested claim")]},
    }
    opaque, unknown = canaries.new("opaque token"), canaries.new("unknown opaque token")
    here.authority.tokens[opaque] = {
        "active": True,
        "sub": "op",
        "aud": "us",
        "exp": int(time.time()) + 60,
        "scope": "mcp:use",
        "note": canaries.new("claim of an opaque token"),
    }
    bound = canaries.token("bound token", here.token(cnf={"jkt": HOLDER.thumbprint()}, **claims))
    proofs = [
        canaries.token("proof", proof(here, bound, canaries)),
        canaries.token("bad proof", proof(here, bound, canaries, htm="X")),
    ]
    shared = here.claims(iss="https://shared.example", aud="us", note=canaries.new("HS claim"))
    tokens = [
        static,
        canaries.new("unknown token"),
        canaries.token("good token", here.token(**claims)),
        canaries.token("wrong audience", here.token(aud=canaries.new("audience"))),
        canaries.token("unknown issuer", here.token(iss=f"https://{canaries.new('issuer')}")),
        canaries.token("expired", here.token(exp=1, sub=canaries.new("expired subject"))),
        canaries.token("unknown key", sign(here.claims(), STRANGER, kid=canaries.new("kid"))),
        canaries.token("no tenant", here.token(org={"a": canaries.new("odd tenant")})),
        canaries.token("shared", sign(shared, OctKey.import_key(hs.encode()), "HS256", kid=None)),
        opaque,
        unknown,
    ]
    for token in tokens:
        answers += [await here.call(tool, token) for tool in ("who", "secret", "write", "no-such-tool")]
        answers.append(await here.modern("tools/call", token=token, name="hold", arguments={"file": 1}))
        client = await here.connect()
        await client.send(
            request("GET", "/sse", *here.lines(token), host=client.host.decode(), accept="text/event-stream")
        )
        answers.append(await client.head())
        await client.aclose()
    for proven in proofs:
        lines = (f"Authorization: DPoP {bound}", f"DPoP: {proven}")
        answers.append(await here.modern("tools/call", *lines, name="who", arguments={}))
    basic = base64.b64encode(f"user:{canaries.new('basic password')}".encode()).decode()
    for line in (
        f"Authorization: Basic {basic}",
        f"Authorization: Bearer {canaries.new('first of two')} {canaries.new('second of two')}",
        f"Cookie: session={canaries.new('cookie')}",
        f"X-Api-Key: {canaries.new('key header')}",
        f"Proxy-Authorization: Bearer {canaries.new('proxy token')}",
        f"Mcp-Session-Id: {canaries.new('session id')}",
        f"DPoP: {canaries.new('stray proof')}",
    ):
        answers.append(await here.modern("tools/call", line, name="who", arguments={}))
        if not line.startswith("Authorization"):
            answers.append(await here.modern("tools/call", line, token=static, name="who", arguments={}))
    client = await here.connect()
    for query in (f"access_token={canaries.new('query token')}", f"key={canaries.new('query key')}"):
        data = client.modern("tools/call", *here.lines(static), name="who", arguments={})
        answers.append(await here.send(data.replace(b"POST /mcp", f"POST /mcp?{query}".encode(), 1)))
    state = canaries.new("state handle")
    answers.append(
        await here.modern(
            "tools/call", token=static, name="sign_up", arguments={}, requestState=state, inputResponses={}
        )
    )
    assert {answer.status for answer in answers} >= {200, 400, 401, 403}
    return [f"{answer.status} {answer.headers} {answer.body.decode()}" for answer in answers]


def proof(here: Guarded, token: str, canaries: Canaries, **changes: Any) -> str:
    jwk = {name: value for name, value in public(HOLDER).items() if name != "kid"}
    claims = {
        "jti": canaries.new(f"proof {changes}"),
        "htm": "POST",
        "htu": here.url(),
        "iat": int(time.time()),
        "ath": thumbprint(hashlib.sha256(token.encode()).digest()),
    } | changes
    return sign(claims, HOLDER, "ES256", typ="dpop+jwt", kid=None, jwk=jwk)


async def admin_page(url: str, path: str, token: str) -> str:
    at = urlsplit(url)
    stream = await trio.open_tcp_stream(at.hostname or "", at.port or 0)
    async with stream:
        lines = (f"Authorization: Bearer {token}", "Connection: close")
        await stream.send_all(request("GET", path, *lines, host=at.netloc))
        return b"".join([data async for data in stream]).decode()


# S4: tokens of callers and backends.


async def test_s4_the_token_of_a_caller_reaches_no_backend(tmp_path: Path) -> None:
    """One backend is a process, one is behind HTTP: all bytes on the way to it are looked at."""
    heard = bytearray()
    async with (
        trio.open_nursery() as nursery,
        started(
            *forked(), "run", str(APPS / "memory.py"), "--http", "127.0.0.1:0", "--allow-host", "*", "--json"
        ) as backend,
    ):
        port = urlsplit(json.loads(await backend.line() or b"")["listening"][0]["url"]).port or 0
        listener = (await nursery.start(trio.serve_tcp, lambda stream: relay(stream, port, heard), 0))[0]
        at = listener.socket.getsockname()[1]
        program, *words = (*forked(), "run", str(APPS / "memory.py"))
        process = {"command": program, "args": words}
        servers = {"far": {"url": f"http://127.0.0.1:{at}/mcp"}, "near": process}
        file = tmp_path / "servers.json"
        file.write_text(json.dumps({"mcpServers": servers}))
        async with guarded(tmp_path, target=("serve", str(file))) as here:
            canaries = Canaries()
            email = canaries.new("claim")
            token = canaries.token("token", here.token(email=email, sub="alice"))
            for number in range(5):
                for name in ("far", "near"):
                    arguments = {"text": f"echo {number}", "turns": 1}
                    lines = (
                        f"Cookie: {canaries.new(f'cookie {name} {number}')}",
                        f"X-Api-Key: {canaries.new(f'key {name} {number}')}",
                    )
                    found = await ask_at(
                        here.url(), "tools/call", *lines, token=token, name=f"{name}__echo", arguments=arguments
                    )
                    assert text_of(found) == f"echo {number}"
            around = await ask_at(here.url(), "tools/call", token=token, name="near__around", arguments={})
            assert "PATH" in text_of(around)
        assert b"echo 4" in heard
        assert canaries.hits(heard.decode(errors="replace")) == canaries.hits(around.body.decode()) == []
        assert canaries.hits(here.process.words) == []
        assert b"uthorization" not in heard
        figure(
            "promise S4",
            f"{len(canaries.made)} canaries, 0 in {len(heard)} bytes to a backend, its argv and environment",
            "0",
        )
        backend.signal()
        nursery.cancel_scope.cancel()


async def relay(stream: trio.SocketStream, port: int, heard: bytearray) -> None:
    """Pass bytes on, and note those to the backend."""
    other = await trio.open_tcp_stream("127.0.0.1", port)

    async def back() -> None:
        async for data in other:
            await stream.send_all(data)
        nursery.cancel_scope.cancel()

    try:
        async with other, trio.open_nursery() as nursery:
            nursery.start_soon(back)
            async for data in stream:
                heard.extend(data)
                await other.send_all(data)
            nursery.cancel_scope.cancel()
    except* (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
