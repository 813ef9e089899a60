"""What must never be shown: whatever clients and servers confide to each other is in no view, metric or log line."""

import base64
import json
from pathlib import Path

import pytest

from tests.observe.canaries import KEY, confide, scenery
from tests.process import callboard


@pytest.mark.parametrize("log_format", ["text", "json"])
async def test_nothing_that_was_confided_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_format: str
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    async with scenery(tmp_path, "--log-format", log_format) as scene:
        await confide(scene)
    spans = (tmp_path / "spans").read_text()
    audit = (tmp_path / "audit").read_text()
    shown = {**scene.shown, "log": scene.process.words, "spans": spans, "audit": audit}
    answers = {f"answer {number} to another client": text for number, text in enumerate(scene.answers)}
    # Each of them is where it should be: else nothing was looked at.
    assert all(shown.values())
    assert '"back"' in shown["/api/snapshot?history at the end"]
    assert "back__ask" in shown["/api/snapshot?history while it is parked"]
    assert "tools/call" in spans
    lines = [json.loads(line) for line in audit.splitlines()]
    assert {line["event"] for line in lines} >= {"request", "session_begun", "authentication_refused", "question_asked"}
    assert {line.get("name") for line in lines} >= {"back__tell", "notes://shelf/a"}
    assert all(line["arguments"] for line in lines if line.get("name") == "back__tell")
    assert scene.process.words.count("back__tell") == 2  # the access log
    assert len(scene.answers) >= 8
    sent = {**scene.sent, "arguments of a command": "canary-argv", "stderr": "canary-stderr"}
    sent |= {"key in base64": base64.b64encode(KEY).decode(), "key as bytes": KEY.decode("latin-1")}
    sent |= {"body of a failed answer": "canary-http-error"}
    assert len(sent) >= 30
    found = {
        (where, kind) for where, text in (shown | answers).items() for kind, secret in sent.items() if secret in text
    }
    assert found == set()
    # What a server that is down said last is for those who may look at it, and for the log; never for metrics, clients.
    for where, text in (shown | answers).items():
        if not where.startswith(("/api", "/events", "/readyz", "callboard", "log")):
            assert "canary" not in text, where


def test_a_user_in_the_url_of_a_server_is_refused_and_not_repeated(tmp_path: Path) -> None:
    config = tmp_path / "servers.json"
    url = "http://canary-user:canary-password@127.0.0.1:1/mcp?key=canary-query"
    config.write_text(json.dumps({"mcpServers": {"shut": {"url": url}}}))
    for command in ("serve", "check"):
        done = callboard(command, str(config))
        assert "mcpServers.shut.url" in done.stdout + done.stderr
        assert "canary" not in done.stdout + done.stderr
