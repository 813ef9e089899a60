"""Traces across processes: the official client in front, the official server behind, and HTTP in between."""

import json
import logging
import re
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from opentelemetry import trace as api
from trio.testing import MockClock

from benchmarks.peers import environment
from callboard import Server, connect
from callboard.broker import Broker
from callboard.codecs.http.head import Head
from callboard.codecs.revisions import Revision
from callboard.config import BackendSpec, Remote
from callboard.errors import CannotServe
from callboard.observe import tracing
from callboard.serve.options import Options, Ready, ServePlan
from callboard.serve.run import serve
from callboard.serve.traces import begin_tracing
from tests.observe.spans import HEADER_PARENT, PARENT, PARENT_ID, Spans, ids, links_of, parent_of
from tests.process import CALLBOARD, callboard, started
from tests.shared import APPS, ROOT
from tests.transports.server.http.stage import Client

MODERN, LEGACY = "2026-07-28", "2025-11-25"
HEADER_ID = HEADER_PARENT.split("-")[2]

app = Server("app")


@app.tool
async def echo(text: str) -> str:
    return text


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    """Those of this process, as if its SDK were set up."""
    found = Spans()
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", found.provider)
    return found


@asynccontextmanager
async def at(server: Server | Broker, **options: Any) -> AsyncIterator[str]:
    given: Options = {"http": "127.0.0.1:0", "trace": True, **options}  # type: ignore[typeddict-item]
    async with trio.open_nursery() as nursery:
        enough = trio.Event()
        ready: Ready = await nursery.start(partial(serve, server, until=enough.wait, **given))
        yield next(one.url or "" for one in ready.listening if one.transport == "http")
        enough.set()


# Official client, broker, official server: each a process.


