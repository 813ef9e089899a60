"""A broker, and clients and servers that confide to each other what no one else may see.

Each canary is a secret of one kind. It counts as sent only when an end that should have it has it: a secret that never
was in the system proves nothing.
"""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import trio

from callboard import connect
from callboard.client import Client
from callboard.oauth import FileStore
from tests.oauth.town import Giver, Town, open_town
from tests.observe.admin import Operator, token_file
from tests.process import Process, callboard, started
from tests.shared import APPS, ROOT
from tests.transports.server.http.stage import Answer, Stream
from tests.transports.server.http.stage import Client as Connection

TOKEN: Final = "canary-token-of-ada"  # noqa: S105
OTHER_TOKEN: Final = "0123456789-token-of-bob"  # noqa: S105
ADMIN: Final = "canary-token-of-the-operator"
KEY: Final = bytes(range(32, 64))
LEGACY: Final = "2025-11-25"
NOTE: Final = "notes://shelf/a?page=canary-query"
PATHS: Final = ("/", "/page.js", "/views.js", "/api/snapshot?history", "/events", "/metrics", "/readyz?verbose")


@attrs.define(eq=False)
class Scene:
    """What runs, what was sent, and what is shown."""

    process: Process
    urls: dict[str, str]
    folder: Path
    sent: dict[str, str] = attrs.field(factory=dict)
    """Each kind of secret, and the secret."""
    shown: dict[str, str] = attrs.field(factory=dict)
    """What operators see, by where."""
    written: list[bytes] = attrs.field(factory=list)
    """Requests that were answered."""
    answers: list[str] = attrs.field(factory=list)
    """What the wrong client is answered."""

    @property
    def operator(self) -> Operator:
        return Operator(urlsplit(self.urls["admin"]).port or 0)

    def send(self, kind: str, secret: str, evidence: object) -> None:
        """*secret* is in the system: the *evidence* has it."""
        assert secret in str(evidence), (kind, str(evidence)[:500])
        self.sent[kind] = secret

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        port, bare = urlsplit(self.urls["http"]).port, trio.socket.socket()
        await bare.connect(("127.0.0.1", port))
        client = Connection(trio.SocketStream(bare), bare, f"127.0.0.1:{port}".encode())
        try:
            yield client
        finally:
            await client.aclose()

    async def modern(self, method: str, token: str = TOKEN, **params: Any) -> Answer:
        """A request of a modern client, with headers that are its own."""
        headers = {"authorization": f"Bearer {token}", "cookie": "id=canary-cookie", "x_own": "canary-header"}
        async with self.connection() as client:
            request = client.modern(method, headers=headers, **params)
            await client.send(request)
            answer = await client.answer()
        if answer.status == 200:
            self.written.append(request)
        return answer

    async def legacy(self, method: str, session: str | None, token: str = TOKEN, **params: Any) -> Answer:
        """A request in a session, or the one that begins it."""
        headers = {"authorization": f"Bearer {token}"}
        if session is not None:
            headers |= {"mcp_session_id": session, "mcp_protocol_version": LEGACY}
        async with self.connection() as client:
            await client.send(client.post({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}, **headers))
            return await client.answer()

    async def look(self, when: str) -> None:
        """See everything that there is to be seen."""
        bearer = f"authorization: Bearer {ADMIN}"
        for path in PATHS:
            self.shown[f"{path} {when}"] = await self._seen(path, bearer)
        flags = ("--token-file", str(self.folder / "admins"))
        for command in (("top",), ("top", "--json", "--once"), ("status",), ("status", "--json")):
            done = await trio.to_thread.run_sync(partial(callboard, *command, self.urls["admin"], *flags))
            assert "mcp" in done.stdout or "callboard" in done.stdout, done
            self.shown[f"callboard {' '.join(command)} {when}"] = done.stdout + done.stderr
        for action, subject in (("refresh", "back"), ("restart", "nothing"), ("approve", "x"), ("disconnect", "y")):
            body = json.dumps({"action": action, "subject": subject})
            headers = (bearer, "x-callboard: 1", f"content-length: {len(body)}")
            answer = await self.operator.ask("/api/actions", *headers, method="POST", body=body)
            self.shown[f"{action} {when}"] = f"{answer.headers} {answer.body.decode()}"

    async def _seen(self, path: str, bearer: str) -> str:
        if path != "/events":
            return (await self.operator.ask(path, bearer)).body.decode()
        bare = trio.socket.socket()
        await bare.connect(("127.0.0.1", self.operator.port))
        client = Connection(trio.SocketStream(bare), bare, b"")
        try:
            head = f"GET /events HTTP/1.1\r\nhost: 127.0.0.1:{self.operator.port}\r\n{bearer}\r\n\r\n"
            await client.send(head.encode())
            return json.dumps(await (await client.stream_of()).message())
        finally:
            await client.aclose()


