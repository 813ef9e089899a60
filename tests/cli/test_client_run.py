"""What is told of what went wrong: one line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import structlog
from msgspec import Raw

from callboard.cli.complaints import told
from callboard.cli.main import app
from callboard.errors import URL_ELICITATION_REQUIRED, HttpRefused, ServerRefused
from callboard.supervisor import logs


@pytest.fixture
def log_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A command configures the log of its process, which is that of the tests after it here."""
    monkeypatch.setattr(logs, "_configure", None)
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize(
    ("data", "pages"),
    [
        (b'{"elicitations": [{"url": "https://example.com/a"}]}', "https://example.com/a"),
        (
            b'{"elicitations": [{"url": "https://a.example"}, {"url": "https://b.example"}]}',
            "https://a.example, https://b.example",
        ),
        (b'{"elicitations": [{}]}', "(no URL given)"),
        (b"[]", "(no URL given)"),
        (None, "(no URL given)"),
    ],
)
def test_a_page_that_must_be_visited_first_is_named(data: bytes | None, pages: str) -> None:
    refused = ServerRefused(URL_ELICITATION_REQUIRED, "Log in\nfirst", None if data is None else Raw(data))
    assert told(refused) == f"Log in first (-32042); open: {pages}"


def test_a_refusal_that_is_a_whole_page_is_one_line() -> None:
    assert (
        told(HttpRefused(404, "<html>\n  <h1>Not here</h1>\n</html>")) == "HTTP 404: <html> <h1>Not here</h1> </html>"
    )


LOUD: Final = """
from callboard import Server

print("imported")
server = Server("loud")

@server.tool
async def on_trio() -> int:
    print("on Trio")
    return 1

@server.tool
def in_a_thread() -> int:
    print("in a thread")
    return 2

@server.tool(loop="asyncio")
async def on_asyncio() -> int:
    print("on asyncio")
    return 3
"""


@pytest.mark.usefixtures("log_as_it_was")
@pytest.mark.parametrize(
    ("tool", "says"), [("on_trio", "on Trio"), ("in_a_thread", "in a thread"), ("on_asyncio", "on asyncio")]
)
def test_what_a_server_in_this_process_prints_is_no_part_of_the_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tool: str, says: str
) -> None:
    (tmp_path / "loud.py").write_text(LOUD)
    assert app(["call", str(tmp_path / "loud.py"), tool, "--json"], result_action="return_value") == 0
    written = capsys.readouterr()
    assert json.loads(written.out)["structuredContent"]["result"] in (1, 2, 3)
    assert written.err == f"imported\n{says}\n"
