"""What is told of what went wrong: one line."""

import pytest
from msgspec import Raw

from callboard.cli.client_run import told
from callboard.errors import URL_ELICITATION_REQUIRED, HttpRefused, ServerRefused


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