# What is confided.


async def confide(scene: Scene) -> None:
    """All of it, in both eras; the view is looked at in between, while a call is parked."""
    for revision in ("2025-06-18", "2026-07-28"):
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        asked: list[Any] = []

        def sample(params: Any, asked: list[Any] = asked) -> str:
            asked.append(params)
            return "canary-sampling-result"

        logged: list[Any] = []
        given: Any = {"revision": revision, "headers": bearer, "sampling": sample}
        given |= {"on_log": logged.append, "log_level": "debug"}
        async with connect(scene.urls["http"], **given) as client:
            await _call(scene, client)
            thought = await client.call("back__think")
        scene.send("log message", "canary-log", logged)
        scene.send("sampling message", "canary-sampling-message", asked)
        scene.send("sampling system prompt", "canary-sampling-system", asked)
        scene.send("sampling result", "canary-sampling-result", thought.content)
    await _ask(scene)
    await _listen(scene)
    await _have_tasks(scene)


async def _call(scene: Scene, client: Client) -> None:
    async with client.call("back__tell", word="canary-argument") as call:
        heard = [report async for report in call.progress]
    told = call.result
    scene.send("argument", "canary-argument", told.content)
    scene.send("result", "canary-result", told.content)
    scene.send("progress", "canary-progress", heard)
    failed = await client.call("back__fail")
    assert "RuntimeError" in str(failed.content)
    scene.answers.append(str(failed.content))  # even its own caller gets no text of an exception
    scene.sent["exception"] = "canary-exception"
    scene.send("environment", "canary-environment", (await client.call("back__environment")).content)
    read = await client.read(NOTE)
    scene.send("contents", "canary-contents", read)
    scene.send("query of a URI", "canary-query", read)
    brief = await client.prompt("back__brief", topic="canary-topic")
    scene.send("prompt", "canary-prompt", brief)
    scene.send("prompt argument", "canary-topic", brief)
    assert "seen" in str((await client.call("guarded__look")).content)


async def _ask(scene: Scene) -> None:
    asked = (await scene.modern("tools/call", name="back__ask", arguments={})).result
    scene.send("question", "canary-question", asked["inputRequests"])
    state = asked["requestState"]
    scene.send("requestState", state, asked)
    await scene.look("while it is parked")
    (key,) = asked["inputRequests"]
    responses = {key: {"action": "accept", "content": {"word": "canary-answer"}}}
    again = {"name": "back__ask", "arguments": {}, "inputResponses": responses, "requestState": state}
    scene.answers.append(str((await scene.modern("tools/call", OTHER_TOKEN, **again)).body))
    scene.send("answer", "canary-answer", (await scene.modern("tools/call", **again)).body)
    for kind, secret in (("cookie", "canary-cookie"), ("header", "canary-header"), ("bearer token", TOKEN)):
        scene.send(kind, secret, scene.written)


async def _listen(scene: Scene) -> None:
    async with scene.connection() as client:
        wanted: Any = {"id": "canary-subscription", "notifications": {"resourceSubscriptions": [NOTE]}}
        headers = {"authorization": f"Bearer {TOKEN}"}
        await client.send(client.modern("subscriptions/listen", headers=headers, **wanted))
        stream: Stream = await client.stream_of()
        scene.send("subscription id", "canary-subscription", await stream.message())
        await scene.look("while one listens")


