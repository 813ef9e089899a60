"""Whatever stands in a file, it is read or refused with mistakes that have their lines: nothing else ever happens."""

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.broker.policy import SHARES
from callboard.config import BadConfiguration, Mistake, read_configuration
from callboard.config.auth import GRANTS, OAUTH_KEYS
from callboard.config.load import ENTRY_KEYS, OUR_KEYS
from callboard.config.policy import RESTART_KEYS, TOOLS_KEYS

WORDS = st.sampled_from(
    [
        *SHARES,
        *GRANTS,
        "http://h/",
        "unix:/a",
        "x",
        "~",
        "~x",
        "a.py:b",
        "",
        "2025-06-18",
        "${A}",
        "${A:-b}",
        "$${",
        "\0",
    ]
)
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(10**400)
    | st.floats(allow_nan=False)
    | WORDS
    | st.text(max_size=5)
)
KEYS = st.sampled_from([*ENTRY_KEYS, *OUR_KEYS, *OAUTH_KEYS, *TOOLS_KEYS, *RESTART_KEYS, "odd", "a b"])
VALUES = st.recursive(PLAIN, lambda some: st.lists(some, max_size=3) | st.dictionaries(KEYS, some, max_size=5))
OURS = st.fixed_dictionaries({}, optional=dict.fromkeys(OUR_KEYS, VALUES))
ENTRIES = st.fixed_dictionaries({}, optional=dict.fromkeys(ENTRY_KEYS, VALUES) | {"callboard": OURS | VALUES})
SERVERS = st.dictionaries(st.sampled_from(["a", "b", "", "a/b", "é"]), ENTRIES | VALUES, max_size=3)

PIECES = st.sampled_from(
    [
        *'{}[]":,=.#\n\t \\/*-1',
        '"""',
        "'",
        "'''",
        "[[",
        "]]",
        "//",
        "true",
        "servers",
        "mcpServers",
        '"servers"',
        "a",
        "${",
    ]
)


def check(text: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_text(text, encoding="utf-8", errors="surrogatepass")
        told = _told(file)
    lines = text.count("\n") + 1
    assert all(one.line is not None and 1 <= one.line <= lines for one in told)
    assert all(str(one).encode() for one in told)


def _told(file: Path) -> tuple[Mistake, ...]:
    try:
        return read_configuration(file).warnings
    except BadConfiguration as error:
        return error.mistakes + error.warnings


@given(SERVERS, st.sampled_from(["servers", "mcpServers"]), st.sampled_from([None, 1]))
def test_any_values_anywhere(servers: dict[str, Any], member: str, indent: int | None) -> None:
    check(json.dumps({member: servers}, indent=indent, ensure_ascii=False), "mcp.json")


@given(st.lists(PIECES, max_size=40).map("".join), st.sampled_from(["mcp.json", "servers.toml", "servers"]))
def test_any_text(text: str, name: str) -> None:
    check(text, name)


@given(st.text(max_size=30), st.sampled_from(["mcp.json", "servers.toml", "servers"]))
def test_any_characters(text: str, name: str) -> None:
    check(text, name)
