"""A target for people shows where a server is, and nothing that could be a secret."""

import pytest

from callboard.config.redact import shown_command, shown_url


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["npx", "-y", "@scope/server"], "npx -y @scope/server"),
        (["sh", "-c", "echo hi"], "sh -c 'echo hi'"),
        (["x", "--token", "t0p"], "x --token ***"),
        (["x", "--token", "AKIAT0P", "next"], "x --token *** next"),
        (["x", "--token", "--verbose", "next"], "x --token --verbose next"),
        (["x", "--api-key=t0p"], "x --api-key=***"),
        (["x", "API_KEY=t0p"], "x API_KEY=***"),
        (["docker", "run", "-e", "GITHUB_TOKEN", "image"], "docker run -e GITHUB_TOKEN image"),
        (["x", "--token", "${TOKEN}"], "x --token ${TOKEN}"),
        (["x", "--token=${TOKEN}"], "x --token=${TOKEN}"),
        (["x", "--token=t0p${TOKEN}"], "x --token=***"),
        (["x", "--no-auth", "--port", "80"], "x --no-auth --port 80"),
        (["x", "postgres://me:t0p@host/db"], "x 'postgres://***@host/db'"),
        (["x", "--header", "Authorization: Bearer t0p"], "x --header ***"),
        (["${HOME}/bin/x"], "${HOME}/bin/x"),
    ],
)
def test_a_command_is_shown_as_it_is_written_but_for_secrets(words: list[str], shown: str) -> None:
    assert shown_command(words) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.com:8000/mcp", "https://example.com:8000/mcp"),
        ("https://me:t0p@example.com/mcp", "https://***@example.com/mcp"),
        ("https://h/mcp?key=t0p&x=${X}&flag#t0p", "https://h/mcp?key=***&x=${X}&flag"),
        ("${URL:-http://h}/mcp", "${URL:-http://h}/mcp"),
        ("unix:/run/a.sock", "unix:/run/a.sock"),
        ("http://[::1/?t0p", "http://[::1/"),
    ],
)
def test_a_url_is_shown_without_who_asks_and_what_is_asked(url: str, shown: str) -> None:
    assert shown_url(url) == shown