async def _have_tasks(scene: Scene) -> None:
    about: Any = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    session = (await scene.legacy("initialize", None, **about)).headers["mcp-session-id"]
    created = (await scene.legacy("tools/call", session, name="bare__book", arguments={}, task={})).body.decode()
    task = json.loads(created[created.index("{") :].splitlines()[0])["result"]["task"]["taskId"]
    standing = await scene.legacy("tasks/get", session, taskId=task)
    scene.send("task id", task, standing.body)
    assert b"working" in standing.body  # the server behind was asked for its own
    scene.sent["task id of the server"] = "canary-task-behind"
    scene.send("session id", session, session)
    refused = await scene.legacy("tools/call", session, name="bare__refuse", arguments={})
    scene.send("error text", "canary-error-text", refused.body)  # for its caller, and for no one else
    scene.send("error data", "canary-error-data", refused.body)
    await scene.look("at the end")
    for method, params in (("tasks/get", {"taskId": task}), ("tools/list", {})):
        scene.answers.append(str(await scene.legacy(method, session, OTHER_TOKEN, **params)))
    for method, params in (
        ("tools/call", {"name": "lost__x", "arguments": {}}),
        ("tools/call", {"name": "shut__x", "arguments": {}}),
        ("resources/read", {"uri": "notes://shelf/none/such"}),
        ("prompts/get", {"name": "back__none"}),
        ("tools/list", {}),
    ):
        scene.answers.append(str(await scene.modern(method, OTHER_TOKEN, **params)))
    scene.answers.append(str(await scene.modern("tools/list", "a-token-that-is-wrong")))


# What runs.


@asynccontextmanager
async def scenery(folder: Path, *flags: str) -> AsyncIterator[Scene]:
    """The broker, its servers, and an authorization server. *flags* are the broker's own."""
    (folder / "keys").write_text(KEY.hex() + "\n")
    (folder / "keys").chmod(0o600)
    (folder / "tokens").write_text(f"ada {TOKEN}\nbob {OTHER_TOKEN}\n")
    (folder / "tokens").chmod(0o600)
    town = Town(giver=Giver(name="canary-oauth", refreshes=True))
    async with open_town(town, within=120), trio.open_nursery() as nursery:
        heads: list[str] = []
        port = await nursery.start(_refuse_all, heads)
        async with connect(town.url, auth=town.auth(FileStore.at_home())):
            pass  # as by `callboard login`
        config = folder / "servers.json"
        config.write_text(json.dumps({"mcpServers": _servers(town.url, port)}))
        words = ["--http", "0", "--admin", "0", "--json", "--access-log", "--trace", "--trace-accept", "always"]
        words += ["--token-file", str(folder / "tokens"), "--admin-actions", "--log-level", "info"]
        words += ["--admin-token-file", token_file(folder, line=f"ops {ADMIN}")]
        words += ["--audit", str(folder / "audit"), "--audit-arguments", "digest"]
        words += ["--state-key-file", str(folder / "keys"), *flags]
        program = [sys.executable, "-m", "tests.observe.traced_callboard", str(folder / "spans"), "serve", str(config)]
        async with started(*program, *words, cwd=ROOT, patience=110) as process:
            told = await process.hear()
            scene = Scene(process, {one["transport"]: one["url"] for one in told["listening"]}, folder)
            yield scene
            process.signal()
        scene.send("admin token", ADMIN, (folder / "admins").read_text())
        scene.send("key of the ring", KEY.hex(), (folder / "keys").read_text())
        said = " ".join(town.giver.tokens), " ".join(town.giver.refreshers)
        scene.send("OAuth access token", "canary-oauth-token", said[0])
        scene.send("OAuth refresh token", "canary-oauth-refresh", said[1])
        for kind, secret in (
            ("query of a server's URL", "canary-url-query"),
            ("header for a server", "canary-backend-header"),
        ):
            scene.send(kind, secret, heads)
        nursery.cancel_scope.cancel()


def _servers(guarded: str, port: int) -> Any:
    app = ["-m", "callboard", "run", str(APPS / "confiding.py"), "--log-level", "error"]
    lost = "echo canary-last-words >&2; exit 3"
    return {
        "back": {"command": sys.executable, "args": app, "env": {"PASSWORD": "canary-environment"}},
        "bare": {"command": sys.executable, "args": [str(APPS / "bare_tasks.py")]},
        "lost": {"command": "sh", "args": ["-c", lost, "canary-argv"]},
        "guarded": {"url": guarded, "callboard": {"oauth": {"grant": "authorization_code"}}},
        "shut": {
            "url": f"http://127.0.0.1:{port}/mcp?key=canary-url-query",
            "headers": {"X-Secret": "canary-backend-header"},
        },
    }


async def _refuse_all(heads: list[str], *, task_status: trio.TaskStatus[int]) -> None:
    """A server that refuses everything, with words of its own."""

    async def refuse(stream: trio.SocketStream) -> None:
        async with stream:
            heads.append((await stream.receive_some(65_536)).decode("latin-1"))
            body = b"canary-http-error"
            await stream.send_all(
                b"HTTP/1.1 500 No\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (len(body), body)
            )

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, refuse, 0)
        task_status.started(listeners[0].socket.getsockname()[1])