def read(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(("mode", "revision"), [("auto", MODERN), ("legacy", LEGACY)])
async def test_the_official_client_a_broker_and_the_official_server_make_one_tree(
    mode: str, revision: str, tmp_path: Path
) -> None:
    python = str(await trio.to_thread.run_sync(environment, "mcp==2.3.0", "opentelemetry-sdk==1.45.2"))
    files = {name: tmp_path / name for name in ("client", "broker", "server")}
    program = [python, "-m", "tests.observe.official"]
    behind = [*program, "server", str(files["server"])]
    broker = [sys.executable, "-m", "tests.observe.traced_broker", str(files["broker"]), *behind]
    async with started(*broker, cwd=ROOT) as process:
        url = (await process.hear())["listening"][0]["url"]
        async with started(*program, "client", str(files["client"]), url, mode, cwd=ROOT) as client:
            assert await client.line() == b"3"
        process.signal()
    calls = {name: [span for span in read(path) if "add" in span["name"]] for name, path in files.items()}
    (agent,) = [span for span in read(files["client"]) if span["name"] == "agent"]
    (asked,) = calls["client"]
    front, back = sorted(calls["broker"], key=lambda span: "SERVER" not in span["kind"])
    (done,) = calls["server"]
    tree = [agent, asked, front, back, done]
    assert len({span["context"]["trace_id"] for span in tree}) == 1
    assert [span["parent_id"] for span in tree] == [None, *(span["context"]["span_id"] for span in tree[:-1])]
    assert [span["kind"] for span in tree[1:]] == [f"SpanKind.{kind}" for kind in ("CLIENT", "SERVER") * 2]
    assert front["attributes"]["mcp.protocol.version"] == revision


# HTTP.


async def post(url: str, message: dict[str, Any], *headers: str) -> Any:
    port = int(url.split(":")[2].split("/")[0])
    bare = trio.socket.socket()
    await bare.connect(("127.0.0.1", port))
    client = Client(trio.SocketStream(bare), bare, f"127.0.0.1:{port}".encode())
    body = json.dumps({"jsonrpc": "2.0", **message})
    lines = [
        *("POST /mcp HTTP/1.1", f"host: 127.0.0.1:{port}", "content-type: application/json"),
        *("accept: application/json, text/event-stream", f"content-length: {len(body)}", *headers, "", body),
    ]
    try:
        await client.send("\r\n".join(lines).encode())
        return await client.answer()
    finally:
        await client.aclose()


async def call(url: str, meta: dict[str, Any], *headers: str) -> None:
    own = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
    params = {"name": "echo", "arguments": {"text": "hi"}, "_meta": {**own, **meta}}
    mirrored = (f"mcp-protocol-version: {MODERN}", "mcp-method: tools/call", "mcp-name: echo")
    answer = await post(url, {"id": 1, "method": "tools/call", "params": params}, *mirrored, *headers)
    assert answer.status == 200, answer


async def test_the_header_is_the_parent_and_beside_meta_a_link(spans: Spans) -> None:
    header = f"traceparent: {HEADER_PARENT}"
    async with at(app) as url:
        await call(url, {}, header)
        await call(url, {"traceparent": PARENT}, header)
        await call(url, {"traceparent": PARENT}, f"traceparent: {PARENT}")
        await call(url, {}, header, header)
        await call(url, {}, header, "tracestate: a=1", "tracestate: b=2")
    by_header, both, same, twice, with_state = spans
    assert (parent_of(by_header), links_of(by_header)) == (HEADER_ID, [])
    assert (parent_of(both), links_of(both)) == (PARENT_ID, [HEADER_ID])
    assert (parent_of(same), links_of(same)) == (PARENT_ID, [])
    assert parent_of(twice) is None
    assert with_state.context.trace_state.to_header() == "a=1,b=2"


async def test_the_header_counts_in_a_legacy_session(spans: Spans) -> None:
    async with at(app) as url, connect(url, revision=LEGACY, headers={"traceparent": HEADER_PARENT}) as client:
        await client.call("echo", text="hi")
    (span,) = [span for span in spans if span.name == "tools/call echo"]
    assert parent_of(span) == HEADER_ID
    assert (span.attributes or {})["network.protocol.name"] == "http"


@pytest.mark.parametrize("front", [MODERN, LEGACY])
@pytest.mark.parametrize("behind", [MODERN, LEGACY])
async def test_a_backend_gets_our_span_in_the_header_too(
    front: str, behind: str, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads: list[Head | None] = []
    begin = tracing.Tracing.begin

    def noting(self: tracing.Tracing, *said: Any) -> tracing.RequestSpan:
        heads.append(said[-1])
        return begin(self, *said)

    monkeypatch.setattr(tracing.Tracing, "begin", noting)
    server = Server("behind", revisions=frozenset({Revision(behind)}))
    server.tool(echo)
    async with at(server) as inner:
        spec = BackendSpec(name="behind", target=Remote(url=inner))
        async with at(Broker([spec])) as url, connect(url, revision=front) as client:
            heads.clear()
            await client.call("behind__echo", text="hi")
    asked, back, done = spans_of_a_call(spans)
    assert parent_of(back) == ids(asked)[1]
    assert parent_of(done) == ids(back)[1]
    sent = [head.get(b"traceparent") for head in heads if head is not None]
    assert f"00-{ids(back)[0]}-{ids(back)[1]}-{back.context.trace_flags:02x}".encode() in sent


def spans_of_a_call(spans: Spans) -> list[Any]:
    found = [span for span in spans if span.name.startswith("tools/call")]
    return sorted(found, key=lambda span: span.start_time or 0)


# What is logged, and what is said at the start.


async def test_log_lines_of_a_request_have_its_ids(tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.write_text(
        f"from tests.observe.span_file import write_spans\nwrite_spans({str(tmp_path / 'spans')!r})\n"
        + (APPS / "frank.py").read_text()
    )
    flags = ("--http", "0", "--json", "--trace", "--access-log", "--log-format", "json")
    async with started(*CALLBOARD, "run", str(script), *flags, cwd=ROOT) as process:
        url = (await process.hear())["listening"][0]["url"]
        async with connect(url) as client:
            await client.call("echo", text="hi")
            await client.call("fail")
        process.signal()
    by_name = {span["name"]: span["context"] for span in read(tmp_path / "spans")}
    found = [json.loads(line) for line in process.words.splitlines() if line.startswith("{") and '"event"' in line]
    lines = [one for one in found if one["event"] == "handler_failed" or one.get("method") == "tools/call"]
    assert sorted(one["event"] for one in lines) == ["handler_failed", "request", "request"]
    for line in lines:
        context = by_name[f"tools/call {line.get('name', 'fail')}"]
        assert (f"0x{line['trace_id']}", f"0x{line['span_id']}") == (context["trace_id"], context["span_id"])
    assert not any("trace_id" in one for one in found if one["event"] not in ("request", "handler_failed"))


def test_without_an_sdk_no_span_is_made_and_the_log_says_so() -> None:
    done = callboard("run", str(APPS / "frank.py"), "--trace")
    assert done.returncode == 0
    assert "tracing_not_configured" in done.stderr


async def test_without_an_sdk_a_request_is_not_observed_at_all() -> None:
    assert isinstance(api.get_tracer_provider(), api.ProxyTracerProvider)
    async with app.host() as host:
        await begin_tracing(host, "always")()
        assert host.tracer is None
        assert host.observer is None


def test_without_the_package_it_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if re.match(r"opentelemetry(\.|$)", name)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(CannotServe, match=r"pip install 'callboard\[telemetry\]'"):
        ServePlan(trace=True)
    ServePlan()


@pytest.mark.parametrize(
    ("options", "accepts"),
    [
        ({}, "always"),
        ({"http": "127.0.0.1:0", "ws": "[::1]:0"}, "always"),
        ({"http": "unix:/tmp/x"}, "always"),
        ({"http": "0.0.0.0:0"}, "authenticated"),
        ({"http": "127.0.0.1:0", "ws": "0.0.0.0:0"}, "authenticated"),
        ({"http": "127.0.0.1:0", "trace_accept": "never"}, "never"),
    ],
)
def test_the_context_of_anybody_counts_only_on_this_machine(options: Any, accepts: str) -> None:
    assert ServePlan(trace=True, **options).accepts_traces() == accepts


async def test_an_exporter_that_hangs_does_not_hold_up_the_end(
    spans: Spans, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    enough = threading.Event()
    monkeypatch.setattr(spans.provider, "force_flush", lambda _: enough.wait())
    began = trio.current_time()
    try:
        await tracing.flush()
    finally:
        enough.set()
    assert trio.current_time() - began == tracing.FLUSH_TIME


async def test_hostile_contexts_write_no_line_to_the_log_of_others(
    spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with at(app) as url:
            for value in ("x", "00-x", "x" * 5000, "a=1,a=2", "A=1"):
                await call(url, dict.fromkeys(("traceparent", "tracestate", "baggage"), value), f"tracestate: {value}")
                await call(url, {"traceparent": PARENT, "tracestate": value, "baggage": value})
    assert not [one for one in caplog.records if one.name.startswith("opentelemetry")]
