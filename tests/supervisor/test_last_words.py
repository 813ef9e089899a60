"""The line that tells why a process ended."""

import pytest

from callboard.supervisor.last_words import telling

LOG = "npm error A complete log of this run can be found in: /home/ada/.npm/_logs/2026-01-02T03_04_05_678Z-debug-0.log"
NOT_FOUND = "npm error 404 Not Found - GET https://npm.example/mcp-server-nope - Not found"
NO_HOST = "npm error request to https://npm.example/nope failed, reason: getaddrinfo ENOTFOUND npm.example"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ([], ""),
        (["", "one", "two", " "], "two"),
        (["Traceback (most recent call last):", "KeyError: 'TOKEN'", "bye"], "KeyError: 'TOKEN'"),
        (
            [
                *("npm warn deprecated inflight@1.0.6: this leaks, and fails", "npm error code E404", NOT_FOUND),
                *("npm error 404", "npm error 404  'mcp-server-nope@*' is not in this registry.", "npm error 404"),
                "npm error 404 Note that you can also install from a",
                *("npm error 404 tarball, folder, http url, or git folder.", "npm notice", LOG),
            ],
            NOT_FOUND,
        ),
        (
            [
                *("npm error code ENOTFOUND", "npm error syscall getaddrinfo", "npm error errno ENOTFOUND", NO_HOST),
                *("npm error network This is a problem related to network connectivity.", LOG),
            ],
            NO_HOST,
        ),
        (
            ["npm ERR! code E401", "npm ERR! Incorrect or missing password.", LOG],
            "npm ERR! Incorrect or missing password.",
        ),
        (["npm error code ELSPROBLEMS", LOG], "npm error code ELSPROBLEMS"),
        (
            ["Error: Cannot find module './x'", "npm notice New version: fix failed installs", LOG],
            "Error: Cannot find module './x'",
        ),
        (["npm notice New major version of npm available!"], "npm notice New major version of npm available!"),
    ],
)
def test_the_line_with_the_reason_is_shown(said: list[str], told: str) -> None:
    assert telling(said) == told
